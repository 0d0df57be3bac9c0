"""Ranges of the columns of data files that are there already, from their rows: what column stats of an
existing table are made of, and what kept ones are compared with (METADATA_TABLE.md, section 10.3).

A file never changes once it is committed, so a scan can go on without the table's lock: what is committed
meanwhile is scanned behind, under the lock. Memory holds one batch of one file's rows, and the ranges of all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa

from tidemark.hudi_format.avro_types import SchemaError
from tidemark.hudi_format.column_ranges import (
    ColumnRange,
    StatValue,
    ValueType,
    cut_ranges,
    has_ranges,
    sort_key,
)
from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.file_group.base_file import parquet_batches
from tidemark.hudi_format.file_group.log_blocks import read_log_rows
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.metadata_table.file_ranges import FileRanges
from tidemark.hudi_format.metadata_table.partitions.column_stats import column_stats_key, file_records
from tidemark.hudi_format.metadata_table.partitions.column_stats_codec import ColumnStats
from tidemark.hudi_format.schema import TableSchema, cast_rows
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.type_promotion import cast_values, is_promotion

FilePath: TypeAlias = tuple[str, str]
_FLOATS: Final = (ValueType.FLOAT, ValueType.DOUBLE)
# Ranges of one column, before and after its type was promoted, lie side by side.
_NUMBERS: Final = {
    ValueType.INT: pa.int32(),
    ValueType.LONG: pa.int64(),
    ValueType.FLOAT: pa.float32(),
    ValueType.DOUBLE: pa.float64(),
}


class WrongRange(NamedTuple):
    """A stored record by which readers leave out rows: of which file and column, and why."""

    path: str
    column: str
    reason: str


def check_stats_columns(schema: TableSchema, columns: Sequence[str]) -> None:
    """Raises `SchemaError` for columns that the table lacks, that are named twice, or that can have no
    stats; it names all of them.
    """
    problems = []
    known = dict(zip(schema.arrow.names, schema.arrow.types, strict=True))
    for name in dict.fromkeys(columns):
        if name not in known:
            problems.append(f"{name} (the table has no such column)")
        elif not has_ranges(known[name]):
            problems.append(f"{name} ({known[name]} can have none)")
        elif columns.count(name) > 1:
            problems.append(f"{name} (named twice)")
    if problems:
        raise SchemaError(f"no column stats for {', '.join(problems)}; the table has {schema.arrow.names}")


@dataclass
class RangeScan:
    """Scans files once each. `columns`: meta columns among them; `ordering_field` is the table's."""

    storage: Storage
    schema: TableSchema
    columns: Sequence[str]
    ordering_field: str | None
    ranges: dict[FilePath, list[ColumnRange]] = field(default_factory=dict)
    """(partition path, file name) -> whole ranges of its rows. Empty where partial updates in it lack one
    of the columns: a filter on two columns may hold for the merged row, and neither for that of the log nor
    for that of the base file.
    """

    def missing(self, slices: Iterable[FileSlice]) -> list[FilePath]:
        """The files of these slices that are not scanned yet."""
        return [path for path in files_of(slices) if path not in self.ranges]

    def scan(self, path: FilePath) -> None:
        """Raises FileMissingError (the file was cleaned away: list again), CorruptFileError, SchemaError,
        UnsupportedTableError.
        """
        found = FileRanges(self.columns)
        found.add(self._wanted().empty_table())
        for rows, is_in_part in self._rows(*path):
            if is_in_part:
                found = FileRanges(self.columns)
                break
            found.add(rows)
        self.ranges[path] = found.whole

    def _rows(self, partition_path: str, name: str) -> Iterator[tuple[pa.Table, bool]]:
        path, wanted = join_path(partition_path, name), self._wanted()
        if name.startswith("."):
            yield from read_log_rows(self.storage, path, wanted, self.ordering_field)
            return
        if not name.endswith(".parquet"):
            raise UnsupportedTableError(
                f"base file {path} is not Parquet", "Only Parquet base files are served"
            )
        with self.storage.open_input(path) as source:
            for rows in parquet_batches(source, path, wanted.names):
                yield cast_rows(rows, wanted), False

    def _wanted(self) -> pa.Schema:
        with_meta = self.schema.arrow_with_meta
        return pa.schema([with_meta.field(column) for column in self.columns])

    def records(self, slices: Iterable[FileSlice]) -> dict[str, bytes]:
        """Key -> value of the column stats of these slices, all of whose files are scanned."""
        records: dict[str, bytes] = {}
        for partition_path, name in files_of(slices):
            records |= file_records(partition_path, name, cut_ranges(self.ranges[partition_path, name]))
        return records

    def wrong(self, slices: Iterable[FileSlice], stored: Mapping[str, ColumnStats]) -> list[WrongRange]:
        """The stored records, by key, of these slices by which a reader would leave out rows. A file without
        any record is right: no reader leaves it out.
        """
        wrong = []
        for partition_path, name in files_of(slices):
            keys = {column: column_stats_key(column, partition_path, name) for column in self.columns}
            of_file = {column: stored[key].range for column, key in keys.items() if key in stored}
            if not of_file:
                continue
            path, ranges = join_path(partition_path, name), self.ranges[partition_path, name]
            if ranges:
                reasons = [
                    (found.column, _what_is_wrong(of_file.get(found.column), found)) for found in ranges
                ]
            else:
                # One of partial updates is that of half rows.
                reasons = [
                    (column, "it is of a log of partial updates" if found.values else None)
                    for column, found in of_file.items()
                ]
            wrong += [WrongRange(path, column, reason) for column, reason in reasons if reason is not None]
        return wrong


def files_of(slices: Iterable[FileSlice]) -> Iterator[FilePath]:
    """The files of the slices: each base file, and each log file."""
    for file_slice in slices:
        if file_slice.base_file is not None:
            yield file_slice.partition_path, file_slice.base_file
        yield from ((file_slice.partition_path, name) for name in file_slice.log_files)


def _what_is_wrong(stored: ColumnRange | None, rows: ColumnRange) -> str | None:
    """Why a filter may leave out rows by the stored range; None: it cannot. `rows`: their whole range."""
    if not rows.values:
        return None
    if stored is None:
        return "it has none, beside columns that have one"
    if bool(stored.nulls) < bool(rows.nulls):
        return f"it counts no nulls, and there are {rows.nulls}"
    if rows.low is None or rows.high is None:
        return None
    if stored.low is None or stored.high is None:
        return "it says that all values are null (apache/hudi#18755)"
    if stored.type != rows.type and not _is_comparable(stored.type.kind, rows.type.kind):
        return f"it is of type {stored.type.kind.name}, and the column {rows.type.kind.name}"
    if rows.type.kind in _FLOATS and stored.high != stored.high:
        return "it ends in NaN"
    bounds = (_as_read(value, stored.type.kind, rows.type.kind) for value in (stored.low, stored.high))
    low, high = (sort_key(value, rows.type) for value in bounds)
    if low <= sort_key(rows.low, rows.type) and sort_key(rows.high, rows.type) <= high:
        return None
    bug = " (apache/hudi#18754)" if rows.type.kind in _FLOATS and rows.high == math.inf else ""
    return f"{stored.low!r} to {stored.high!r} leaves out rows with {rows.low!r} to {rows.high!r}{bug}"


def _is_comparable(stored: ValueType, wanted: ValueType) -> bool:
    """Whether bounds of one type say something of values of the other: both are whole numbers or both are
    floats, or the column was widened since.
    """
    narrow, wide = _NUMBERS.get(stored), _NUMBERS.get(wanted)
    if narrow is None or wide is None:
        return False
    return (stored in _FLOATS) == (wanted in _FLOATS) or is_promotion(narrow, wide)


def _as_read(bound: StatValue, stored: ValueType, wanted: ValueType) -> Any:
    """A bound as Hudi's readers take it for a column that was widened since: as they read the column's values
    (`type_promotion`), and as `ValueType.castToFloat` and `castToDouble` of Hudi 1.2.0 do it.
    """
    narrow, wide = _NUMBERS.get(stored), _NUMBERS.get(wanted)
    if narrow is None or wide is None or not is_promotion(narrow, wide):
        return bound
    return cast_values(pa.array([bound], narrow), wide)[0].as_py()
