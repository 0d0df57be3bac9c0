"""Ranges from the rows of files that are there, and what is wrong with stored ones."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from testing.memory_storage import InMemoryStorage
from tidemark.hudi_format.avro_types import SchemaError
from tidemark.hudi_format.column_ranges import ColumnRange, StatType, ValueType
from tidemark.hudi_format.file_group.base_file import attach_meta_columns, write_base_file
from tidemark.hudi_format.file_group.changes import Deletes
from tidemark.hudi_format.file_group.log_blocks import data_log_bytes
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.log_file import frame_block
from tidemark.hudi_format.log_file.blocks import HeaderKey, read_blocks
from tidemark.hudi_format.metadata_table.partitions.column_stats import column_stats_key
from tidemark.hudi_format.metadata_table.partitions.column_stats_codec import ColumnStats, decode_stats
from tidemark.hudi_format.metadata_table.scanned_ranges import RangeScan, check_stats_columns
from tidemark.hudi_format.schema import TableSchema

SCHEMA = TableSchema.from_arrow(
    "t", pa.schema([("id", pa.string()), ("n", pa.int64()), ("d", pa.float64()), ("s", pa.string())])
)
COLUMNS = ["_hoodie_record_key", "n", "d", "s"]
GROUP = "5c1b2f3a-0000-4000-8000-000000000001-0"
BASE, LOG = f"{GROUP}_0-0-0_20260101000000001.parquet", f".{GROUP}_20260101000000002.log.1_0-0-0"
SLICE = FileSlice("eu", GROUP, BASE, "20260101000000001", (LOG,))
Row = tuple[str, int | None, float | None, str | None]


def rows_of(rows: list[Row]) -> pa.Table:
    user = pa.table([list(each) for each in zip(*rows, strict=True)], schema=SCHEMA.arrow)
    return attach_meta_columns(user, user.column("id"), "eu", "20260101000000001", 0, GROUP)


def scan_of(base: list[Row], log: list[Row], schema: TableSchema = SCHEMA) -> RangeScan:
    storage = InMemoryStorage()
    storage.create(f"eu/{BASE}", write_base_file(rows_of(base), SCHEMA))
    deletes = None if log else Deletes.without_ordering(pa.array(["gone"]))
    rows = rows_of(log) if log else None
    storage.create(f"eu/{LOG}", data_log_bytes(SCHEMA, "20260101000000002", rows, deletes, "eu", None))
    return scanned(storage, schema)


def scanned(storage: InMemoryStorage, schema: TableSchema = SCHEMA) -> RangeScan:
    scan = RangeScan(storage, schema, COLUMNS, None)
    for path in scan.missing([SLICE]):
        scan.scan(path)
    assert not scan.missing([SLICE])
    return scan


def stored(scan: RangeScan) -> dict[str, ColumnStats]:
    return {key: decode_stats(value, "", "test") for key, value in scan.records([SLICE]).items()}


def with_range(scan: RangeScan, column: str, **changes: Any) -> dict[str, ColumnStats]:
    """The right records, with one of the base file changed."""
    records, key = stored(scan), column_stats_key(column, "eu", BASE)
    found = records[key]
    return {**records, key: replace(found, range=replace(found.range, **changes))}


ROWS: list[Row] = [("a", 1, 0.5, "x"), ("b", None, math.nan, "y" * 100), ("c", 5, -1.0, None)]


def test_each_file_has_the_ranges_of_its_own_rows() -> None:
    records = stored(scan_of(ROWS, [("b", 9, 1.0, "z")]))
    ranges = {(each.file_name, each.range.column): each.range for each in records.values()}
    assert len(ranges) == 2 * len(COLUMNS)
    assert ranges[BASE, "n"] == ColumnRange("n", StatType(ValueType.LONG), 1, 5, 3, 1)
    assert ranges[BASE, "d"] == ColumnRange("d", StatType(ValueType.DOUBLE), -1.0, math.inf, 3, 0)
    assert ranges[BASE, "s"] == ColumnRange("s", StatType(ValueType.STRING), "x", "y" * 63 + "z", 3, 1)
    assert ranges[BASE, "_hoodie_record_key"].high == "c"
    assert (ranges[LOG, "n"].low, ranges[LOG, "n"].values) == (9, 1)


def test_a_log_without_rows_has_records_that_say_so_and_is_right_without_any() -> None:
    """Those that were written before this rule, and by Hudi of another list of columns, stay."""
    scan = scan_of(ROWS, [])
    records = stored(scan)
    of_log = [each.range for each in records.values() if each.file_name == LOG]
    assert [each.column for each in of_log] == COLUMNS
    assert {(each.low, each.high, each.values, each.nulls) for each in of_log} == {(None, None, 0, 0)}
    assert not scan.wrong([SLICE], records)
    of_base = {key: each for key, each in records.items() if each.file_name == BASE}
    assert not scan.wrong([SLICE], of_base)
    key = column_stats_key("n", "eu", LOG)
    assert not scan.wrong([SLICE], {**of_base, key: records[key]})


def test_a_column_that_the_file_lacks_is_all_null_and_of_the_table_s_type() -> None:
    later = TableSchema.from_arrow(
        "t", pa.schema([("id", pa.string()), ("n", pa.float64()), ("d", pa.float64()), ("s", pa.string())])
    )
    without = TableSchema.from_arrow("t", SCHEMA.arrow.remove(3))
    storage = InMemoryStorage()
    storage.create(
        f"eu/{BASE}", write_base_file(rows_of(ROWS).select(without.arrow_with_meta.names), without)
    )
    storage.create(f"eu/{LOG}", data_log_bytes(SCHEMA, "2", rows_of(ROWS), None, "eu", None))
    ranges = {
        each.range.column: each.range
        for each in stored(scanned(storage, later)).values()
        if each.file_name == BASE
    }
    assert ranges["s"] == ColumnRange("s", StatType(ValueType.STRING), None, None, 3, 3)
    assert ranges["n"] == ColumnRange("n", StatType(ValueType.DOUBLE), 1.0, 5.0, 3, 1)


def of_partial_updates(without: str) -> RangeScan:
    """A log file whose rows lack the column."""
    at = SCHEMA.arrow.get_field_index(without)
    schema = TableSchema.from_arrow("t", SCHEMA.arrow.remove(at) if at >= 0 else SCHEMA.arrow)
    storage = InMemoryStorage()
    storage.create(f"eu/{BASE}", write_base_file(rows_of(ROWS), SCHEMA))
    rows = rows_of(ROWS).select(schema.arrow_with_meta.names)
    (block,) = read_blocks(data_log_bytes(schema, "20260101000000002", rows, None, "eu", None), "whole")
    headers = {**block.headers, HeaderKey.IS_PARTIAL: "true"}
    storage.create(f"eu/{LOG}", frame_block(block.block_type, headers, bytes(block.content)))
    return scanned(storage)


def test_partial_updates_of_all_columns_with_stats_have_records() -> None:
    scan = of_partial_updates(without="a column without stats")
    records = stored(scan)
    assert {each.file_name for each in records.values()} == {BASE, LOG}
    assert not scan.wrong([SLICE], records)


def test_a_log_of_partial_updates_has_no_records() -> None:
    """A filter on two columns may hold for the merged row, and for neither half."""
    scan = of_partial_updates(without="s")
    assert {each.file_name for each in stored(scan).values()} == {BASE}
    key = column_stats_key("n", "eu", LOG)
    of_half_rows = ColumnStats(LOG, ColumnRange("n", StatType(ValueType.LONG), 1, 5, 3, 1))
    (wrong,) = scan.wrong([SLICE], {key: of_half_rows})
    assert "partial" in wrong.reason


def test_right_and_wider_records_are_right() -> None:
    scan = scan_of(ROWS, ROWS)
    assert not scan.wrong([SLICE], stored(scan))
    assert not scan.wrong([SLICE], {})
    assert not scan.wrong([SLICE], with_range(scan, "n", low=-7, high=99))
    assert not scan.wrong([SLICE], with_range(scan, "s", high="y" * 100))
    assert not scan.wrong([SLICE], with_range(scan, "n", type=StatType(ValueType.INT)))


FLOATS = (pa.float32(), ValueType.FLOAT, [0.1, 1.7])
INTS = (pa.int32(), ValueType.INT, [16_777_217, 2**31 - 1])
LONGS = (pa.int64(), ValueType.LONG, [2**53 + 1, 2**62 + 3])


@pytest.mark.parametrize(
    ("former", "becomes"),
    [
        (FLOATS, pa.float64()),
        (INTS, pa.int64()),
        (INTS, pa.float32()),
        (INTS, pa.float64()),
        (LONGS, pa.float32()),
        (LONGS, pa.float64()),
    ],
    ids=lambda value: str(value[0] if isinstance(value, tuple) else value),
)
def test_a_range_of_before_its_column_was_widened_is_right_as_its_rows_are_read(
    former: tuple[pa.DataType, ValueType, list[float]], becomes: pa.DataType
) -> None:
    """0.1f is read as 0.1, and its bound is 0.10000000149 as a number; 16777217 is read as the float next to
    it.
    """
    narrow, kind, values = former
    before, after = (
        TableSchema.from_arrow("t", SCHEMA.arrow.set(1, pa.field("n", arrow))) for arrow in (narrow, becomes)
    )
    user = pa.table([["a", "b"], values, [1.0, 2.0], ["x", "y"]], schema=before.arrow)
    rows = attach_meta_columns(user, user.column("id"), "eu", "20260101000000001", 0, GROUP)
    storage = InMemoryStorage()
    storage.create(f"eu/{BASE}", write_base_file(rows, before))
    storage.create(f"eu/{LOG}", data_log_bytes(before, "20260101000000002", rows, None, "eu", None))
    records = stored(scanned(storage, before))
    assert {each.range.type.kind for each in records.values() if each.range.column == "n"} == {kind}
    assert not scanned(storage, after).wrong([SLICE], records)
    narrower = {
        key: replace(each, range=replace(each.range, high=each.range.low))
        if each.range.column == "n"
        else each
        for key, each in records.items()
    }
    wrong = scanned(storage, after).wrong([SLICE], narrower)
    assert {(each.path, each.column) for each in wrong} == {(f"eu/{name}", "n") for name in (BASE, LOG)}
    assert all("leaves out rows" in each.reason for each in wrong)


@pytest.mark.parametrize(
    ("column", "changes", "says"),
    [
        ("n", {"low": 2}, "leaves out rows"),
        ("n", {"high": 4}, "leaves out rows"),
        ("n", {"nulls": 0}, "counts no nulls"),
        ("n", {"type": StatType(ValueType.DATE)}, "of type DATE"),
        ("n", {"type": StatType(ValueType.DOUBLE), "low": 0.5, "high": 9.5}, "of type DOUBLE"),
        ("n", {"type": StatType(ValueType.FLOAT), "low": 0.5, "high": 9.5}, "of type FLOAT"),
        ("s", {"high": "y" * 99}, "leaves out rows"),
        ("s", {"low": None, "high": None, "nulls": 3}, "apache/hudi#18755"),
        ("d", {"low": 0.0, "high": 0.0}, "apache/hudi#18754"),
        ("d", {"high": math.nan}, "ends in NaN"),
    ],
)
def test_a_record_by_which_rows_are_left_out_is_named(
    column: str, changes: dict[str, Any], says: str
) -> None:
    scan = scan_of(ROWS, ROWS)
    (wrong,) = scan.wrong([SLICE], with_range(scan, column, **changes))
    assert (wrong.path, wrong.column) == (f"eu/{BASE}", column)
    assert says in wrong.reason


def test_a_file_has_records_of_all_columns_or_of_none() -> None:
    scan = scan_of(ROWS, ROWS)
    records = stored(scan)
    del records[column_stats_key("n", "eu", LOG)]
    (wrong,) = scan.wrong([SLICE], records)
    assert (wrong.path, wrong.column) == (f"eu/{LOG}", "n")


def test_columns_that_can_have_no_stats_are_all_named() -> None:
    schema = TableSchema.from_arrow("t", pa.schema([("id", pa.string()), ("raw", pa.binary())]))
    check_stats_columns(schema, ["id"])
    with pytest.raises(
        SchemaError, match=r"raw \(binary can have none\), other \(.*no such.*\), id \(named twice\)"
    ):
        check_stats_columns(schema, ["raw", "other", "id", "id"])
