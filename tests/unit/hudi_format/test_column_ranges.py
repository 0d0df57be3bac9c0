"""Ranges of columns, as Spark compares values."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.hudi_format.avro_types import SchemaError
from tidemark.hudi_format.column_ranges import (
    BOUND_CHARS_MAX,
    ColumnRange,
    StatType,
    ValueType,
    column_ranges,
    cut_ranges,
    decimal_bytes,
    has_ranges,
    united,
    upper_bound,
    whole_ranges,
)

LAST = "\U0010ffff"


def range_of(values: list[Any], kind: pa.DataType) -> ColumnRange:
    (found,) = column_ranges(pa.table({"c": pa.array(values, kind)}), ["c"])
    assert found.values == len(values)
    return found


def bounds(values: list[Any], kind: pa.DataType) -> tuple[Any, Any]:
    found = range_of(values, kind)
    return found.low, found.high


@pytest.mark.parametrize(
    ("kind", "values", "type_", "low", "high"),
    [
        (pa.bool_(), [True, False], StatType(ValueType.BOOLEAN), False, True),
        (pa.int32(), [3, -1, 2], StatType(ValueType.INT), -1, 3),
        (pa.int64(), [2**63 - 1, -(2**63)], StatType(ValueType.LONG), -(2**63), 2**63 - 1),
        (pa.float32(), [0.5, -2.0], StatType(ValueType.FLOAT), -2.0, 0.5),
        (pa.float64(), [1e300, -math.inf], StatType(ValueType.DOUBLE), -math.inf, 1e300),
        (pa.string(), ["b", "", "a"], StatType(ValueType.STRING), "", "b"),
        (pa.date32(), [dt.date(1970, 1, 3), dt.date(1969, 12, 31)], StatType(ValueType.DATE), -1, 2),
        (pa.timestamp("ms", "UTC"), [5, -5], StatType(ValueType.TIMESTAMP_MILLIS), -5, 5),
        (pa.timestamp("us", "UTC"), [5, -5], StatType(ValueType.TIMESTAMP_MICROS), -5, 5),
        (pa.timestamp("us"), [7, 6], StatType(ValueType.LOCAL_TIMESTAMP_MICROS), 6, 7),
    ],
    ids=lambda value: str(value) if isinstance(value, pa.DataType) else "",
)
def test_a_range_has_the_least_and_the_greatest_value(
    kind: pa.DataType, values: list[Any], type_: StatType, low: Any, high: Any
) -> None:
    found = range_of([*values, None], kind)
    assert found == ColumnRange("c", type_, low, high, len(values) + 1, 1)
    assert type(found.low) is type(low)
    assert has_ranges(kind)


def test_decimals_are_compared_as_numbers_and_have_all_their_digits() -> None:
    kind, great = pa.decimal128(38, 2), Decimal("999999999999999999999999999999999999.99")
    found = range_of([Decimal("-0.01"), great, Decimal("2.00"), None], kind)
    assert found.type == StatType(ValueType.DECIMAL, "38,2")
    assert (found.low, found.high) == (decimal_bytes(-1), decimal_bytes(10**38 - 1))


@settings(max_examples=50)
@given(st.integers(-(2**130), 2**130))
def test_decimal_bytes_are_the_shortest_that_give_the_number_back(number: int) -> None:
    data = decimal_bytes(number)
    assert int.from_bytes(data, "big", signed=True) == number
    assert len(data) == 1 or int.from_bytes(data[1:], "big", signed=True) != number


def test_a_column_of_nulls_has_no_bounds_and_its_own_type() -> None:
    assert range_of([None, None], pa.int32()) == ColumnRange("c", StatType(ValueType.INT), None, None, 2, 2)


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_a_nan_makes_the_maximum_infinite(kind: pa.DataType) -> None:
    assert bounds([1.5, math.nan, None, 0.5], kind) == (0.5, math.inf)
    assert bounds([math.inf, math.nan, -math.inf], kind) == (-math.inf, math.inf)


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
@pytest.mark.parametrize("values", [[math.nan, None], [math.inf, math.nan]])
def test_a_nan_is_never_of_a_range_of_one_value(kind: pa.DataType, values: list[Any]) -> None:
    """Else `<> Infinity` would leave the file out, and a NaN is not Infinity."""
    low, high = bounds(values, kind)
    assert low < high == math.inf
    assert low == pa.scalar(low, kind).as_py()


def test_ranges_of_two_lots_of_rows_are_united_before_they_are_cut() -> None:
    one, other = (
        whole_ranges(pa.table({"s": pa.array(values, pa.string()), "f": [number]}), ["s", "f"])
        for values, number in ((["x" * 70 + "b"], math.nan), (["x" * 70 + "a"], 1.0))
    )
    text, number = cut_ranges([united(a, b) for a, b in zip(one, other, strict=True)])
    assert (text.low, text.high) == ("x" * 64, "x" * 63 + "y")
    assert (number.low, number.high, number.values, number.nulls) == (1.0, math.inf, 2, 0)


@pytest.mark.parametrize("values", [[0.0], [-0.0], [0.0, -0.0], [-0.0, 0.0]])
def test_both_zeroes_are_within_a_bound_of_zero(values: list[float]) -> None:
    low, high = bounds(values, pa.float64())
    assert (math.copysign(1, low), math.copysign(1, high)) == (-1, 1)
    assert (low, high) == (0, 0)


def test_strings_are_compared_by_bytes_and_not_by_utf16_units() -> None:
    assert bounds(["\U0001f600", "\uff5e"], pa.string()) == ("\uff5e", "\U0001f600")


@settings(max_examples=50)
@given(
    st.integers(0, 66), st.lists(st.sampled_from(["a", "\ud7ff", "\uffff", LAST]), max_size=4).map("".join)
)
def test_cut_bounds_are_short_and_not_narrower(times: int, end: str) -> None:
    for text in (LAST * times + end, "a" * times + end + "a"):
        found = column_ranges(pa.table({"c": [text]}), ["c"])
        if upper_bound(text) is None:
            assert text.startswith(LAST * BOUND_CHARS_MAX)
            assert not found
            continue
        low, high = str(found[0].low), str(found[0].high)
        assert low.encode() <= text.encode() <= high.encode()
        assert max(len(low), len(high)) <= BOUND_CHARS_MAX


@pytest.mark.parametrize(
    ("text", "high"),
    [
        ("x" * 65, "x" * 63 + "y"),
        ("x" * 63 + "\ud7ffz", "x" * 63 + "\ue000"),
        ("x" * 63 + LAST + "z", "x" * 62 + "y"),
        (LAST * 65, None),
        (LAST * 64, LAST * 64),
    ],
)
def test_a_cut_maximum_is_raised_in_its_last_character(text: str, high: str | None) -> None:
    assert upper_bound(text) == high


def test_a_file_has_ranges_of_all_columns_or_of_none() -> None:
    rows = pa.table({"a": [1, 2], "b": ["x", LAST * 65]})
    assert [each.column for each in column_ranges(rows, ["a"])] == ["a"]
    assert column_ranges(rows, ["a", "b"]) == []


def test_dictionaries_and_chunks_count_by_their_rows() -> None:
    # The dictionary has a value that no row has.
    array = pa.DictionaryArray.from_arrays(pa.array([0, None], pa.int32()), pa.array(["m", "z"]))
    rows = pa.table({"c": pa.chunked_array([array, array.slice(0, 1)])})
    assert column_ranges(rows, ["c"]) == [ColumnRange("c", StatType(ValueType.STRING), "m", "m", 3, 1)]


@pytest.mark.parametrize("kind", [pa.binary(), pa.list_(pa.int32()), pa.struct([("x", pa.int32())])], ids=str)
def test_columns_of_other_types_have_no_ranges(kind: pa.DataType) -> None:
    assert not has_ranges(kind)
    with pytest.raises(SchemaError, match="column c: .* can have no column stats"):
        column_ranges(pa.table({"c": pa.array([None], kind)}), ["c"])


def test_a_column_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(SchemaError, match="column b: the rows have no such column"):
        column_ranges(pa.table({"a": [1]}), ["b"])
