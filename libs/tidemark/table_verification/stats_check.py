"""Compares the column stats with the rows, in a table that lists them in its properties.

Readers leave out files by them: a range that is too narrow, or a column without a record in a file that has
one of another column, loses rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pyarrow as pa

from tidemark.hudi_format.column_ranges import cut_ranges, has_ranges
from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.metadata_table.log_records import streamed_slice_entries
from tidemark.hudi_format.metadata_table.partitions.column_stats import COLUMN_STATS, file_keys
from tidemark.hudi_format.metadata_table.partitions.column_stats_codec import (
    ColumnStats,
    decode_stats,
)
from tidemark.hudi_format.metadata_table.partitions.partition import METADATA_TABLE_PATH
from tidemark.hudi_format.metadata_table.scanned_ranges import RangeScan, files_of
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.metadata_table.stats_layout import stats_columns_in_use
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage.base import join_path
from tidemark.hudi_format.table_config import TableConfig
from tidemark.table_verification.findings import Findings, Kind

_SAY_EVERY: Final = 100
# About 600 bytes each with its key.
_AT_ONCE: Final = 200_000
_SOURCE: Final = join_path(METADATA_TABLE_PATH, COLUMN_STATS.name)


def stats_rules(snapshot: MetadataTableSnapshot) -> str:
    """Which columns have column stats, as a text; "" where the table keeps none. After a change of it the
    ranges of all files are compared, not only those of changed ones.
    """
    if COLUMN_STATS.name not in snapshot.slices:
        return ""
    try:
        return f" stats of {','.join(stats_columns_in_use(snapshot.storage))}"
    except UnsupportedTableError:
        return " stats"


def check_column_stats(
    snapshot: MetadataTableSnapshot,
    config: TableConfig,
    schema: TableSchema,
    slices: Sequence[FileSlice],
    is_changed: Callable[[FileSlice], bool],
    findings: Findings,
    say: Callable[[str], None],
) -> None:
    """Adds what is wrong to `findings`. Of all files of `slices` it is looked whether they have records of
    all columns or of none. Of the slices that changed the rows are read: each file with rows has records, and
    all rows lie in the ranges. Memory holds `_AT_ONCE` records as bytes, and the ranges of one slice; for so
    many records each the column stats are read once more.

    Raises FileMissingError, CorruptFileError.
    """
    if COLUMN_STATS.name not in snapshot.slices:
        return
    try:
        columns = stats_columns_in_use(snapshot.storage)
    except UnsupportedTableError as error:
        findings.add_one(Kind.COLUMN_STATS_WRONG, error.reason)
        return
    with_meta = schema.arrow_with_meta
    ranged = [name for name in columns if name in with_meta.names and has_ranges(with_meta.field(name).type)]
    if others := [name for name in columns if name not in ranged]:
        findings.add(
            Kind.COLUMN_STATS_WRONG, len(others), (f"column {name} can have none" for name in others)
        )
    scan = RangeScan(snapshot.storage, schema, ranged, config.ordering_field)
    read = 0
    for some in _at_once(slices, len(columns)):
        stored = _stored(snapshot, some, columns)
        for file_slice in some:
            if not is_changed(file_slice):
                _check_keys(file_slice, columns, stored, findings)
                continue
            read += 1
            if read % _SAY_EVERY == 0:
                say(f"compared the column stats of {read} file groups")
            _check_rows(file_slice, scan, stored, findings)


def _check_keys(
    file_slice: FileSlice, columns: Sequence[str], stored: dict[str, bytes], findings: Findings
) -> None:
    for partition_path, name in files_of([file_slice]):
        keys = dict(zip(columns, file_keys(partition_path, name, columns), strict=True))
        lacking = [column for column, key in keys.items() if key not in stored]
        if lacking and len(lacking) < len(columns):
            path = join_path(partition_path, name)
            findings.add_one(Kind.COLUMN_STATS_MISSING, f"{path}: column {', '.join(lacking)}")


def _check_rows(file_slice: FileSlice, scan: RangeScan, stored: dict[str, bytes], findings: Findings) -> None:
    of_slice: dict[str, ColumnStats] = {}
    for partition_path, name in files_of([file_slice]):
        scan.scan((partition_path, name))
        keys = file_keys(partition_path, name, scan.columns)
        found = {key: decode_stats(stored[key], "", _SOURCE) for key in keys if key in stored}
        of_slice |= found
        ranges = scan.ranges[partition_path, name]
        if not found and cut_ranges(ranges) and ranges[0].values:
            path = join_path(partition_path, name)
            findings.add_one(Kind.COLUMN_STATS_MISSING, f"{path}: it has rows, and no record of any column")
    wrong = scan.wrong([file_slice], of_slice)
    texts = (f"{one.path}: column {one.column}: {one.reason}" for one in wrong)
    findings.add(Kind.COLUMN_STATS_WRONG, len(wrong), texts)
    scan.ranges.clear()


def _at_once(slices: Sequence[FileSlice], columns: int) -> Iterator[list[FileSlice]]:
    """The slices in parts whose files have about `_AT_ONCE` records."""
    some: list[FileSlice] = []
    records = 0
    for file_slice in slices:
        some.append(file_slice)
        records += columns * sum(1 for _ in files_of([file_slice]))
        if records >= _AT_ONCE:
            yield some
            some, records = [], 0
    if some:
        yield some


def _stored(
    snapshot: MetadataTableSnapshot, slices: Sequence[FileSlice], columns: Sequence[str]
) -> dict[str, bytes]:
    """Key -> value of all living records of the files of these slices."""
    keys = (key for path in files_of(slices) for key in file_keys(*path, columns))
    storage, is_valid = snapshot.storage, snapshot.validity.is_valid
    parts = (
        part
        for file_slice in snapshot.slices[COLUMN_STATS.name]
        for part in streamed_slice_entries(storage, _SOURCE, file_slice, is_valid)
    )
    return COLUMN_STATS.living(parts, pa.array(keys, pa.string()))
