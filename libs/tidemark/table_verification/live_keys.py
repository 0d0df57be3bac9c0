"""Reads the record keys of the live rows of file slices, as Hudi's snapshot readers see them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.hudi_format.errors import HudiFormatError, UnsupportedTableError
from tidemark.hudi_format.file_group.base_file import PARTITION_PATH, RECORD_KEY, read_base_schema
from tidemark.hudi_format.file_group.slice_reader import read_slice
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.ordering import table_ordering
from tidemark.hudi_format.schema import IS_DELETED_FIELD, TableSchema, left_out
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.table_config import TableConfig
from tidemark.hudi_format.table_schema import table_schema
from tidemark.hudi_format.timeline import Timeline
from tidemark.table_verification.findings import EXAMPLES_MAX, Findings, Kind


class LiveKeys:
    """Reads one slice at a time. The table needs at least one commit that has a schema."""

    def __init__(self, storage: Storage, config: TableConfig, timeline: Timeline) -> None:
        self._storage = storage
        self._schema = _schema(storage, config, timeline)
        self._mode, self._ordering = table_ordering(config, self._schema)

    @property
    def schema(self) -> TableSchema:
        """The table's schema as of the snapshot."""
        return self._schema

    @property
    def rules(self) -> str:
        """Everything besides the files that decides which keys are live: merge mode, ordering field, delete
        field, schema fingerprint. A stored digest is used only while this text is the same.
        """
        ordering = self._ordering.name if self._ordering is not None else ""
        marks_deletes = IS_DELETED_FIELD in self._schema.arrow.names
        deletes = IS_DELETED_FIELD if marks_deletes else ""
        # The schema's fingerprint is part of it, so that files are compared with the new columns once it
        # changes.
        return f"{self._mode.value} {ordering} {deletes} {self._schema.fingerprint}"

    def of(self, file_slice: FileSlice, findings: Findings) -> pa.ChunkedArray | None:
        """The slice's keys in no particular order; None when it cannot be read. Adds differences to
        ``findings``.
        """
        columns = [RECORD_KEY, PARTITION_PATH]
        try:
            rows = read_slice(self._storage, file_slice, self._schema, self._mode, self._ordering, columns)
        except (HudiFormatError, OSError) as error:
            findings.add_one(Kind.UNREADABLE, f"{file_slice.partition_path} {file_slice.file_id}: {error}")
            return None
        _check_partition(rows, file_slice, findings)
        self._check_columns(file_slice, findings)
        return rows.column(RECORD_KEY)

    def _check_columns(self, file_slice: FileSlice, findings: Findings) -> None:
        """Checks that the table's schema has all columns of the base file.

        Readers do not see other columns, and the next compaction or rewrite deletes their values.
        """
        if file_slice.base_file is None:
            return
        path = join_path(file_slice.partition_path, file_slice.base_file)
        if lost := left_out(read_base_schema(self._storage, path), self._schema.arrow):
            findings.add_one(Kind.COLUMN_NOT_IN_SCHEMA, f"{path}: {', '.join(lost)}")


def _check_partition(rows: pa.Table, file_slice: FileSlice, findings: Findings) -> None:
    elsewhere = pc.fill_null(pc.not_equal(rows.column(PARTITION_PATH), file_slice.partition_path), True)
    if not pc.any(elsewhere).as_py():
        return
    wrong = rows.filter(elsewhere)
    findings.add(
        Kind.ROW_IN_WRONG_PARTITION,
        wrong.num_rows,
        (
            f"{row[RECORD_KEY]}: says {row[PARTITION_PATH]!r}, lies in {file_slice.partition_path!r}"
            for row in wrong.slice(0, EXAMPLES_MAX).to_pylist()
        ),
    )


def _schema(storage: Storage, config: TableConfig, timeline: Timeline) -> TableSchema:
    """The table's schema. Raises UnsupportedTableError when no commit has one."""
    if (schema := table_schema(storage, config, timeline)) is not None:
        return schema
    raise UnsupportedTableError(
        f"{storage.base_uri}: no commit of the active timeline carries the table's schema",
        "Let any write commit with Hudi on Spark add it",
    )
