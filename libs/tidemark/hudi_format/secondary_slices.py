"""The entries of a secondary index that the live rows of a file slice say, and how they change when the slice
gets log files.

    slice      before: paris$k1, rome$k2
    log file   upserts k1 of Oslo, deletes k2, inserts k3 of Bern
    changes    gone: paris$k1, rome$k2       came: oslo$k1, bern$k3

What log files change is read from them, and from the rows of their keys before: the time it takes is that for
the log files, not for the slice, once its other files are kept (`file_group/kept_rows.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.hudi_format.avro_types import SchemaError
from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.file_group.base_file import RECORD_KEY
from tidemark.hudi_format.file_group.kept_rows import SliceFiles
from tidemark.hudi_format.file_group.kept_tables import KeptTables, NothingKept
from tidemark.hudi_format.file_group.log_blocks import LogContent
from tidemark.hudi_format.file_group.merge import apply_log
from tidemark.hudi_format.file_group.slice_reader import merge_columns, merge_files, read_slice
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.metadata_table.partitions.secondary_index_codec import (
    INDEXED_TYPES,
    composite_keys,
    keys_too_long,
    value_texts,
)
from tidemark.hudi_format.ordering import table_ordering
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_config import TableConfig

_NOTHING_KEPT: Final = NothingKept()


@dataclass(frozen=True, slots=True)
class EntryChanges:
    """Composite keys that the rows of a slice do not say any more, and those that they did not say before.
    Both in no order.
    """

    gone: pa.StringArray
    came: pa.StringArray


def check_indexed_column(schema: TableSchema, column: str) -> None:
    """Raises `SchemaError` for a column that the table lacks, or that can have no secondary index."""
    known = dict(zip(schema.arrow.names, schema.arrow.types, strict=True))
    if column not in known:
        raise SchemaError(f"the table has no column {column}; it has {schema.arrow.names}")
    if known[column] not in INDEXED_TYPES:
        raise SchemaError(
            f"column {column} is of the type {known[column]}, which cannot have a secondary index: index a "
            "column of the type string, int, long, date or timestamp-micros"
        )


class RowEntries:
    """Reads the entries that the live rows of file slices say. `schema`: the table's. `kept`: where files are
    kept that `changes` asks for again and again. Raises SchemaError for a column that can have no index.
    """

    def __init__(
        self,
        storage: Storage,
        config: TableConfig,
        schema: TableSchema,
        column: str,
        kept: KeptTables = _NOTHING_KEPT,
    ) -> None:
        check_indexed_column(schema, column)
        self._storage, self._schema, self._column = storage, schema, column
        self._mode, self._ordering = table_ordering(config, schema)
        self._wanted = pa.schema([schema.arrow_with_meta.field(name) for name in (RECORD_KEY, column)])
        read = merge_columns(self._wanted, schema, self._ordering)
        self._files = SliceFiles(storage, read, self._mode, self._ordering, kept)

    def of(self, file_slice: FileSlice) -> pa.StringArray:
        """The composite keys of the slice's rows, in no order. Raises UnsupportedTableError for a row whose
        key is too long, and as `read_slice`.
        """
        names = self._wanted.names
        rows = read_slice(self._storage, file_slice, self._schema, self._mode, self._ordering, names)
        return self._entries(rows)

    def changes(self, before: FileSlice, after: FileSlice) -> EntryChanges | None:
        """What the log files change that `after` has and `before` has not; None where the slices differ by
        more than that, or a log compaction made one of them. Raises as `of`.
        """
        known = set(before.log_files)
        if before.base_file != after.base_file or not known < set(after.log_files):
            return None
        logs = {name: self._files.whole_log(after, name) for name in after.log_files}
        added = [log for name, log in logs.items() if name not in known]
        if any(log.folds for log in added):
            return None
        keys = pa.concat_arrays([log.changes.keys for log in added]).unique()
        base = self._files.base_rows(after, keys)
        states = ({name: logs[name] for name in some.log_files} for some in (before, after))
        old, new = (self._entries(self._merged(state, base, keys)) for state in states)
        return EntryChanges(without(old, new), without(new, old))

    def _merged(self, logs: Mapping[str, LogContent], base: pa.Table | None, keys: pa.Array) -> pa.Table:
        """The live rows of these keys. `base`: those of the base file."""
        order = merge_files({name: log.folds for name, log in logs.items()})
        log = LogContent.concat([logs[name] for name in order], self._files.columns).of_keys(keys)
        merged = apply_log(base, log.rows, log.changes, self._mode, self._ordering, log.has)
        return merged.select(self._wanted.names)

    def _entries(self, rows: pa.Table) -> pa.StringArray:
        texts = value_texts(rows.column(self._column))
        record_keys = rows.column(RECORD_KEY).combine_chunks().cast(pa.string())
        too_long = keys_too_long(texts, record_keys)
        if too_long.any():
            key = record_keys[int(np.argmax(too_long))].as_py()
            raise UnsupportedTableError(
                f"the value of {self._column} in the row {key[:80]!r} is too long for a secondary index, "
                "whose entries hold 32767 bytes",
                "Index another column",
            )
        return composite_keys(texts, record_keys)


def without(keys: pa.StringArray, others: pa.StringArray) -> pa.StringArray:
    """The keys that are not among the others, in their order."""
    return keys.filter(pc.invert(pc.is_in(keys, value_set=others)))
