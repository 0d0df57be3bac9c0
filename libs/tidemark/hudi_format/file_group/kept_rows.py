"""Rows of base and log files that are asked for by key again and again: decoded once, and kept.

A file never changes under its name. So what is kept of it is right for every slice that has the file, and
whether something was kept changes the time that an answer takes and nothing else. When a slice gets another
log file, only that file is read.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.hudi_format.file_group.base_file import RECORD_KEY
from tidemark.hudi_format.file_group.changes import KeyPositions, combined
from tidemark.hudi_format.file_group.log_blocks import LogContent, read_data_log
from tidemark.hudi_format.file_group.slice_reader import read_stored_rows
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.ordering import OrderingField
from tidemark.hudi_format.schema import cast_rows
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.table_config import MergeMode

_FileKey: TypeAlias = "tuple[str, str, pa.Schema, MergeMode, OrderingField | None]"
# A hash and a position for each row.
_INDEX_BYTES_A_ROW = 16


class KeyedRows:
    """The rows of a base file as stored. The first question for keys goes through all of them; from the
    second on, an index of the keys' hashes answers.
    """

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        self._asked = False
        self._positions: KeyPositions | None = None

    @property
    def nbytes(self) -> int:
        """The memory that rows and index take, in bytes."""
        return int(self._rows.nbytes) + _INDEX_BYTES_A_ROW * int(self._rows.num_rows)

    def of_keys(self, keys: pa.Array) -> pa.Table:
        """The rows of these keys, which are distinct, in their former order. A key has several rows after
        damage.
        """
        positions = self._index()
        if positions is None or not positions.are_distinct:
            return self._rows.filter(pc.is_in(self._rows.column(RECORD_KEY), value_set=keys))
        found = positions.of(keys)
        return self._rows.take(pa.array(np.sort(found[found >= 0])))

    def _index(self) -> KeyPositions | None:
        if self._positions is None and self._asked and not self._rows.column(RECORD_KEY).null_count:
            self._rows = self._rows.combine_chunks()
            self._positions = KeyPositions(combined(self._rows.column(RECORD_KEY)))
        self._asked = True
        return self._positions


class KeptFiles:
    """What is kept of files, up to a limit in bytes. Not thread-safe.

    The least recently used files make room, but not those that were used in this round or the one before:
    where rounds use more files than fit, those that are kept stay, instead of each making room for the next.
    """

    def __init__(self, bytes_max: int = 0) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._round = 0
        self._files: OrderedDict[_FileKey, _Kept] = OrderedDict()

    @property
    def nbytes(self) -> int:
        """The size of what is kept, in bytes; never above the limit."""
        return self._bytes

    def next_round(self, bytes_max: int) -> None:
        """Begins a round, with this limit."""
        self._bytes_max = bytes_max
        self._round += 1
        while self._bytes > bytes_max:
            self._drop_oldest()

    def get(self, key: _FileKey) -> KeyedRows | LogContent | None:
        """What is kept of a file; None: nothing."""
        kept = self._files.get(key)
        if kept is None:
            return None
        kept.used = self._round
        self._files.move_to_end(key)
        return kept.content

    def put(self, key: _FileKey, content: KeyedRows | LogContent) -> None:
        """Keeps a file that is not kept yet, if there is room."""
        size = content.nbytes
        if size > self._bytes_max:
            return
        while self._bytes + size > self._bytes_max:
            if next(iter(self._files.values())).used >= self._round - 1:
                return
            self._drop_oldest()
        self._files[key] = _Kept(content, size, self._round)
        self._bytes += size

    def _drop_oldest(self) -> None:
        _, dropped = self._files.popitem(last=False)
        self._bytes -= dropped.size


@dataclass(slots=True)
class _Kept:
    content: KeyedRows | LogContent
    size: int
    used: int


@dataclass(frozen=True, slots=True)
class SliceFiles:
    """Reads the files of slices for merges, of which it takes what is kept. `columns` includes at least the
    record key and the ordering field. Errors are those of `read_slice`.
    """

    storage: Storage
    columns: pa.Schema
    mode: MergeMode
    ordering: OrderingField | None
    kept: KeptFiles

    def base_rows(self, file_slice: FileSlice, keys: pa.Array) -> pa.Table | None:
        """The rows of these keys in the base file, cast to `columns`; None when the slice has only log
        files.
        """
        if file_slice.base_file is None:
            return None
        key = self._key(file_slice, file_slice.base_file)
        rows = self.kept.get(key)
        if not isinstance(rows, KeyedRows):
            rows = KeyedRows(read_stored_rows(self.storage, key[1], self.columns))
            self.kept.put(key, rows)
        return cast_rows(rows.of_keys(keys), self.columns)

    def log(self, file_slice: FileSlice, name: str) -> LogContent:
        """The content of one of its log files."""
        key = self._key(file_slice, name)
        content = self.kept.get(key)
        if not isinstance(content, LogContent):
            content = read_data_log(self.storage, key[1], self.columns, self.mode, self.ordering)
            self.kept.put(key, content)
        return content

    def _key(self, file_slice: FileSlice, name: str) -> _FileKey:
        path = join_path(file_slice.partition_path, name)
        return self.storage.base_uri, path, self.columns, self.mode, self.ordering
