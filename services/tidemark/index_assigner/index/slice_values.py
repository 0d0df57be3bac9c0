"""Stored ordering values from the file slices of the data table, as of its newest committed instant.

All counted entries after that instant are in the memory of whoever owns the key's lane, so the greater one
of the two is the stored value. The view (timeline, slices by partition) is kept until `forget`. A location
in a file group that was replaced holds nothing: readers do not look there either.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from tidemark.hudi_format.errors import FileMissingError, TimelineConflictError
from tidemark.hudi_format.file_group.slice_ordering import SliceOrderingCache, slice_ordering
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.ordering import NO_ORDERING, OrderingField
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_config import MergeMode
from tidemark.hudi_format.table_view import TableView
from tidemark.hudi_format.timeline import DATA_ROOT, Action, Timeline, load_timeline
from tidemark.hudi_format.timeline.identity import completions
from tidemark.index_assigner.domain.locations import Int32Array, Locations
from tidemark.index_assigner.domain.reduce import BoolArray, Int64Array
from tidemark.index_assigner.index.shown_timeline import ShownTimeline

_ATTEMPTS_MAX: Final = 4
_REMOVING: Final = frozenset({Action.CLEAN, Action.ROLLBACK, Action.RESTORE})


@dataclass(frozen=True, slots=True)
class OrderingParts:
    """What is needed to read stored ordering values and deletes from file slices.

    ``deletes_stay``: the table is MERGE_ON_READ and has an ordering field, so that a delete lies in its slice
    until compaction. ``tombstone_ttl_ms``: how long an older event is held against a delete.
    """

    schema: TableSchema
    mode: MergeMode
    field: OrderingField | None
    deletes_stay: bool
    tombstone_ttl_ms: int


@dataclass(frozen=True, slots=True)
class HeldValues:
    """Per key: whether its slice has a row or a delete of it (`known`), whether a row that is live (`live`),
    and the ordering value to reach.
    """

    known: BoolArray
    live: BoolArray
    ordering: Int64Array


class SliceValues:
    """See the module. `schema` may be replaced when the table's evolves."""

    def __init__(
        self,
        storage: Storage,
        locations: Locations,
        schema: TableSchema,
        mode: MergeMode,
        ordering: OrderingField | None,
        cache_bytes: int,
    ) -> None:
        self.schema = schema
        self._storage, self._locations = storage, locations
        self._mode, self._ordering = mode, ordering
        self._cache = SliceOrderingCache(cache_bytes)
        self._view: TableView | None = None
        self._former: TableView | None = None
        self._slices: dict[str, dict[str, FileSlice]] = {}

    def forget(self) -> None:
        """The next question loads timeline and listings anew."""
        self._former, self._view = self._view or self._former, None
        self._slices = {}

    def changed_since(self, shown: ShownTimeline, promoted: Collection[str]) -> bool:
        """Whether the view shows what other writers did since that one was listed."""
        return shown.differs_from(self._loaded().timeline, promoted)

    def shown_times(self) -> frozenset[str]:
        """Completion times on the active timeline, as it is now."""
        return frozenset(completions(load_timeline(self._storage, DATA_ROOT)).values())

    def of(self, keys: pa.StringArray, locations: Int32Array) -> HeldValues:
        """What the slice at each key's location holds of it. No location: nothing.

        Raises TimelineConflictError when files keep vanishing.
        """
        for _ in range(_ATTEMPTS_MAX):
            try:
                return self._read(keys, locations)
            except FileMissingError:
                self.forget()
        raise TimelineConflictError(
            f"{self._storage.base_uri}: files of the newest slices vanished in each of {_ATTEMPTS_MAX} reads"
        )

    def reach(self, keys: pa.StringArray, locations: Int32Array, ordering: Int64Array) -> BoolArray:
        """Whether the slice at each key's location holds a row or a delete of it with that value, or a
        greater one. Raises as `of`.
        """
        held = self.of(keys, locations)
        return held.known & (held.ordering >= ordering)

    def slices_at(self, locations: Sequence[int]) -> list[FileSlice | None]:
        """The newest slice of each file group; None where nothing of it is committed.

        Raises FileMissingError when files were removed meanwhile: `forget`, and ask again.
        """
        paths = [self._locations.partition_paths[each] for each in locations]
        self._list(set(paths) - self._slices.keys())
        return [
            self._slices[path].get(self._locations.file_ids[each])
            for path, each in zip(paths, locations, strict=True)
        ]

    def _read(self, keys: pa.StringArray, locations: Int32Array) -> HeldValues:
        count = len(keys)
        held = HeldValues(
            np.zeros(count, np.bool_), np.zeros(count, np.bool_), np.full(count, NO_ORDERING, np.int64)
        )
        order = np.argsort(locations, kind="stable")
        groups, starts = np.unique(locations[order], return_index=True)
        of_groups = np.split(order, starts[1:])
        if len(groups) and groups[0] < 0:
            groups, of_groups = groups[1:], of_groups[1:]
        for file_slice, members in zip(self.slices_at(groups.tolist()), of_groups, strict=True):
            if file_slice is None:
                continue
            found = slice_ordering(
                self._storage,
                file_slice,
                self.schema,
                keys.take(pa.array(members)),
                self._mode,
                self._ordering,
                self._cache,
            )
            held.known[members] = found.found
            held.live[members] = found.found & ~found.is_deleted
            held.ordering[members] = found.ordering
        return held

    def _loaded(self) -> TableView:
        if self._view is None:
            self._view = TableView.load(self._storage, self._former)
        return self._view

    def _list(self, partition_paths: set[str]) -> None:
        """Slices of these partitions. A clean or rollback that began meanwhile may have torn the listing."""
        if not partition_paths:
            return
        view = self._loaded()
        # In order, so that a simulated run does the same whatever the process's hashes are.
        names = {path: [each.name for each in self._storage.list(path)] for path in sorted(partition_paths)}
        if _removals(load_timeline(self._storage, DATA_ROOT)) != _removals(view.timeline):
            raise FileMissingError(f"{self._storage.base_uri}: files were removed while they were listed")
        for path in partition_paths:
            self._slices[path] = {}
        for each in view.slices(names):
            self._slices[each.partition_path][each.file_id] = each


def _removals(timeline: Timeline) -> frozenset[str]:
    return frozenset(each.requested for each in timeline.instants if each.action in _REMOVING)
