"""What the engine takes back: pending writes of anybody, its own newest commit, everything after a
savepoint.
"""

from __future__ import annotations

from collections.abc import Callable

from hudi_format.commit import heartbeat
from hudi_format.commit.instants import complete, create_inflight, create_requested
from hudi_format.commit.markers import delete_markers
from hudi_format.commit.rollback import rollback_pending
from hudi_format.metadata_table.delta_commit import (
    begin_delta_commit,
    complete_delta_commit,
    delta_commit_metadata,
    publish_files_log,
)
from hudi_format.model import InstantGenerator
from hudi_format.storage.base import join_path
from hudi_format.timeline import DATA_ROOT, METADATA_TABLE_ROOT, Action, Instant
from hudi_format.timeline.service_records import (
    RollbackMetadata,
    RollbackPartition,
    RollbackPlan,
    encode_rollback_metadata,
    encode_rollback_plan,
)
from tests.hudi_rules.documents import encode
from tests.hudi_rules.timeline import Instant as HudiInstant
from tests.hudi_rules.timeline import Timeline
from tests.hudi_rules.undoing import (
    RefusedError,
    check_rollback,
    files_of,
    forgotten_by_restore,
    to_restore,
)
from tests.simulation.world.checkers.judge import Look
from tests.simulation.world.foreign.bench import FOREIGN_KEY, Bench
from tests.simulation.world.foreign.writes import LeftOutError


class Undoing:
    """``undone(instant)`` is told of each commit that is taken back. Raises LeftOutError."""

    def __init__(self, bench: Bench, instants: InstantGenerator, undone: Callable[[str], None]) -> None:
        self._bench, self._instants, self._undone = bench, instants, undone

    def roll_back_pending(self, look: Look, requested: str) -> None:
        """Rolls a pending write back, whatever its heartbeat says."""
        for timeline in (look.timeline.hudi, look.metadata.hudi):
            self._instants.observe([timeline.newest] if timeline.newest else [])
        rollback_pending(self._bench.storage, requested, self._instants)

    def cancel_plan(self, look: Look, pending: HudiInstant) -> None:
        """A clustering that nobody will carry out: its instant goes, with a rollback that says so."""
        rollback = self._bench.instant(look)
        inflight = self._request(rollback, pending, {}, DATA_ROOT)
        self._bench.delete_instant(pending.requested, DATA_ROOT)
        self._complete(inflight, pending, {}, self._bench.instant(look), DATA_ROOT)

    # ------------------------------------------------------------ a completed commit

    def roll_back_newest(self, look: Look) -> None:
        """Its own newest commit, completed."""
        target = self._own(look, look.timeline.hudi.writes()[-1:])[0]
        try:
            check_rollback(look.timeline.hudi, look.metadata.hudi, target.requested)
        except RefusedError as error:
            raise LeftOutError(str(error)) from error
        rollback = self._bench.instant(look)
        if rollback <= str(target.completion):
            raise LeftOutError("its clock is behind the commit")
        self._take_away(look, target, rollback)
        self._bench.clock.wait()

    def _own(self, look: Look, targets: list[HudiInstant]) -> list[HudiInstant]:
        table = self._bench.table(look)
        for each in targets:
            extra = table.document(each).get("extraMetadata") or {}
            if FOREIGN_KEY not in extra and each.action != "compaction":
                raise LeftOutError(f"{each.name} is not its own")
            if '"note"' in (extra.get("schema") or ""):
                raise LeftOutError(f"{each.name} has the added column")
        if not targets:
            raise LeftOutError("there is no commit")
        return targets

    def _take_away(self, look: Look, target: HudiInstant, rollback: str) -> None:
        bench, files = self._bench, files_of(self._bench.listed(), target.requested)
        self._undone(target.requested)
        inflight = self._request(rollback, target, files, DATA_ROOT)
        there = look.metadata.hudi.instants.get(target.requested)
        if there is not None:
            begun = self._request(rollback, there, {}, METADATA_TABLE_ROOT)
            self._remove_metadata(target.requested)
            self._complete(begun, there, {}, bench.instant(look), METADATA_TABLE_ROOT)
        for partition, names in files.items():
            for name in names:
                bench.storage.delete(join_path(partition, name))
            bench.storage.sync_dir(partition)
        bench.delete_instant(target.requested, DATA_ROOT)
        self._complete(inflight, target, files, bench.instant(look), DATA_ROOT)

    def _remove_metadata(self, instant: str) -> None:
        for path in self._bench.metadata_files_of(instant):
            self._bench.storage.delete(path)
            self._bench.storage.sync_dir(path.rpartition("/")[0])
        self._bench.delete_instant(instant, METADATA_TABLE_ROOT)

    def _request(self, rollback: str, target: HudiInstant, files: dict[str, list[str]], root: str) -> Instant:
        plan = RollbackPlan(instant_to_rollback=target.requested, action=target.word, requests=())
        requested = create_requested(
            self._bench.storage, rollback, Action.ROLLBACK, encode_rollback_plan(plan), root=root
        )
        return create_inflight(self._bench.storage, requested, root=root)

    def _complete(
        self,
        inflight: Instant,
        target: HudiInstant,
        files: dict[str, list[str]],
        completion: str,
        root: str,
    ) -> None:
        metadata = RollbackMetadata(
            start_rollback_time=inflight.requested,
            time_taken_ms=1,
            rolled_back=((target.requested, target.word),),
            partitions=tuple(
                RollbackPartition(partition_path=p, deleted=tuple(names)) for p, names in files.items()
            ),
        )
        content = encode_rollback_metadata(metadata)
        complete(self._bench.storage, inflight, completion, content, root=root)

    # ------------------------------------------------------------ savepoints

    def savepoint(self, look: Look) -> None:
        """Keeps the newest commit and its files."""
        bench, timeline = self._bench, look.timeline.hudi
        newest = timeline.writes()[-1:]
        if not newest or newest[0].requested in timeline.savepoints:
            raise LeftOutError("there is no commit, or it is kept")
        requested, completion = newest[0].requested, bench.instant(look)
        if completion <= requested:
            raise LeftOutError("its clock is behind the commit")
        table = bench.table(look)
        kept: dict[str, list[str]] = {}
        for (partition, _), (base, logs) in table.read_slices().items():
            kept.setdefault(partition, []).extend([*([base] if base is not None else []), *logs[::-1]])
        partitions = {p: {"partitionPath": p, "savepointDataFile": names} for p, names in kept.items()}
        document = {
            "savepointedBy": "",
            "savepointedAt": 0,
            "comments": "",
            "partitionMetadata": partitions,
            "version": 1,
        }
        bench.storage.create(f"{DATA_ROOT}/timeline/{requested}.savepoint.inflight", b"")
        path = f"{DATA_ROOT}/timeline/{requested}_{completion}.savepoint"
        bench.storage.create(path, encode("savepoint", document))

    def delete_savepoints(self, look: Look) -> None:
        """Nothing is kept any more."""
        folder = f"{DATA_ROOT}/timeline"
        for name in list(self._bench.storage.names(folder)):
            if ".savepoint" in name:
                self._bench.storage.delete(join_path(folder, name))
        self._bench.storage.sync_dir(folder)

    def restore(self, look: Look) -> None:
        """To its newest savepoint; everything since must be the engine's own."""
        bench, timeline = self._bench, look.timeline.hudi
        savepoint = max(timeline.savepoints, default="")
        targets = self._restorable(look, timeline, savepoint)
        restore = bench.instant(look)
        if restore <= timeline.newest or restore <= look.metadata.hudi.newest:
            raise LeftOutError("its clock is behind what it would roll back")
        infos = [{"commitTime": each.requested, "action": each.word} for each in targets]
        plan = {
            "instantsToRollback": infos,
            "version": 2,
            "savepointToRestoreTimestamp": savepoint,
        }
        requested = create_requested(bench.storage, restore, Action.RESTORE, encode("restore plan", plan))
        inflight = create_inflight(bench.storage, requested)
        files = bench.listed()
        for target in targets:
            if target.completion is not None:
                self._undone(target.requested)
            self._remove_metadata(target.requested)
            for partition, names in files_of(files, target.requested).items():
                for name in names:
                    bench.storage.delete(join_path(partition, name))
                bench.storage.sync_dir(partition)
            bench.delete_instant(target.requested, DATA_ROOT)
            delete_markers(bench.storage, target.requested)
            heartbeat.stop(bench.storage, target.requested)
        for each in forgotten_by_restore(timeline, savepoint):
            bench.delete_instant(each.requested, DATA_ROOT)
        self._synchronise(look)
        document = {
            "startRestoreTime": restore,
            "timeTakenInMillis": 1,
            "instantsToRollback": [each.requested for each in targets],
            "hoodieRestoreMetadata": {},
            "version": 1,
            "restoreInstantInfo": infos,
        }
        complete(bench.storage, inflight, bench.instant(look), encode("restore", document))
        bench.clock.wait()

    def _restorable(self, look: Look, timeline: Timeline, savepoint: str) -> list[HudiInstant]:
        try:
            targets = to_restore(timeline, savepoint)
        except RefusedError as error:
            raise LeftOutError(str(error)) from error
        done = [each for each in targets if each.completion is not None]
        if any(each.requested not in self.own_pending for each in targets if each.completion is None):
            raise LeftOutError("somebody else's write is pending")
        self._own(look, done)
        if any(each.completion is not None for each in look.metadata.hudi.completed("compaction")):
            raise LeftOutError("the metadata table was compacted: Hudi builds it anew")
        return targets

    own_pending: frozenset[str] = frozenset()

    def _synchronise(self, look: Look) -> None:
        """The metadata table's deltacommit behind a restore: an instant that the data timeline never has."""
        instant = self._bench.instant(look)
        begun = begin_delta_commit(self._bench.storage, instant)
        log = publish_files_log(self._bench.storage, instant, [])
        metadata = delta_commit_metadata(instant, [log])
        complete_delta_commit(self._bench.storage, begun, self._bench.instant(look), metadata)
