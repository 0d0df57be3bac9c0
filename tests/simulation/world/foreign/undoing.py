"""What the engine takes back: pending writes of anybody, what a dead executor of a plan left, its own newest
commit.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.hudi_rules.timeline import Instant
from tests.hudi_rules.undoing import RefusedError, check_metadata, check_rollback, files_of
from tests.simulation.world.checkers.judge import Look
from tests.simulation.world.foreign import instants
from tests.simulation.world.foreign.bench import FOREIGN_KEY, Bench
from tests.simulation.world.foreign.writes import LeftOutError
from tidemark.hudi_format.storage.base import join_path
from tidemark.hudi_format.timeline.service_records import (
    RollbackMetadata,
    RollbackPartition,
    RollbackPlan,
    RollbackRequest,
    encode_rollback_metadata,
    encode_rollback_plan,
)

_FILES = dict[str, list[str]]
"""Partition path -> names."""


class Undoing:
    """``undone(instant)`` is told of each commit that is taken back. Raises LeftOutError. ``services``: how
    many table services were rolled back.
    """

    def __init__(self, bench: Bench, undone: Callable[[str], None]) -> None:
        self._bench, self._undone = bench, undone
        self.services = 0

    # ------------------------------------------------------------ what is pending

    def roll_back_pending(self, look: Look, requested: str) -> None:
        """Rolls a pending write back, whatever its heartbeat says: its files are those that its markers name.
        What of it lies in the metadata table goes if its instant is on that timeline; else Hudi leaves it.
        """
        target = look.timeline.hudi.instants[requested]
        self._check(look, target)
        self._take_away(look, target, instants.marked(self._bench.storage, requested))
        instants.stop(self._bench.storage, requested)

    def roll_back_service(self, look: Look, target: Instant) -> None:
        """What somebody left who began to carry a plan out: files and inflight file go, the plan stays."""
        self._check(look, target)
        marked = instants.marked(self._bench.storage, target.requested)
        self._take_away(look, target, marked, keeps_plan=True)
        self.services += 1

    def roll_back_index_compaction(self, look: Look, target: Instant) -> None:
        """The same on the metadata table, whose files are found by listing."""
        bench, rollback = self._bench, self._bench.instant(look)
        self._request(rollback, target, {}, instants.METADATA)
        self._delete(bench.metadata_files_of(target.requested))
        instants.delete(bench.storage, target.requested, instants.METADATA, keeps_plan=True)
        self._complete(look, rollback, target, {}, instants.METADATA)

    def roll_back_in_metadata(self, look: Look, instant: str) -> None:
        """The metadata table's commit of an instant whose executor died, pending or completed: who carries
        the plan out makes it anew.
        """
        there = look.metadata.hudi.instants[instant]
        rollback = self._bench.instant(look)
        self._request(rollback, there, {}, instants.METADATA)
        self._delete(self._bench.metadata_files_of(instant))
        instants.delete(self._bench.storage, instant, instants.METADATA)
        self._complete(look, rollback, there, {}, instants.METADATA)

    def cancel_plan(self, look: Look, pending: Instant) -> None:
        """A clustering that nobody will carry out: its instant goes, with a rollback that says so."""
        self._take_away(look, pending, instants.marked(self._bench.storage, pending.requested))

    def _check(self, look: Look, target: Instant) -> None:
        try:
            if target.completion is None:
                check_metadata(look.metadata.hudi, target.requested)
            else:
                check_rollback(look.timeline.hudi, look.metadata.hudi, target.requested)
        except RefusedError as error:
            raise LeftOutError(str(error)) from error

    # ------------------------------------------------------------ a completed commit

    def roll_back_newest(self, look: Look) -> None:
        """Its own newest commit, completed."""
        writes = look.timeline.hudi.writes()
        target = self.own(look, writes[-1:], writes[-2:-1])[0]
        self._check(look, target)
        if self._bench.instant(look) <= str(target.completion):
            raise LeftOutError("its clock is behind the commit")
        cleans = (*look.timeline.hudi.completed("clean"), *look.timeline.hudi.pending("clean"))
        if any(each.requested > target.requested for each in cleans):
            raise LeftOutError("what it replaced may be cleaned")
        self._undone(target.requested)
        self._take_away(look, target, files_of(self._bench.listed(), target.requested))
        self._bench.clock.wait()

    def own(self, look: Look, targets: list[Instant], before: list[Instant]) -> list[Instant]:
        """The targets, if all are commits of the engine itself and leave the table the columns that it has.
        ``before``: the commit that is the newest one when they are gone.
        """
        table = self._bench.table(look)
        had_note = any(_has_note(table.document(each)) for each in before)
        for each in targets:
            document = table.document(each)
            if FOREIGN_KEY not in (document.get("extraMetadata") or {}) and each.action != "compaction":
                raise LeftOutError(f"{each.name} is not its own")
            if _has_note(document) and not had_note:
                raise LeftOutError(f"{each.name} has the added column")
        if not targets:
            raise LeftOutError("there is no commit")
        return targets

    # ------------------------------------------------------------ inside

    def _take_away(self, look: Look, target: Instant, files: _FILES, keeps_plan: bool = False) -> None:
        bench, storage = self._bench, self._bench.storage
        rollback = bench.instant(look)
        self._request(rollback, target, files, instants.DATA)
        for partition, names in files.items():
            self._delete([join_path(partition, name) for name in names])
        there = look.metadata.hudi.instants.get(target.requested)
        if there is not None:
            self._request(rollback, there, {}, instants.METADATA)
            # No commit names the first files of its groups in a partitioned record index: Hudi leaves them.
            is_done = target.completion is not None
            self._delete(bench.metadata_files_of(target.requested, without_first=is_done))
            instants.delete(storage, target.requested, instants.METADATA)
            self._complete(look, rollback, there, {}, instants.METADATA)
        instants.delete(storage, target.requested, keeps_plan=keeps_plan)
        self._complete(look, rollback, target, files, instants.DATA)
        instants.unmark(storage, target.requested)

    def _delete(self, paths: list[str]) -> None:
        for path in paths:
            self._bench.storage.delete(path)
        for folder in sorted({path.rpartition("/")[0] for path in paths}):
            self._bench.storage.sync_dir(folder)

    def _request(self, rollback: str, target: Instant, files: _FILES, root: str) -> None:
        requests = tuple(
            RollbackRequest(
                partition_path=partition,
                file_id="",
                latest_base_instant=target.requested,
                files_to_delete=(self._absolute(partition, name),),
            )
            for partition, names in files.items()
            for name in names
        )
        plan = RollbackPlan(instant_to_rollback=target.requested, action=_word(target), requests=requests)
        instants.request(self._bench.storage, rollback, "rollback", encode_rollback_plan(plan), root)
        instants.start(self._bench.storage, rollback, "rollback", root=root)

    def _complete(self, look: Look, rollback: str, target: Instant, files: _FILES, root: str) -> None:
        metadata = RollbackMetadata(
            start_rollback_time=rollback,
            time_taken_ms=1,
            rolled_back=((target.requested, _word(target)),),
            partitions=tuple(
                RollbackPartition(
                    partition_path=partition,
                    deleted=tuple(self._absolute(partition, name) for name in names),
                )
                for partition, names in files.items()
            ),
        )
        content = encode_rollback_metadata(metadata)
        completion = self._bench.instant(look)
        instants.complete(self._bench.storage, rollback, "rollback", completion, content, root)

    def _absolute(self, partition: str, name: str) -> str:
        return join_path(self._bench.storage.base_uri, partition, name)


def _word(target: Instant) -> str:
    return target.action if target.completion is None else target.word


def _has_note(document: dict[str, object]) -> bool:
    extra = document.get("extraMetadata") or {}
    assert isinstance(extra, dict)
    return '"note"' in (extra.get("schema") or "")
