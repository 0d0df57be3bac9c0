"""Reads stored ordering values from the file slices of the data table, as of its newest committed instant.

The owner of the key's lane has all counted entries after that instant in memory, so the greater of both is
the stored value. The view (timeline, slices by partition) is kept until `forget`. A replaced file group has
no rows here, as for Hudi's readers.
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
    """The properties of a table that reading ordering values and deletes from file slices needs.

    ``deletes_stay``: the table is MERGE_ON_READ and has an ordering field, so a delete stays in its slice
    until compaction. ``tombstone_ttl_ms``: how long a delete is remembered against older events.
    """

    schema: TableSchema
    mode: MergeMode
    field: OrderingField | None
    deletes_stay: bool
    tombstone_ttl_ms: int


@dataclass(frozen=True, slots=True)
class HeldValues:
    """Arrays with one element per key.

    ``known``: the slice has a row or a delete of the key. ``live``: it has a live row. ``ordering``: the
    value of that row or delete, `NO_ORDERING` where there is none.
    """

    known: BoolArray
    live: BoolArray
    ordering: Int64Array


class SliceValues:
    """Reads slices, with a cache. ``schema`` may be replaced when the table's schema evolves."""

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
        """Makes the next read load timeline and listings anew."""
        self._former, self._view = self._view or self._former, None
        self._slices = {}

    def changed_since(self, shown: ShownTimeline, promoted: Collection[str]) -> bool:
        """Whether the view's timeline has or lacks commits of other writers, compared with ``shown``."""
        return shown.differs_from(self._loaded().timeline, promoted)

    def shown_times(self) -> frozenset[str]:
        """Completion times on the active timeline, listed now."""
        return frozenset(completions(load_timeline(self._storage, DATA_ROOT)).values())

    def of(self, keys: pa.StringArray, locations: Int32Array) -> HeldValues:
        """Returns what the slice at each key's location has of the key; nothing for NO_LOCATION.

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
        """Whether the slice at each key's location has a row or delete of it with that value or a greater
        one.

        Raises TimelineConflictError when files keep vanishing.
        """
        held = self.of(keys, locations)
        return held.known & (held.ordering >= ordering)

    def slices_at(self, locations: Sequence[int]) -> list[FileSlice | None]:
        """The newest slice of each file group; None where nothing of it is committed.

        Raises FileMissingError when files were removed meanwhile: call `forget`, then ask again.
        """
        paths = [self._locations.partition_paths[location] for location in locations]
        self._list(set(paths) - self._slices.keys())
        return [
            self._slices[path].get(self._locations.file_ids[location])
            for path, location in zip(paths, locations, strict=True)
        ]

    def _read(self, keys: pa.StringArray, locations: Int32Array) -> HeldValues:
        count = len(keys)
        held = HeldValues(
            np.zeros(count, np.bool_), np.zeros(count, np.bool_), np.full(count, NO_ORDERING, np.int64)
        )
        # Positions by location, so that each slice is read once for all of its keys: locations [5, -1, 5]
        # have the order [1, 0, 2], the groups [-1, 5], and the positions [1] and [0, 2]. The group -1 is
        # left out.
        order = np.argsort(locations, kind="stable")
        groups, starts = np.unique(locations[order], return_index=True)
        of_groups = np.split(order, starts[1:])
        if len(groups) and groups[0] < 0:
            groups, of_groups = groups[1:], of_groups[1:]
        for file_slice, members in zip(self.slices_at(groups.tolist()), of_groups, strict=True):
            if file_slice is None:
                continue
            values = slice_ordering(
                self._storage,
                file_slice,
                self.schema,
                keys.take(pa.array(members)),
                self._mode,
                self._ordering,
                self._cache,
            )
            held.known[members] = values.found
            held.live[members] = values.found & ~values.is_deleted
            held.ordering[members] = values.ordering
        return held

    def _loaded(self) -> TableView:
        if self._view is None:
            self._view = TableView.load(self._storage, self._former)
        return self._view

    def _list(self, partition_paths: set[str]) -> None:
        """Lists the slices of these partitions.

        Raises FileMissingError when a clean, rollback or restore began meanwhile: the listing may lack some
        of its files, and not all.
        """
        if not partition_paths:
            return
        view = self._loaded()
        # Sorted, so that a simulated run lists in the same order whatever the process's hash seed is.
        names = {path: [file.name for file in self._storage.list(path)] for path in sorted(partition_paths)}
        if _removals(load_timeline(self._storage, DATA_ROOT)) != _removals(view.timeline):
            raise FileMissingError(f"{self._storage.base_uri}: files were removed while they were listed")
        for path in partition_paths:
            self._slices[path] = {}
        for file_slice in view.slices(names):
            self._slices[file_slice.partition_path][file_slice.file_id] = file_slice


def _removals(timeline: Timeline) -> frozenset[str]:
    return frozenset(instant.requested for instant in timeline.instants if instant.action in _REMOVING)
