"""Reads stored ordering values: the value that an event of a key must reach to be newer than its file slice.

Only record key, ordering field and `_hoodie_is_deleted` are read. A file never changes under its name, so the
decoded columns are cached by path, up to a limit in bytes. When a slice gets another log file, only that file
is read.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidemark.hudi_format.file_group.changes import Changes, combined, positions_in
from tidemark.hudi_format.file_group.log_blocks import read_data_log
from tidemark.hudi_format.file_group.merge import changes_of_rows
from tidemark.hudi_format.file_group.slice_reader import merge_columns, merge_files, read_base_rows
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.ordering import NO_ORDERING, BoolArray, Int64Array, OrderingField
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.table_config import MergeMode


@dataclass(frozen=True, slots=True)
class SliceOrdering:
    """Per key: whether the slice has it (as row or delete), the ordering value to reach, whether it is
    deleted.

    `ordering` is the higher of the base row's value and the value of the merged logs, deletes included. It is
    `NO_ORDERING` where neither has a value (unknown keys, unconditional deletes of keys without a base row),
    and 0 for all keys of a table that merges by commit time. All three arrays have one item per key.
    """

    found: BoolArray
    ordering: Int64Array
    is_deleted: BoolArray


@dataclass(frozen=True, slots=True)
class FileChanges:
    """The changes in one file; `folds` as in `LogContent`."""

    changes: Changes
    folds: frozenset[str] = frozenset()


class SliceOrderingCache:
    """Caches decoded keys and ordering values of files; drops the least recently used ones at `bytes_max`
    bytes.

    Not thread-safe.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._files: OrderedDict[tuple[str, str], FileChanges] = OrderedDict()

    @property
    def nbytes(self) -> int:
        """The size of the cached columns in bytes; never above `bytes_max`."""
        return self._bytes

    def get(self, key: tuple[str, str]) -> FileChanges | None:
        """The cached columns of a file (path, ordering field); None when they are not cached."""
        held = self._files.get(key)
        if held is not None:
            self._files.move_to_end(key)
        return held

    def put(self, key: tuple[str, str], held: FileChanges) -> None:
        """Caches a file's columns, unless they alone exceed the limit."""
        if held.changes.nbytes > self._bytes_max or key in self._files:
            return
        self._files[key] = held
        self._bytes += held.changes.nbytes
        while self._bytes > self._bytes_max:
            _, dropped = self._files.popitem(last=False)
            self._bytes -= dropped.changes.nbytes


def slice_ordering(
    storage: Storage,
    file_slice: FileSlice,
    schema: TableSchema,
    keys: pa.Array,
    mode: MergeMode,
    ordering: OrderingField | None,
    cache: SliceOrderingCache | None = None,
) -> SliceOrdering:
    """The stored ordering values of `keys` (strings in any order, with repeats allowed).

    Raises as `read_slice`.
    """
    files = _SliceFiles(storage, file_slice, schema, mode, ordering, cache or SliceOrderingCache(0))
    distinct = keys.unique()
    base = _of_keys(files.base(), distinct)
    log = _of_keys(files.logs(), distinct).reduce(mode)
    count = len(distinct)
    in_base, in_log, removed = (np.zeros(count, np.bool_) for _ in range(3))
    base_ordering = np.full(count, NO_ORDERING, np.int64)
    log_ordering = np.full(count, NO_ORDERING, np.int64)
    at = positions_in(base.keys, distinct)
    in_base[at] = True
    # Should a base file hold a key twice, `maximum.at` keeps the greater value, where plain assignment to the
    # repeated position would keep the last one: positions 0, 0 with values 7, 5 give 7.
    np.maximum.at(base_ordering, at, base.ordering)
    at = positions_in(log.keys, distinct)
    in_log[at] = True
    log_ordering[at] = np.where(log.unconditional, NO_ORDERING, log.ordering)
    removed[at] = log.is_delete & (log.unconditional | (log.ordering >= base_ordering[at]))
    highest = np.maximum(base_ordering, log_ordering)
    if mode is MergeMode.COMMIT_TIME_ORDERING:
        highest = np.zeros(count, np.int64)
    # The results are per distinct key: keys a, b, a take the results 0, 1, 0.
    row = positions_in(keys, distinct)
    return SliceOrdering((in_base | in_log)[row], highest[row], removed[row])


@dataclass(frozen=True, slots=True)
class _SliceFiles:
    """Reads the files of one slice as changes, from the cache or from storage."""

    storage: Storage
    file_slice: FileSlice
    schema: TableSchema
    mode: MergeMode
    ordering: OrderingField | None
    cache: SliceOrderingCache

    def base(self) -> Changes:
        if self.file_slice.base_file is None:
            return Changes.concat([], [])
        key = self._key(self.file_slice.base_file)
        held = self.cache.get(key)
        if held is None:
            rows = read_base_rows(self.storage, self.file_slice, self._columns())
            assert rows is not None
            held = FileChanges(changes_of_rows(rows, self.mode, self.ordering))
            self.cache.put(key, held)
        return held.changes

    def logs(self) -> Changes:
        files = {name: self._log(name) for name in self.file_slice.log_files}
        order = merge_files({name: file.folds for name, file in files.items()})
        return Changes.concat([files[name].changes for name in order], [0] * len(order))

    def _log(self, name: str) -> FileChanges:
        key = self._key(name)
        held = self.cache.get(key)
        if held is None:
            content = read_data_log(self.storage, key[0], self._columns(), self.mode, self.ordering)
            held = FileChanges(content.changes, content.folds)
            self.cache.put(key, held)
        return held

    def _key(self, name: str) -> tuple[str, str]:
        field = self.ordering.name if self.ordering is not None else ""
        return join_path(self.file_slice.partition_path, name), field

    def _columns(self) -> pa.Schema:
        return merge_columns(pa.schema([]), self.schema, self.ordering)


def _of_keys(changes: Changes, keys: pa.Array) -> Changes:
    """The changes of these keys only, in their former order."""
    wanted = np.flatnonzero(positions_in(combined(changes.keys), keys) >= 0)
    return changes if len(wanted) == len(changes) else changes.take(wanted)
