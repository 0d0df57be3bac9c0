"""The data table as readers and writers must see it: its timeline, and the file slices that count.

A listing of file names is not enough to tell the slices. Two more things decide whether a file group may be
used, and both are in the contents of timeline files:

- A completed replacecommit (clustering, insert overwrite, delete partition) names file groups that no reader
  looks at any more. Their files stay listed until a clean. A row that is written there is lost for everybody.
- A pending plan names file groups that another engine is going to rewrite. A pending compaction begins a new
  slice. A pending clustering will replace its groups by what they held when it was planned: whatever is
  committed to them until it completes is lost then.

An engine that makes a plan's file in place may be found between its name and its content, or may have died
there. A view takes such a file for a plan that comes a moment later, and names it (`unwritten`): who decides
by plans waits for its writer, as long as that may live.

So `TableView` reads these contents together with the timeline, and is the only way to the data table's
slices. It costs one listing of the timeline, and one small file for each active replacecommit and each
pending plan. Given an earlier view (`known`), it reads only files that are new since.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tidemark.hudi_format.commit.instants import instant_path
from tidemark.hudi_format.errors import FileMissingError, TimelineConflictError
from tidemark.hudi_format.file_group.slices import FileGroupId, FileSlice
from tidemark.hudi_format.file_group.slicing import all_slices, build_slices
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.timeline import Action, Instant, State, Timeline, load_timeline
from tidemark.hudi_format.timeline.avro_records import decode_replaced_file_ids
from tidemark.hudi_format.timeline.service_records import decode_clustering_plan, decode_compaction_plan

_LOADS_MAX: Final = 5
_REPLACING: Final = (Action.REPLACE_COMMIT, Action.CLUSTERING)
_PLANNING: Final = (Action.COMPACTION, Action.LOG_COMPACTION, *_REPLACING)

Groups = tuple[FileGroupId, ...]


@dataclass(frozen=True)
class TableView:
    """The data table at one moment; immutable. All four maps have file groups as keys.

    `replaced`: completion time of the replacecommit that replaced the group. `compacting`, `log_compacting`,
    `clustering`: requested time of the pending plan that names the group. `unwritten`: the paths of pending
    plans that have no content.
    """

    timeline: Timeline
    replaced: Mapping[FileGroupId, str]
    compacting: Mapping[FileGroupId, str]
    log_compacting: Mapping[FileGroupId, str]
    clustering: Mapping[FileGroupId, str]
    unwritten: tuple[str, ...] = ()
    _contents: Mapping[str, Groups] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def load(cls, storage: Storage, known: TableView | None = None) -> TableView:
        """Loads the table as it is now. `known`: an earlier view of the same table.

        Raises TimelineConflictError (try again later) when instants keep vanishing while they are read,
        CorruptFileError, UnsupportedTableError.
        """
        for _ in range(_LOADS_MAX):
            try:
                return cls.of(storage, load_timeline(storage), known)
            except FileMissingError as error:
                missing = error
        raise TimelineConflictError(
            f"{storage.base_uri}: the timeline changed during each of {_LOADS_MAX} readings: try again"
        ) from missing

    @classmethod
    def of(cls, storage: Storage, timeline: Timeline, known: TableView | None = None) -> TableView:
        """The view that belongs to this listing of the data timeline.

        Raises FileMissingError when an instant has vanished since the listing (a plan was rolled back, a
        replacecommit archived) or the content of a completed one is not written yet: list again. Otherwise
        raises as `load`.
        """
        read = _Contents(storage, known._contents if known is not None else {})
        replaced = {
            group: str(instant.completion)
            for instant in timeline.completed(*_REPLACING)
            for group in read.of(instant, _replaced_groups)
        }
        planned: dict[Action, dict[FileGroupId, str]] = {action: {} for action in _PLANNING}
        for instant in timeline.pending(*_PLANNING):
            groups = read.of(Instant(instant.requested, instant.action, State.REQUESTED), _planned_groups)
            planned[instant.action].update(dict.fromkeys(groups, instant.requested))
        return cls(
            timeline=timeline,
            replaced=replaced,
            compacting=planned[Action.COMPACTION],
            log_compacting=planned[Action.LOG_COMPACTION],
            # Before table version 8 a pending clustering was called a replacecommit.
            clustering={**planned[Action.REPLACE_COMMIT], **planned[Action.CLUSTERING]},
            unwritten=tuple(read.unwritten),
            _contents=read.used,
        )

    def slices(self, files: Mapping[str, Iterable[str]], as_of: str | None = None) -> list[FileSlice]:
        """The slice of each file group that readers see, ordered by partition path and file id.

        `files`: partition path -> names of the files in it. `as_of`: a completion time; whatever completed
        later is ignored. File groups that are replaced, or have no committed file, are left out.
        """
        return build_slices(
            files, self.timeline, pending_compactions=self.compacting, replaced=self.replaced, as_of=as_of
        )

    def every_slice(self, files: Mapping[str, Iterable[str]]) -> dict[FileGroupId, list[FileSlice]]:
        """All slices of each file group, oldest first; replaced groups are included."""
        return all_slices(files, self.timeline, pending_compactions=self.compacting)

    def takes_inserts(self, group: FileGroupId) -> bool:
        """Whether new rows may go into the file group: it is neither replaced nor about to be clustered."""
        return group not in self.replaced and group not in self.clustering

    def under_plans(self, own: Collection[str] = ()) -> frozenset[FileGroupId]:
        """The file groups that a pending compaction, log compaction or clustering names. ``own``: requested
        times of plans that do not count.
        """
        plans = (self.compacting, self.log_compacting, self.clustering)
        return frozenset(group for plan in plans for group, planned in plan.items() if planned not in own)


class _Contents:
    """Reads which groups timeline files name, and caches them by path: a file's content never changes, once
    it has one.
    """

    def __init__(self, storage: Storage, known: Mapping[str, Groups]) -> None:
        self._storage = storage
        self._known = known
        self.used: dict[str, Groups] = {}
        self.unwritten: list[str] = []

    def of(self, instant: Instant, decode: Callable[[Action, bytes, str], Groups]) -> Groups:
        path = instant_path(instant)
        if path not in self.used:
            groups = self._known.get(path)
            groups = self._read(instant, path, decode) if groups is None else groups
            if groups is None:
                self.unwritten.append(path)
                return ()
            self.used[path] = groups
        return self.used[path]

    def _read(
        self, instant: Instant, path: str, decode: Callable[[Action, bytes, str], Groups]
    ) -> Groups | None:
        """None for a plan without content."""
        data = self._storage.read(path)
        if data:
            return decode(instant.action, data, path)
        if instant.is_completed:
            raise FileMissingError(f"{path} has no content: its writer has not finished it")
        # A pending insert overwrite or delete partition has no plan.
        return () if instant.action is Action.REPLACE_COMMIT else None


def _replaced_groups(_: Action, data: bytes, path: str) -> Groups:
    return tuple(
        (partition, file_id)
        for partition, file_ids in decode_replaced_file_ids(data, path).items()
        for file_id in file_ids
    )


def _planned_groups(action: Action, data: bytes, path: str) -> Groups:
    if action in _REPLACING:
        return decode_clustering_plan(data, path)
    operations = decode_compaction_plan(data, path).operations
    return tuple((operation.partition_path, operation.file_id) for operation in operations)
