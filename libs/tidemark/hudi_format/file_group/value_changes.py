"""What one commit changes in the values that a file group's live rows have in some columns: what a secondary
index of such a column has to learn of it.

`before` are the live rows of the file slice that the commit adds its file to, `after` those with the file,
merged as readers merge them. So the merge decides, and not what the commit tried: a row that loses against
the stored one and a delete that is too old change nothing, because `after` equals `before`.

    key  before  after     changes
    a    paris   paris     none
    b    paris   rome      delete (paris, b), put (rome, b)
    c    -       null      put (null, c)
    d    rome    -         delete (rome, d)

Only rows of the keys that the commit touches are compared. The outcome is a function of the slice and of the
commit's rows: it says the same however often it is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.hudi_format.file_group.base_file import RECORD_KEY
from tidemark.hudi_format.file_group.changes import Changes, Deletes, combined
from tidemark.hudi_format.file_group.log_blocks import LogContent, read_data_log
from tidemark.hudi_format.file_group.merge import apply_log, changes_of_rows
from tidemark.hudi_format.file_group.slice_reader import merge_columns, merge_files, read_base_rows
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.ordering import BoolArray, Int64Array, OrderingField
from tidemark.hudi_format.schema import TableSchema, cast_rows
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.table_config import MergeMode


@dataclass(frozen=True, slots=True)
class ValuePairs:
    """Pairs of a record key and the value that its row has in one column; both of equal length."""

    keys: pa.Array
    values: pa.Array

    def __len__(self) -> int:
        return len(self.keys)

    @classmethod
    def of(cls, rows: pa.Table, column: str) -> ValuePairs:
        """The pairs of rows with the record key and the column."""
        return cls(combined(rows.column(RECORD_KEY)), combined(rows.column(column)))


@dataclass(frozen=True, slots=True)
class ValueChanges:
    """The pairs that a commit brings to the live rows of a file group, and those that it takes away."""

    puts: ValuePairs
    deletes: ValuePairs


@dataclass(frozen=True, slots=True)
class RowsChanged:
    """The live rows of the touched keys before and after a commit, with equal columns: at least the record
    key, and those that are asked about.
    """

    before: pa.Table
    after: pa.Table

    def of(self, column: str) -> ValueChanges:
        """What changes in the column. Values are compared, null with null; a key that has several rows, as
        after damage, has several pairs.
        """
        before, after = ValuePairs.of(self.before, column), ValuePairs.of(self.after, column)
        pairs = _pairs(pa.concat_arrays([before.keys, after.keys]), [before.values, after.values])
        old, new = pairs[: len(before)], pairs[len(before) :]
        return ValueChanges(_only(after, ~np.isin(new, old)), _only(before, ~np.isin(old, new)))


def rows_merged(existing: pa.Table, merged: pa.Table, keys: pa.Array, columns: Sequence[str]) -> RowsChanged:
    """The rows of `keys` in a base file and in the next one, which was made of it and of the commit's rows.
    `columns`: those to ask about.
    """
    wanted = [RECORD_KEY, *(name for name in dict.fromkeys(columns) if name != RECORD_KEY)]
    return RowsChanged(*(_of_keys(rows.select(wanted), keys) for rows in (existing, merged)))


@dataclass(frozen=True, slots=True)
class SliceMerge:
    """Merges file slices with a commit's rows, of which it reads `columns` alone, beside record key and
    ordering field.
    """

    storage: Storage
    schema: TableSchema
    mode: MergeMode
    ordering: OrderingField | None
    columns: Sequence[str]

    def rows_logged(self, file_slice: FileSlice, upserts: pa.Table | None, deletes: Deletes) -> RowsChanged:
        """The rows before and after a commit adds a log file to the slice, with these rows (with meta
        columns; None: no rows) and deletes.

        Raises `FileMissingError` (the slice was cleaned away), `CorruptFileError`, `SchemaError`,
        `UnsupportedTableError`.
        """
        with_meta = self.schema.arrow_with_meta
        wanted = pa.schema([with_meta.field(name) for name in dict.fromkeys([RECORD_KEY, *self.columns])])
        read = merge_columns(wanted, self.schema, self.ordering)
        own = self._own(upserts, deletes, read)
        keys = own.changes.keys.unique()
        base = read_base_rows(self.storage, file_slice, read, keys)
        logs = self._logs(file_slice, read, keys)
        states = []
        for contents in (logs, [*logs, own]):
            log = LogContent.concat(contents, read)
            states.append(apply_log(base, log.rows, log.changes, self.mode, self.ordering, log.has))
        return RowsChanged(*(state.select(wanted.names) for state in states))

    def _own(self, upserts: pa.Table | None, deletes: Deletes, read: pa.Schema) -> LogContent:
        rows = read.empty_table() if upserts is None else cast_rows(upserts, read)
        parts = [changes_of_rows(rows, self.mode, self.ordering), Changes.of_deletes(deletes)]
        return LogContent(rows, Changes.concat(parts, [rows.num_rows, 0]))

    def _logs(self, file_slice: FileSlice, read: pa.Schema, keys: pa.Array) -> list[LogContent]:
        contents = {
            name: read_data_log(
                self.storage, join_path(file_slice.partition_path, name), read, self.mode, self.ordering
            ).of_keys(keys)
            for name in file_slice.log_files
        }
        return [contents[name] for name in merge_files({name: c.folds for name, c in contents.items()})]


def _of_keys(rows: pa.Table, keys: pa.Array) -> pa.Table:
    return rows.filter(pc.is_in(rows.column(RECORD_KEY), value_set=keys))


def _pairs(keys: pa.Array, values: Sequence[pa.Array]) -> Int64Array:
    """One number for each distinct pair. Example: keys a, b, a and values x, x, y have the numbers 0, 0, 1
    for keys and values where a and x are 0; with two distinct values the pairs are 0, 2, 1.
    """
    of_key: Int64Array = np.asarray(keys.dictionary_encode().indices).astype(np.int64)
    encoded = pc.dictionary_encode(pa.concat_arrays(list(values)), null_encoding="encode")
    of_value: Int64Array = np.asarray(encoded.indices).astype(np.int64)
    pairs: Int64Array = of_key * max(len(encoded.dictionary), 1) + of_value
    return pairs


def _only(pairs: ValuePairs, mask: BoolArray) -> ValuePairs:
    wanted = pa.array(mask)
    return ValuePairs(pairs.keys.filter(wanted), pairs.values.filter(wanted))
