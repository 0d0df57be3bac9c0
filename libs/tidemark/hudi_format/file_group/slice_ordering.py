"""Stored ordering values of keys: what an event of a key must not be below, to be the newer one in its
file slice.

Only record key, ordering field and `_hoodie_is_deleted` are read. Files never change under their name, so
what was decoded from one is kept by path, in a cache with a limit in bytes; a slice that grew by a log
file reads that file only.
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
    """Per key: whether the slice knows it (row or delete), the ordering value to reach, whether it is
    deleted.

    `ordering` is the higher one of the base row's and of what the logs come to, a delete's included;
    `NO_ORDERING` where nothing known has a value (unknown keys, unconditional deletes of keys without a
    base row). All 0 by commit time.
    """

    found: BoolArray
    ordering: Int64Array
    is_deleted: BoolArray


@dataclass(frozen=True, slots=True)
class FileChanges:
    """What a file says of keys; `folds` as in `LogContent`."""

    changes: Changes
    folds: frozenset[str] = frozenset()


class SliceOrderingCache:
    """Decoded keys and ordering values of files, least recently used ones dropped at `bytes_max`. For one
    thread.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._files: OrderedDict[tuple[str, str], FileChanges] = OrderedDict()

    @property
    def nbytes(self) -> int:
        """Bytes held; never above `bytes_max`."""
        return self._bytes

    def get(self, key: tuple[str, str]) -> FileChanges | None:
        """What was decoded from the file (path, ordering field); None when it is not held."""
        held = self._files.get(key)
        if held is not None:
            self._files.move_to_end(key)
        return held

    def put(self, key: tuple[str, str], held: FileChanges) -> None:
        """Keeps a file's content, unless it alone is above the limit."""
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
    """What the slice holds of `keys` (strings, in any order, repeats allowed). Errors as `read_slice`."""
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
    np.maximum.at(base_ordering, at, base.ordering)
    at = positions_in(log.keys, distinct)
    in_log[at] = True
    log_ordering[at] = np.where(log.unconditional, NO_ORDERING, log.ordering)
    removed[at] = log.is_delete & (log.unconditional | (log.ordering >= base_ordering[at]))
    highest = np.maximum(base_ordering, log_ordering)
    if mode is MergeMode.COMMIT_TIME_ORDERING:
        highest = np.zeros(count, np.int64)
    row = positions_in(keys, distinct)
    return SliceOrdering((in_base | in_log)[row], highest[row], removed[row])


@dataclass(frozen=True, slots=True)
class _SliceFiles:
    """The files of a slice as changes, from the cache or decoded."""

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
    """The changes of these keys only, in their order."""
    wanted = np.flatnonzero(positions_in(combined(changes.keys), keys) >= 0)
    return changes if len(wanted) == len(changes) else changes.take(wanted)
