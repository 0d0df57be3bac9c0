"""Rows of base and log files that are asked for by key again and again: decoded once, and kept for all worker
processes of a machine (`kept_tables`).

A file never changes under its name. So what is kept of it is right for every slice that has the file, and
whether something was kept changes the time that an answer takes and nothing else. When a slice gets another
log file, only that file is read, or not even that: who writes a log file keeps what is in it.

Of base files and large log files there is kept, too, where rows and changes are by the hash of their key.
Looking keys up then takes time for these keys and not for the file.
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
from tidemark.hudi_format.file_group.slice_reader import merge_files, read_stored_rows
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.key_digest import key_hashes
from tidemark.hudi_format.ordering import Int64Array, OrderingField
from tidemark.hudi_format.schema import cast_rows
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.table_config import MergeMode

_INDEX_BYTES_A_ROW: Final = 8
_LARGE_LOG: Final = 4_096
_TOGETHER: Final = 16
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

    def logs(self, file_slice: FileSlice, keys: pa.Array) -> LogContent:
        """The rows and changes of these keys in the slice's log files, in the order of merging.

        All small files are searched at once, since each search takes its time however little there is to
        search. Of many files the first ones are kept as one, as long as they are merged in their order.
        """
        names = file_slice.log_files
        first = len(names) - len(names) % _TOGETHER
        contents = {name: self.log(file_slice, name, keys) for name in names[first:]}
        parts = list(contents.values())
        together = None
        if first and not any(part.folds for part in parts):
            together = self._together(file_slice, names[:first], keys)
        if together is not None:
            parts = [together, *parts]
        else:
            contents = {name: self.log(file_slice, name, keys) for name in names[:first]} | contents
            order = merge_files({name: content.folds for name, content in contents.items()})
            parts = [contents[name] for name in order]
        return LogContent.concat(parts, self.columns).of_keys(keys)

    def whole_log(self, file_slice: FileSlice, name: str) -> LogContent:
        """The content of one of its log files."""
        return self._log(join_path(file_slice.partition_path, name))[1]

    def log(self, file_slice: FileSlice, name: str, keys: pa.Array) -> LogContent:
        """The content of one of its log files; of a large one only what is about these keys."""
        return _about(*self._log(join_path(file_slice.partition_path, name)), keys)

    def _log(self, path: str) -> tuple[pa.Table | None, LogContent]:
        """Where the keys of a log file are, if that is known, and its whole content."""
        kept = self.kept.get(self._name(path))
        if kept is not None:
            places, *tables = kept
            return places, _content(tables)
        content = read_data_log(self.storage, path, self.columns, self.mode, self.ordering)
        self.keep_log(path, content)
        return None, content

    def _together(self, file_slice: FileSlice, names: Sequence[str], keys: pa.Array) -> LogContent | None:
        """What is about these keys in files that follow each other; None if one stands for others. They are
        kept under the names of all of them.
        """
        paths = [join_path(file_slice.partition_path, name) for name in names]
        kept = self.kept.get(self._name("\0".join(paths)))
        if kept is not None:
            places, *tables = kept
            return _about(places, _content(tables), keys)
        contents = [self._log(path)[1] for path in paths]
        if any(content.folds for content in contents):
            return None
        content = LogContent.concat(contents, self.columns)
        self.keep_log("\0".join(paths), content)
        return _about(None, content, keys)

    def keep_log(self, path: str, content: LogContent) -> None:
        """Keeps the content of a log file. Who writes the file knows it: rows and deletes of distinct keys,
        so their order does not matter.
        """
        keys = content.changes.keys
        has_places = len(keys) >= _LARGE_LOG and _can_be_sorted(keys)
        nbytes = content.nbytes + (_INDEX_BYTES_A_ROW * len(keys) if has_places else 0)
        self.kept.put(
            self._name(path), nbytes, lambda: [_places(keys if has_places else keys[:0]), *_tables(content)]
        )

    def _keep_rows(self, path: str, rows: pa.Table) -> None:
        if not _can_be_sorted(rows.column(RECORD_KEY)):
            return
        nbytes = int(rows.nbytes) + _INDEX_BYTES_A_ROW * int(rows.num_rows)
        self.kept.put(self._name(path), nbytes, lambda: [*indexed(rows)])

    def _name(self, path: str) -> str:
        return hashlib.blake2b(self._read_as + b"\0" + path.encode(), digest_size=16).hexdigest()


def _rows_of(rows: pa.Table, keys: pa.Array) -> pa.Table:
    return rows.filter(pc.is_in(rows.column(RECORD_KEY), value_set=keys))


def _about(places: pa.Table | None, content: LogContent, keys: pa.Array) -> LogContent:
    """What a large content says about these keys, by where they are; a small content as it is."""
    if len(content.changes) < _LARGE_LOG:
        return content
    if places is not None and places.num_rows:
        content = content.take(_found(places, len(content.changes), keys))
    return content.of_keys(keys)


def _can_be_sorted(keys: pa.Array | pa.ChunkedArray) -> bool:
    return not keys.null_count and keys.nbytes <= _KEYS_BYTES_MAX


def indexed(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Where rows are by the hash of their key, and the rows."""
    rows = rows.combine_chunks()
    return _places(rows.column(RECORD_KEY)), rows


def rows_at(places: pa.Table, rows: pa.Table, keys: pa.Array) -> pa.Table:
    """The rows of these keys, in their order."""
    return _rows_of(rows.take(pa.array(_found(places, rows.num_rows, keys))), keys)


def _places(keys: pa.Array | pa.ChunkedArray) -> pa.Table:
    """Where keys are by their hash.

    One sorted column has both, because numbers are sorted in half the time of their order: the lowest bits of
    a hash make room for a position. Example with 5 keys, so 3 bits: a key at position 2 with the hash
    0xABCD has 0xABCA, as 0xABC8 + 2.
    """
    at = _position_mask(len(keys))
    places = (key_hashes(keys) & ~at) | np.arange(len(keys), dtype=np.uint64)
    places.sort()
    return pa.table([pa.array(places)], names=[_PLACES])


def _found(places: pa.Table, count: int, keys: pa.Array) -> Int64Array:
    """The positions of these keys among `count` keys, ascending, by the table of `_places`; and of further
    keys whose hashes begin alike.

    Example: keys whose hashes begin as those of 2 and 0 places have the first places 1 and 3 and the counts 2
    and 0: places 1 and 2 are looked at.
    """
    sorted_places, at = combined(places.column(_PLACES)).to_numpy(), _position_mask(count)
    wanted = np.unique(key_hashes(keys) | at)
    first = np.searchsorted(sorted_places, wanted & ~at)
    counts = np.searchsorted(sorted_places, wanted, "right") - first
    numbers = np.arange(counts.sum()) + np.repeat(first - np.cumsum(counts) + counts, counts)
    positions: Int64Array = np.sort(sorted_places[numbers] & at).astype(np.int64)
    return positions


def _position_mask(count: int) -> np.uint64:
    """The bits that any of so many positions takes."""
    return np.uint64((1 << count.bit_length()) - 1)


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
