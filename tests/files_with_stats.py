"""Which files of a table have column stats, and which have none although they have rows."""

from __future__ import annotations

from tidemark.hudi_format.metadata_table.log_records import slice_entries
from tidemark.hudi_format.metadata_table.partitions.column_stats import COLUMN_STATS, file_keys
from tidemark.hudi_format.metadata_table.partitions.partition import METADATA_TABLE_PATH
from tidemark.hudi_format.metadata_table.scanned_ranges import FilePath, RangeScan, files_of
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot, metadata_slices
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.table_config import read_table_config
from tidemark.hudi_format.table_view import TableView

_FOLDER = join_path(METADATA_TABLE_PATH, COLUMN_STATS.name)


def files_of_table(storage: Storage) -> list[FilePath]:
    """The files that readers see: (partition path, name)."""
    snapshot = MetadataTableSnapshot.load(storage)
    return list(files_of(TableView.of(storage, snapshot.data_timeline).slices(snapshot.files.names())))


def files_without_records(storage: Storage, schema: TableSchema, columns: list[str]) -> list[str]:
    """The paths of files with rows that have no record of any of the columns."""
    snapshot = MetadataTableSnapshot.load(storage)
    slices = metadata_slices({COLUMN_STATS.name: storage.names(_FOLDER)}, snapshot.validity)
    stored = COLUMN_STATS.merge(
        part
        for file_slice in slices
        for part in slice_entries(storage, _FOLDER, file_slice, snapshot.validity.is_valid)
    )
    rows = RangeScan(storage, schema, columns, read_table_config(storage).ordering_field)
    found = []
    for path in files_of_table(storage):
        rows.scan(path)
        has_rows = any(found.values for found in rows.ranges[path])
        if has_rows and stored.keys().isdisjoint(file_keys(*path, columns)):
            found.append(join_path(*path))
    return found
