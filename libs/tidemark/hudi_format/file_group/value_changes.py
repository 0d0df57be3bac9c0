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
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.hudi_format.file_group.base_file import RECORD_KEY
from tidemark.hudi_format.file_group.changes import Changes, Deletes, combined
from tidemark.hudi_format.file_group.kept_rows import SliceFiles
from tidemark.hudi_format.file_group.kept_tables import KeptTables, NothingKept
from tidemark.hudi_format.file_group.log_blocks import LogContent
from tidemark.hudi_format.file_group.merge import apply_log, changes_of_rows
from tidemark.hudi_format.file_group.slice_reader import merge_columns
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.ordering import BoolArray, Int64Array, OrderingField
from tidemark.hudi_format.schema import TableSchema, cast_rows
from tidemark.hudi_format.storage.base import Storage
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

    @classmethod
    def concat(cls, parts: Sequence[ValuePairs]) -> ValuePairs:
        """The pairs of all parts, of which there is one at least, in their order."""
        return cls(
            pa.concat_arrays([part.keys for part in parts]), pa.concat_arrays([part.values for part in parts])
        )


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

    def only(self, columns: Sequence[str]) -> RowsChanged:
        """With the record key and these columns alone."""
        names = [RECORD_KEY, *(name for name in dict.fromkeys(columns) if name != RECORD_KEY)]
        return RowsChanged(self.before.select(names), self.after.select(names))


def values_changed(files: Sequence[RowsChanged], column: str) -> ValueChanges:
    """What changes in the column, of all data files of which `files` tells; there is one at least.

    Values are compared within a file, null with null. A key that has several rows there, as after damage, has
    several pairs.
    """
    before = [ValuePairs.of(file.before, column) for file in files]
    after = [ValuePairs.of(file.after, column) for file in files]
    every = ValuePairs.concat([*before, *after])
    numbers = np.tile(np.arange(len(files)), 2)
    file_of = np.repeat(numbers, [len(pairs) for pairs in (*before, *after)])
    pairs, old_rows = _numbered(every, file_of), sum(len(pairs) for pairs in before)
    old, new = pairs[:old_rows], pairs[old_rows:]
    goes, comes = ~np.isin(old, new), ~np.isin(new, old)
    nothing = np.zeros(len(every), np.bool_)
    deletes, puts = nothing.copy(), nothing
    deletes[:old_rows], puts[old_rows:] = goes, comes
    return ValueChanges(_only(every, puts), _only(every, deletes))


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
    kept: KeptTables = field(default_factory=NothingKept)

    def rows_logged(
        self, file_slice: FileSlice, upserts: pa.Table | None, deletes: Deletes, log_path: str | None = None
    ) -> RowsChanged:
        """The rows before and after a commit adds a log file to the slice, with these rows (with meta
        columns; None: no rows) and deletes. `log_path`: where it will be, so that its content is kept.

        Raises `FileMissingError` (the slice was cleaned away), `CorruptFileError`, `SchemaError`,
        `UnsupportedTableError`.
        """
        with_meta = self.schema.arrow_with_meta
        wanted = pa.schema([with_meta.field(name) for name in dict.fromkeys([RECORD_KEY, *self.columns])])
        read = merge_columns(wanted, self.schema, self.ordering)
        own = self._own(upserts, deletes, read)
        keys = own.changes.keys.unique()
        files = SliceFiles(self.storage, read, self.mode, self.ordering, self.kept)
        if log_path is not None:
            files.keep_log(log_path, own)
        base = files.base_rows(file_slice, keys)
        logs = files.logs(file_slice, keys)
        states = [
            apply_log(base, log.rows, log.changes, self.mode, self.ordering, log.has)
            for log in (logs, LogContent.concat([logs, own], read))
        ]
        return RowsChanged(*(state.select(wanted.names) for state in states))

    def _own(self, upserts: pa.Table | None, deletes: Deletes, read: pa.Schema) -> LogContent:
        rows = read.empty_table() if upserts is None else cast_rows(upserts, read)
        parts = [changes_of_rows(rows, self.mode, self.ordering), Changes.of_deletes(deletes)]
        return LogContent(rows, Changes.concat(parts, [rows.num_rows, 0]))


def _of_keys(rows: pa.Table, keys: pa.Array) -> pa.Table:
    return rows.filter(pc.is_in(rows.column(RECORD_KEY), value_set=keys))


def _numbered(pairs: ValuePairs, file_of: Int64Array) -> Int64Array:
    """One number for each distinct (key, file, value). Example: keys a, b, a have the numbers 0, 1, 0; of one
    file and with values x, x, y, which have 0, 0, 1, the pairs are 0, 2, 1.
    """
    keys = np.asarray(pairs.keys.dictionary_encode().indices).astype(np.int64)
    values = pc.dictionary_encode(pairs.values, null_encoding="encode")
    of_value = np.asarray(values.indices).astype(np.int64)
    files = int(file_of.max(initial=0)) + 1
    numbers: Int64Array = (keys * files + file_of) * max(len(values.dictionary), 1) + of_value
    return numbers


def _only(pairs: ValuePairs, mask: BoolArray) -> ValuePairs:
    wanted = pa.array(mask)
    return ValuePairs(pairs.keys.filter(wanted), pairs.values.filter(wanted))
