"""Which keys the slices of file groups still hold deletes of: a new row may not go below one (MERGE_ON_READ
with an ordering field, ARCHITECTURE.md, "Where a new row may go").

Only deletes in log files matter. A base row without one is live, hence in the record index, and no new row.
A delete without an ordering value counts as above everything: below it lies, perhaps, a base row that is
newer than the new row and would come back. So base files are never read here, nor data blocks as a rule.

The same deletes tell what other writers' deletes were worth (`foreign_deletes`).

What a slice was found to hold is kept for half of the tombstones' life. Deletes that came since are younger
than that, and tombstones (or the stored values of keys that are there) tell of them; those of other writers
end in a rewind, which forgets all this. Then only the log files that were appended since are read, so a short
life of tombstones costs a look at the slice and no file twice. Example: with `tombstone_ttl: 2s` a slice of
500 log files is looked at every second, and the one or two that came in that second are read. A slice whose
older files are others than before (it was compacted, or a file came between them) is read as a whole.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
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
# Beside the columns themselves.
_GROUP_OVERHEAD: Final = 400
_ABOVE_ALL: Final = int(np.iinfo(np.int64).max)


@dataclass(frozen=True, slots=True)
class DeletedKeys:
    """Distinct keys that a slice's log files delete. ``floor``: the ordering value that a new row of the key
    must reach, `_ABOVE_ALL` where none does. ``stands``: that of the delete which stands while the key is
    not live, `NO_ORDERING` where it has none. ``logs``: how many log files were read, ``digest``: which.
    """

    keys: pa.StringArray
    floor: Int64Array
    stands: Int64Array
    read_ms: int
    logs: int = 0
    digest: bytes = b""

    @classmethod
    def of(cls, parts: Sequence[Deletes], read_ms: int) -> DeletedKeys:
        """From the deletes of all log files of a slice, in their order."""
        changes = [Changes.of_deletes(each) for each in parts if len(each)]
        every = Changes.concat(changes, [0] * len(changes))
        last = every.reduce(MergeMode.EVENT_TIME_ORDERING)
        floor = np.full(len(last), NO_ORDERING)
        values = np.where(every.unconditional, _ABOVE_ALL, every.ordering)
        np.maximum.at(floor, positions_in(every.keys, last.keys), values)
        return cls(last.keys, floor, np.where(last.unconditional, NO_ORDERING, last.ordering), read_ms)

    def with_later(self, parts: Sequence[Deletes], read_ms: int) -> DeletedKeys:
        """As `of` would answer for the log files of this one and, behind them, those of ``parts``."""
        if not any(map(len, parts)):
            return replace(self, read_ms=read_ms)
        # One delete a key stands for all before: reducing goes from left to right.
        merged = DeletedKeys.of([Deletes.with_ordering(self.keys, self.stands), *parts], read_ms)
        at = positions_in(self.keys, merged.keys)
        merged.floor[at] = np.maximum(merged.floor[at], self.floor)
        return merged

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes."""
        return int(self.keys.nbytes) + self.floor.nbytes + self.stands.nbytes + _GROUP_OVERHEAD

    def hide(self, keys: pa.StringArray, ordering: Int64Array) -> BoolArray:
        """Which rows, of distinct keys, lie below a delete of their key."""
        hidden = np.zeros(len(keys), np.bool_)
        at = positions_in(self.keys, keys)
        known = np.flatnonzero(at >= 0)
        hidden[at[known]] = self.floor[known] > ordering[at[known]]
        return hidden


class SliceDeletes:
    """See the module. For one thread; holds at most `bytes_max`, the least recently asked given up first."""

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
        """Bytes held."""
        return self._bytes

    def forget(self) -> None:
        """Another writer may have deleted since: all slices are read anew."""
        self._groups.clear()
        self._bytes = 0

    def is_masked_by_delete(
        self, keys: pa.StringArray, locations: Int32Array, ordering: Int64Array
    ) -> BoolArray:
        """As `KeyIndex.hides`. Raises TimelineConflictError when files keep vanishing."""
        hidden = np.zeros(len(keys), np.bool_)
        if not self._parts.deletes_stay:
            return hidden
        for location, deleted in self._of(np.unique(locations).tolist()).items():
            if len(deleted.keys):
                members = np.flatnonzero(locations == location)
                hidden[members] = deleted.hide(keys.take(pa.array(members)), ordering[members])
        self.kept_apart += int(hidden.sum())
        return hidden

    def values(self, keys: pa.StringArray, locations: Int32Array) -> Int64Array:
        """Of keys that are not live the ordering value of the delete that stands in the file group where each
        lived; NO_ORDERING where it has none, or there is none. Raises as `hides`.
        """
        values = np.full(len(keys), NO_ORDERING)
        for location, deleted in self._of(np.unique(locations).tolist()).items():
            members = np.flatnonzero(locations == location)
            at = positions_in(deleted.keys, keys.take(pa.array(members)))
            known = np.flatnonzero(at >= 0)
            values[members[at[known]]] = deleted.stands[known]
        return values

    def _of(self, locations: list[int]) -> dict[int, DeletedKeys]:
        now_ms = self._clock.now_ms()
        oldest_ms = now_ms - self._parts.tombstone_ttl_ms // 2
        found: dict[int, DeletedKeys] = {}
        for location in locations:
            held = self._groups.get(location)
            if held is not None and held.read_ms >= oldest_ms:
                self._groups.move_to_end(location)
                found[location] = held
        due = [each for each in locations if each not in found]
        for location, deleted in self._read(due, now_ms).items():
            found[location] = deleted
            self._drop(location)
            self._groups[location] = deleted
            self._bytes += deleted.nbytes
        while self._bytes > self._bytes_max:
            self._drop(next(iter(self._groups)))
        return found

    def _drop(self, location: int) -> None:
        dropped = self._groups.pop(location, None)
        self._bytes -= 0 if dropped is None else dropped.nbytes

    def _read(self, locations: list[int], now_ms: int) -> dict[int, DeletedKeys]:
        if not locations:
            return {}
        for _ in range(_ATTEMPTS_MAX):
            try:
                slices = self._slices.slices_at(locations)
                return {
                    location: self._deletes(file_slice, self._groups.get(location), now_ms)
                    for location, file_slice in zip(locations, slices, strict=True)
                }
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
        parts = [] if file_slice is None else [self._deletes_of(file_slice, each) for each in names[begun:]]
        return replace(held.with_later(parts, now_ms), logs=len(names), digest=_digest(names))

    def _deletes_of(self, file_slice: FileSlice, name: str) -> Deletes:
        parts = self._parts
        columns = merge_columns(pa.schema([]), self._slices.schema, parts.field)
        self.files_read += 1
        path = join_path(file_slice.partition_path, name)
        return read_log_deletes(self._storage, path, columns, parts.mode, parts.field)


def _digest(names: Sequence[str]) -> bytes:
    """Which log files, in their order: a slice may have thousands, and their names would have to be held."""
    return hashlib.sha256("\n".join(names).encode()).digest()
