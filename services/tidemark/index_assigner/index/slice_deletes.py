"""Finds new rows that a delete in their file group would hide (MERGE_ON_READ with an ordering field,
ARCHITECTURE.md, "Where a new row may go").

Example: the slice of group G has a delete of key k with value 90 in a log file. An insert of k with value
80 must not go to G, because Hudi's readers apply that delete to it.

Only deletes in log files matter: a key that has a base row and no delete is live, so it is in the record
index and its row is no new row. A delete without an ordering value counts as greater than every value,
because a base row with a greater value than the new row may be below it, and would become visible again. So
this module never reads base files, and data blocks only as an exception. The same deletes give the ordering
values of other writers' deletes (`foreign_deletes`).

The deletes of a slice are cached for half of `tombstone_ttl`. Newer deletes do not get lost meanwhile:
tombstones (or the stored values of present keys) know of them, and another writer's delete leads to a
rewind, which forgets the cache. After that time only the log files that were appended since are read.
Example: with `tombstone_ttl: 2s` a slice of 500 log files is listed every second, and the one or two new
files are read. A slice whose earlier files changed (it was compacted, or a file was added between them) is
read as a whole.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from tidemark.hudi_format.errors import FileMissingError, TimelineConflictError
from tidemark.hudi_format.file_group.changes import Changes, Deletes, positions_in
from tidemark.hudi_format.file_group.log_blocks import read_log_deletes
from tidemark.hudi_format.file_group.slice_reader import merge_columns
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.ordering import NO_ORDERING
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.table_config import MergeMode
from tidemark.index_assigner.domain.locations import Int32Array
from tidemark.index_assigner.domain.reduce import BoolArray, Int64Array
from tidemark.index_assigner.index.slice_values import OrderingParts, SliceValues
from tidemark.stream_runtime.clock import Clock

_ATTEMPTS_MAX: Final = 4
# Bytes per file group beside its columns.
_GROUP_OVERHEAD: Final = 400
_ABOVE_ALL: Final = int(np.iinfo(np.int64).max)


@dataclass(frozen=True, slots=True)
class DeletedKeys:
    """The distinct keys that a slice's log files delete.

    ``floor``: per key the ordering value that a new row must reach to be visible, `_ABOVE_ALL` where none
    is great enough. ``stands``: the value of the delete that wins while the key is not live, `NO_ORDERING`
    where it has none. ``logs``, ``digest``: number and names of the log files that were read.
    """

    keys: pa.StringArray
    floor: Int64Array
    stands: Int64Array
    read_ms: int
    logs: int = 0
    digest: bytes = b""

    @classmethod
    def of(cls, parts: Sequence[Deletes], read_ms: int) -> DeletedKeys:
        """Reduces the deletes of all log files of a slice, given in the files' order, to one per key."""
        changes = [Changes.of_deletes(part) for part in parts if len(part)]
        every = Changes.concat(changes, [0] * len(changes))
        last = every.reduce(MergeMode.EVENT_TIME_ORDERING)
        floor = np.full(len(last), NO_ORDERING)
        # The greatest value per key. `maximum.at` also handles repeated positions: positions [0, 1, 0] with
        # the values 5, 7, 9 give the floors [9, 7].
        values = np.where(every.unconditional, _ABOVE_ALL, every.ordering)
        np.maximum.at(floor, positions_in(every.keys, last.keys), values)
        return cls(last.keys, floor, np.where(last.unconditional, NO_ORDERING, last.ordering), read_ms)

    def with_later(self, parts: Sequence[Deletes], read_ms: int) -> DeletedKeys:
        """Adds the deletes of later log files, with the same result as `of` for all files together."""
        if not any(map(len, parts)):
            return replace(self, read_ms=read_ms)
        # Reducing goes from left to right, so the one winning delete per key replaces all earlier ones.
        merged = DeletedKeys.of([Deletes.with_ordering(self.keys, self.stands), *parts], read_ms)
        at = positions_in(self.keys, merged.keys)
        merged.floor[at] = np.maximum(merged.floor[at], self.floor)
        return merged

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes."""
        return int(self.keys.nbytes) + self.floor.nbytes + self.stands.nbytes + _GROUP_OVERHEAD

    def hide(self, keys: pa.StringArray, ordering: Int64Array) -> BoolArray:
        """Whether each row, of distinct keys, is below a delete of its key."""
        hidden = np.zeros(len(keys), np.bool_)
        at = positions_in(self.keys, keys)
        known = np.flatnonzero(at >= 0)
        hidden[at[known]] = self.floor[known] > ordering[at[known]]
        return hidden


class SliceDeletes:
    """The deleted keys by file group, for one thread. Holds at most ``bytes_max``, and evicts the group
    that was used least recently first.
    """

    def __init__(
        self, storage: Storage, slices: SliceValues, parts: OrderingParts, bytes_max: int, clock: Clock
    ) -> None:
        self._storage, self._slices, self._parts, self._clock = storage, slices, parts, clock
        self._bytes_max = bytes_max
        self._bytes = 0
        self._groups: OrderedDict[int, DeletedKeys] = OrderedDict()
        self.files_read = 0
        self.kept_apart = 0

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes."""
        return self._bytes

    def forget(self) -> None:
        """Forgets all slices, because another writer may have added deletes."""
        self._groups.clear()
        self._bytes = 0

    def is_masked_by_delete(
        self, keys: pa.StringArray, locations: Int32Array, ordering: Int64Array
    ) -> BoolArray:
        """Whether a delete in its file group would hide each row, given its location and ordering value.

        Raises TimelineConflictError when files keep vanishing.
        """
        hidden = np.zeros(len(keys), np.bool_)
        if not self._parts.deletes_stay:
            return hidden
        for location, deleted in self._of(np.unique(locations).tolist()):
            if len(deleted.keys):
                members = np.flatnonzero(locations == location)
                hidden[members] = deleted.hide(keys.take(pa.array(members)), ordering[members])
        self.kept_apart += int(hidden.sum())
        return hidden

    def values(self, keys: pa.StringArray, locations: Int32Array) -> Int64Array:
        """The ordering value of the winning delete of each key in the file group at its former location.

        For keys that are not live. NO_ORDERING: the delete has no value, or there is no delete. Raises
        TimelineConflictError when files keep vanishing.
        """
        values = np.full(len(keys), NO_ORDERING)
        for location, deleted in self._of(np.unique(locations).tolist()):
            members = np.flatnonzero(locations == location)
            at = positions_in(deleted.keys, keys.take(pa.array(members)))
            known = np.flatnonzero(at >= 0)
            values[members[at[known]]] = deleted.stands[known]
        return values

    def _of(self, locations: list[int]) -> Iterator[tuple[int, DeletedKeys]]:
        """The deleted keys of each file group. One at a time is in memory beside those that are kept."""
        now_ms = self._clock.now_ms()
        oldest_ms = now_ms - self._parts.tombstone_ttl_ms // 2
        due = {location for location in locations if not self._is_current(location, oldest_ms)}
        with suppress(FileMissingError):
            # Lists their partitions together; where files go meanwhile, each is listed when it is read.
            self._slices.slices_at(sorted(due))
        for location in locations:
            held = self._groups.get(location)
            if held is None or location in due:
                held = self._read(location, now_ms)
                self._drop(location)
                self._groups[location] = held
                self._bytes += held.nbytes
            self._groups.move_to_end(location)
            while self._bytes > self._bytes_max:
                self._drop(next(iter(self._groups)))
            yield location, held

    def _is_current(self, location: int, oldest_ms: int) -> bool:
        held = self._groups.get(location)
        return held is not None and held.read_ms >= oldest_ms

    def _drop(self, location: int) -> None:
        dropped = self._groups.pop(location, None)
        self._bytes -= 0 if dropped is None else dropped.nbytes

    def _read(self, location: int, now_ms: int) -> DeletedKeys:
        for _ in range(_ATTEMPTS_MAX):
            try:
                [file_slice] = self._slices.slices_at([location])
                return self._deletes(file_slice, self._groups.get(location), now_ms)
            except FileMissingError:
                self._slices.forget()
        raise TimelineConflictError(
            f"{self._storage.base_uri}: log files of a newest slice vanished in each of {_ATTEMPTS_MAX} reads"
        )

    def _deletes(self, file_slice: FileSlice | None, held: DeletedKeys | None, now_ms: int) -> DeletedKeys:
        names = () if file_slice is None else file_slice.log_files
        begun = 0 if held is None else held.logs
        if held is None or held.digest != _digest(names[:begun]):
            held, begun = DeletedKeys.of([], now_ms), 0
        parts = [] if file_slice is None else [self._deletes_of(file_slice, name) for name in names[begun:]]
        return replace(held.with_later(parts, now_ms), logs=len(names), digest=_digest(names))

    def _deletes_of(self, file_slice: FileSlice, name: str) -> Deletes:
        parts = self._parts
        columns = merge_columns(pa.schema([]), self._slices.schema, parts.field)
        self.files_read += 1
        path = join_path(file_slice.partition_path, name)
        return read_log_deletes(self._storage, path, columns, parts.mode, parts.field)


def _digest(names: Sequence[str]) -> bytes:
    """A hash of the log files' names, in order. A slice may have thousands of files: their names would cost
    memory.
    """
    return hashlib.sha256("\n".join(names).encode()).digest()
