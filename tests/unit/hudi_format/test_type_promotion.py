"""Widened columns: values are those that Hudi's readers see in files of the narrow type."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidemark.hudi_format.schema import SchemaError
from tidemark.hudi_format.type_promotion import cast_values, is_promotion, java_text

INT, LONG, FLOAT, DOUBLE, TEXT = pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string()


@pytest.mark.parametrize(
    ("narrow", "values", "wide", "expected"),
    [
        (INT, [1, None, -(2**31)], LONG, [1, None, -(2**31)]),
        # Spark read `0.1` of a table whose float column became double, and `1` of one whose int became
        # string.
        (FLOAT, [0.1, None, 1e10, 16777216.0], DOUBLE, [0.1, None, 1e10, 16777216.0]),
        (INT, [7, None], TEXT, ["7", None]),
        (LONG, [2**53 + 1], DOUBLE, [2.0**53]),
        (LONG, [-(2**63)], TEXT, ["-9223372036854775808"]),
        (FLOAT, [0.1, 3.4e38], TEXT, ["0.1", "3.4E38"]),
        (DOUBLE, [1e10, 1e7, 9999999.0, -0.0, 1e-3, 1e-4], TEXT,
         ["1.0E10", "1.0E7", "9999999.0", "-0.0", "0.001", "1.0E-4"]),
        (DOUBLE, [5e-324, float("inf"), float("nan")], TEXT, ["4.9E-324", "Infinity", "NaN"]),
    ],
)  # fmt: skip
def test_a_promoted_column_has_the_values_that_hudi_shows(
    narrow: pa.DataType, values: list[Any], wide: pa.DataType, expected: list[Any]
) -> None:
    assert is_promotion(narrow, wide)
    assert not is_promotion(wide, narrow)
    assert cast_values(pa.array(values, narrow), wide).to_pylist() == expected


def test_the_smallest_float_is_printed_as_java_prints_it() -> None:
    assert java_text(np.float32(1e-45)) == "1.4E-45"
    assert java_text(np.float64(-1.2345e21)) == "-1.2345E21"


def test_nested_values_are_promoted_and_nulls_stay() -> None:
    narrow = pa.struct([("a", INT), ("b", pa.list_(FLOAT)), ("m", pa.map_(TEXT, FLOAT))])
    wide = pa.struct(
        [("new", TEXT), ("m", pa.map_(TEXT, TEXT)), ("b", pa.list_(pa.field("element", DOUBLE))), ("a", LONG)]
    )
    rows = [{"a": 1, "b": [0.1, None], "m": [("x", 0.1)]}, None, {"a": None, "b": None, "m": None}]
    cast = cast_values(pa.array(rows, narrow), wide)
    assert cast.type == wide
    assert cast.to_pylist() == [
        {"new": None, "m": [("x", "0.1")], "b": [0.1, None], "a": 1},
        None,
        {"new": None, "m": None, "b": None, "a": None},
    ]
    part = pa.array(rows, narrow).slice(1)
    assert cast_values(part, wide).to_pylist() == cast.to_pylist()[1:]


def test_decimals_of_another_scale_are_exact_or_an_error() -> None:
    """Arrow made 115156.46… of the first of these."""
    values = [Decimal("7135836390.8"), None]
    with pytest.raises(SchemaError, match="does not fit"):
        cast_values(pa.array(values, pa.decimal128(13, 1)), pa.decimal128(38, 32))
    wider = cast_values(pa.array(values, pa.decimal128(13, 1)), pa.decimal128(38, 28))
    assert (wider.type, wider.to_pylist()) == (pa.decimal128(38, 28), values)


@pytest.mark.parametrize(
    ("have", "wanted"),
    [(pa.array([2**40]), INT), (pa.array(["1"]), INT), (pa.array([True]), TEXT), (pa.array([0.5]), LONG)],
)
def test_what_would_change_a_value_is_an_error(have: pa.Array, wanted: pa.DataType) -> None:
    with pytest.raises(SchemaError):
        cast_values(have, wanted)
