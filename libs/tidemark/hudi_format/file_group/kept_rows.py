"""Rows of base and log files that are asked for by key again and again: decoded once, and kept for all worker
processes of a machine (`kept_tables`).

A file never changes under its name. So what is kept of it is right for every slice that has the file, and
whether something was kept changes the time that an answer takes and nothing else. When a slice gets another
log file, only that file is read, or not even that: who writes a log file keeps what is in it.

Of a base file its rows are kept in their order, and where they are by the hash of their key. Looking keys up
then takes time for these keys and not for the file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.hudi_format.file_group.base_file import RECORD_KEY
from tidemark.hudi_format.file_group.changes import Changes, combined
from tidemark.hudi_format.file_group.kept_tables import KeptTables
from tidemark.hudi_format.file_group.log_blocks import LogContent, read_data_log
from tidemark.hudi_format.file_group.slice_reader import read_stored_rows
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.key_digest import key_hashes
from tidemark.hudi_format.ordering import OrderingField
from tidemark.hudi_format.schema import cast_rows
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.table_config import MergeMode

_INDEX_BYTES_A_ROW: Final = 8
# All keys are copied and hashed at once, which takes about three times their size in memory.
_KEYS_BYTES_MAX: Final = 256 << 20
_FOLDS: Final = b"folds"
_PLACES = "places"
_KEY, _ORDERING, _IS_DELETE, _UNCONDITIONAL, _ROW = "key", "ordering", "is_delete", "unconditional", "row"


@dataclass(frozen=True, slots=True)
class SliceFiles:
    """Reads the files of slices for merges, of which it takes what is kept. `columns` includes at least the
    record key and the ordering field. Errors are those of `read_slice`.
    """

    storage: Storage
    columns: pa.Schema
    mode: MergeMode
    ordering: OrderingField | None
    kept: KeptTables
    _read_as: bytes = field(init=False)

    def __post_init__(self) -> None:
        ordering = None if self.ordering is None else [self.ordering.name, str(self.ordering.arrow)]
        read_as = json.dumps([self.storage.base_uri, self.mode.value, ordering]).encode()
        object.__setattr__(self, "_read_as", read_as + self.columns.serialize().to_pybytes())

    def base_rows(self, file_slice: FileSlice, keys: pa.Array) -> pa.Table | None:
        """The rows of these distinct keys in the base file, in their order, cast to `columns`; None when the
        slice has only log files. A key has several rows after damage.
        """
        if file_slice.base_file is None:
            return None
        path = join_path(file_slice.partition_path, file_slice.base_file)
        kept = self.kept.get(self._name(path))
        if kept is not None:
            index, stored = kept
            rows = rows_at(index, stored, keys)
        else:
            stored = read_stored_rows(self.storage, path, self.columns)
            self._keep_rows(path, stored)
            rows = _rows_of(stored, keys)
        return cast_rows(rows, self.columns)

    def log(self, file_slice: FileSlice, name: str) -> LogContent:
        """The content of one of its log files."""
        path = join_path(file_slice.partition_path, name)
        kept = self.kept.get(self._name(path))
        if kept is not None:
            return _content(kept)
        content = read_data_log(self.storage, path, self.columns, self.mode, self.ordering)
        self.keep_log(path, content)
        return content

    def keep_log(self, path: str, content: LogContent) -> None:
        """Keeps the content of a log file. Who writes the file knows it: rows and deletes of distinct keys,
        so their order does not matter.
        """
        self.kept.put(self._name(path), content.nbytes, lambda: _tables(content))

    def _keep_rows(self, path: str, rows: pa.Table) -> None:
        keys = rows.column(RECORD_KEY)
        if keys.null_count or keys.nbytes > _KEYS_BYTES_MAX:
            return
        nbytes = int(rows.nbytes) + _INDEX_BYTES_A_ROW * int(rows.num_rows)
        self.kept.put(self._name(path), nbytes, lambda: [*indexed(rows)])

    def _name(self, path: str) -> str:
        return hashlib.blake2b(self._read_as + b"\0" + path.encode(), digest_size=16).hexdigest()


def _rows_of(rows: pa.Table, keys: pa.Array) -> pa.Table:
    return rows.filter(pc.is_in(rows.column(RECORD_KEY), value_set=keys))


def indexed(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Where rows are by the hash of their key, and the rows.

    One sorted column has both, because numbers are sorted in half the time of their order: the lowest bits of
    a hash make room for a position. Example with 5 rows, so 3 bits: a key at position 2 with the hash
    0xABCD has 0xABCA, as 0xABC8 + 2.
    """
    rows = rows.combine_chunks()
    at = _position_mask(rows)
    places = (key_hashes(rows.column(RECORD_KEY)) & ~at) | np.arange(rows.num_rows, dtype=np.uint64)
    places.sort()
    return pa.table([pa.array(places)], names=[_PLACES]), rows


def rows_at(index: pa.Table, rows: pa.Table, keys: pa.Array) -> pa.Table:
    """The rows of these keys, in their order, by the index of `indexed`.

    Example: keys whose hashes begin as those of 2 and 0 rows have the first places 1 and 3 and the counts 2
    and 0: places 1 and 2 are looked at. Rows of other keys whose hashes begin alike are left out at the end.
    """
    places, at = combined(index.column(_PLACES)).to_numpy(), _position_mask(rows)
    wanted = np.unique(key_hashes(keys) | at)
    first = np.searchsorted(places, wanted & ~at)
    counts = np.searchsorted(places, wanted, "right") - first
    numbers = np.arange(counts.sum()) + np.repeat(first - np.cumsum(counts) + counts, counts)
    positions = np.sort(places[numbers] & at).astype(np.int64)
    return _rows_of(rows.take(pa.array(positions)), keys)


def _position_mask(rows: pa.Table) -> np.uint64:
    """The bits that the position of any of these rows takes."""
    return np.uint64((1 << rows.num_rows.bit_length()) - 1)


def _tables(content: LogContent) -> Sequence[pa.Table]:
    """The content of a log file as tables; the third one only if it has rows with some of the columns."""
    changes = content.changes
    columns = {
        _KEY: changes.keys,
        _ORDERING: changes.ordering,
        _IS_DELETE: changes.is_delete.view(np.uint8),
        _UNCONDITIONAL: changes.unconditional.view(np.uint8),
        _ROW: changes.row,
    }
    folds = {_FOLDS: json.dumps(sorted(content.folds))}
    has = [] if content.has is None else [_matrix(content)]
    return [pa.table(columns).replace_schema_metadata(folds), content.rows, *has]


def _matrix(content: LogContent) -> pa.Table:
    assert content.has is not None
    names = content.rows.column_names
    columns = [np.ascontiguousarray(content.has[:, number]).view(np.uint8) for number in range(len(names))]
    return pa.table([pa.array(column) for column in columns], names=names)


def _content(tables: Sequence[pa.Table]) -> LogContent:
    """The inverse of `_tables`."""
    made, rows, *has = tables
    numbers = {name: combined(made.column(name)).to_numpy() for name in made.column_names if name != _KEY}
    changes = Changes(
        combined(made.column(_KEY)),
        numbers[_ORDERING],
        numbers[_IS_DELETE].view(np.bool_),
        numbers[_UNCONDITIONAL].view(np.bool_),
        numbers[_ROW],
    )
    folds = frozenset(json.loads((made.schema.metadata or {})[_FOLDS]))
    matrix = None
    if has:
        columns = [combined(column).to_numpy().view(np.bool_) for column in has[0].columns]
        matrix = np.stack(columns, axis=1)
    return LogContent(rows, changes, folds, matrix)
