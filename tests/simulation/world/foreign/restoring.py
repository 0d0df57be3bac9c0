"""Savepoints of the engine, and restores to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.hudi_rules.documents import encode
from tests.hudi_rules.slices import groups_of, slices_of
from tests.hudi_rules.timeline import Instant
from tests.hudi_rules.undoing import (
    RefusedError,
    check_restore,
    files_of,
    forgotten_by_restore,
    is_built_after,
    to_restore,
    written_after,
)
from tests.simulation.world.checkers.judge import Look
from tests.simulation.world.checkers.secondary import NAME
from tests.simulation.world.foreign import instants
from tests.simulation.world.foreign.bench import METADATA_PARTITIONS, Bench
from tests.simulation.world.foreign.listed_indexes import BUILDING, LISTED, name_in, named_in
from tests.simulation.world.foreign.secondary_entries import builds
from tests.simulation.world.foreign.undoing import Undoing
from tests.simulation.world.foreign.writes import LeftOutError
from tidemark.hudi_format.metadata_table.partitions.files import FileChange
from tidemark.hudi_format.storage.base import join_path

_KEPT: Final = frozenset({*METADATA_PARTITIONS, "column_stats"})
"""Partitions of the metadata table that a restore takes back to the savepoint. All others it drops: out of
the table's properties, then the folder. Their definitions stay.
"""


class Restoring:
    """``undone(instant)`` is told of each commit that is taken back, ``excuse(instant)`` of each pending one
    of somebody else, ``dropped()`` when the table has lost its secondary index. Raises LeftOutError.
    """

    def __init__(
        self,
        bench: Bench,
        undoing: Undoing,
        undone: Callable[[str], None],
        excuse: Callable[[str], None],
        dropped: Callable[[], None],
    ) -> None:
        self._bench, self._undoing, self._undone, self._excuse = bench, undoing, undone, excuse
        self._dropped = dropped

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
        instants.start(bench.storage, requested, "savepoint")
        instants.complete(bench.storage, requested, "savepoint", completion, encode("savepoint", document))

    def delete_savepoints(self) -> None:
        """Nothing is kept any more."""
        storage = self._bench.storage
        for name in list(storage.file_names(instants.DATA)):
            if ".savepoint" in name:
                storage.delete(join_path(instants.DATA, name))
        storage.sync_dir(instants.DATA)

    # ------------------------------------------------------------ restore

    def targets(self, look: Look) -> list[Instant]:
        """What a restore to the newest savepoint would roll back, if Hudi does it now, and all commits of it
        are the engine's own. Raises LeftOutError.
        """
        timeline, metadata = look.timeline.hudi, look.metadata.hudi
        savepoint = max(timeline.savepoints, default="")
        try:
            targets = to_restore(timeline, savepoint)
            check_restore(metadata, savepoint, builds(self._bench.storage))
        except RefusedError as error:
            raise LeftOutError(str(error)) from error
        done = [each for each in targets if each.completion is not None]
        self._undoing.own(look, done, [timeline.instants[savepoint]])
        for partition in METADATA_PARTITIONS:
            names = self._bench.storage.file_names(join_path(".hoodie/metadata", partition))
            for group, files in groups_of({partition: names}).items():
                # Of a group whose beginning was undone there is none, and one without a base file that began
                # later goes with what began it.
                oldest = next(iter(slices_of(files, metadata)), None)
                if oldest is not None and oldest.base is not None and oldest.instant > savepoint:
                    raise LeftOutError(f"the savepoint's slice of {group[1]} was cleaned")
        return targets

    def is_changed_since(self, look: Look, instant: str) -> bool:
        """Whether the metadata table was compacted, or an index built, since this commit."""
        metadata = look.metadata.hudi
        compacted = any(each.requested >= instant for each in metadata.completed("compaction"))
        return compacted or is_built_after(metadata, instant)

    def restore(self, look: Look, own_pending: str | None) -> None:
        """To the newest savepoint. Pending writes of others that began after it go, too, but for their
        heartbeats, and for files in the metadata table where they are not on its timeline.
        """
        bench, storage, timeline = self._bench, self._bench.storage, look.timeline.hudi
        targets, savepoint = self.targets(look), max(timeline.savepoints)
        restore = bench.instant(look)
        if restore <= timeline.newest or restore <= look.metadata.hudi.newest:
            raise LeftOutError("its clock is behind what it would roll back")
        plan, document = _documents(restore, savepoint, targets)
        instants.request(storage, restore, "restore", plan)
        instants.start(storage, restore, "restore")
        files = bench.listed()
        for target in targets:
            if target.completion is not None:
                self._undone(target.requested)
            elif target.action in ("commit", "deltacommit") and target.requested != own_pending:
                self._excuse(target.requested)
            for partition, names in files_of(files, target.requested).items():
                for name in names:
                    storage.delete(join_path(partition, name))
                storage.sync_dir(partition)
            instants.delete(storage, target.requested)
            instants.unmark(storage, target.requested)
            if target.requested == own_pending:
                instants.stop(storage, target.requested)
        self._drop_indexes()
        self._restore_metadata(look, savepoint)
        instants.complete(storage, restore, "restore", bench.instant(look), document)
        for each in forgotten_by_restore(timeline, savepoint):
            instants.delete(storage, each.requested)
        bench.clock.wait()

    def _drop_indexes(self) -> None:
        """Hudi moves the folders out of the metadata table; nobody reads them there."""
        storage = self._bench.storage
        for name in sorted(named_in(storage, LISTED) - _KEPT):
            for key in (LISTED, BUILDING):
                name_in(storage, key, named_in(storage, key) - {name})
            storage.delete_tree(join_path(".hoodie/metadata", name))
            if name == NAME:
                self._dropped()

    def _restore_metadata(self, look: Look, savepoint: str) -> None:
        """A restore of the metadata table: what it got after the savepoint goes, that of cleans, too, but for
        the first files of groups of a partitioned record index. Then a deltacommit of an instant that the
        data timeline never has says what `files` lacks.
        """
        bench, storage, metadata = self._bench, self._bench.storage, look.metadata.hudi
        restore, targets = bench.instant(look), written_after(metadata, savepoint)
        plan, document = _documents(restore, savepoint, targets)
        instants.request(storage, restore, "restore", plan, instants.METADATA)
        instants.start(storage, restore, "restore", root=instants.METADATA)
        for target in targets:
            for path in bench.metadata_files_of(target.requested, without_first=True):
                storage.delete(path)
                storage.sync_dir(path.rpartition("/")[0])
            instants.delete(storage, target.requested, instants.METADATA)
        instants.complete(storage, restore, "restore", bench.instant(look), document, instants.METADATA)
        now = bench.look()
        there: dict[str, set[str]] = {}
        for file in now.view.data:
            partition, _, name = file.path.rpartition("/")
            there.setdefault(partition, set()).add(name)
        listed = now.reader.listing(now.view)
        changes = []
        for partition in sorted(there.keys() | listed.keys()):
            have, has = there.get(partition, set()), listed.get(partition, set())
            changes += [FileChange(partition, name, None) for name in sorted(has - have)]
            for name in sorted(have - has):
                size = len(storage.memory.read(join_path(partition, name)))
                changes.append(FileChange(partition, name, size))
        bench.delta_commit(bench.instant(look), changes, {}, bench.instant(look))


def _documents(restore: str, savepoint: str, targets: list[Instant]) -> tuple[bytes, bytes]:
    """The plan of a restore, and what it says when it is done."""
    infos = [{"commitTime": each.requested, "action": each.word} for each in targets]
    plan = {"instantsToRollback": infos, "version": 2, "savepointToRestoreTimestamp": savepoint}
    done = {
        "startRestoreTime": restore,
        "timeTakenInMillis": 1,
        "instantsToRollback": [each.requested for each in targets],
        "hoodieRestoreMetadata": {},
        "version": 1,
        "restoreInstantInfo": infos,
    }
    return encode("restore plan", plan), encode("restore", done)
