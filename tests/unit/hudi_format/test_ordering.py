"""Ordering values as int64: the order is Java's, and the value comes back."""

from __future__ import annotations

import math
import struct
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.log_file.deletes import OrderingType
from tidemark.hudi_format.ordering import NO_ORDERING, OrderingError, OrderingField, table_ordering
from tidemark.hudi_format.schema import SchemaError, TableSchema
from tidemark.hudi_format.table_config import (
    MergeMode,
    TableDefinition,
    TableType,
    new_table_properties,
    parse_table_config,
)


def field_of(arrow: pa.DataType) -> OrderingField:
    return OrderingField.of(TableSchema.from_arrow("t", pa.schema([pa.field("o", arrow)])), "o")


def java_double_key(value: float) -> tuple[int, float, float]:
    """Double.compare written out: numbers by value, -0.0 before 0.0, NaN last."""
    if math.isnan(value):
        return (1, 0.0, 0.0)
    return (0, value, math.copysign(1.0, value))


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=50))
def test_doubles_order_as_java_compares_them(values: list[float]) -> None:
    field = field_of(pa.float64())
    ordering = field.to_int64(pa.array(values, pa.float64()))
    for i, a in enumerate(values):
        for j, b in enumerate(values):
            assert (ordering[i] < ordering[j]) == (java_double_key(a) < java_double_key(b))
    back = field.from_int64(ordering).to_pylist()
    for returned, value in zip(back, values, strict=True):
        assert (
            math.isnan(returned)
            if math.isnan(value)
            else struct.pack(">d", returned) == struct.pack(">d", value)
        )


@given(st.lists(st.floats(width=32), min_size=2, max_size=50))
def test_floats_order_as_java_compares_them(values: list[float]) -> None:
    ordering = field_of(pa.float32()).to_int64(pa.array(values, pa.float32()))
    order = sorted(range(len(values)), key=lambda i: java_double_key(values[i]))
    assert all(ordering[a] <= ordering[b] for a, b in pairwise(order))


@pytest.mark.parametrize(
    ("arrow", "wrapper", "low", "high"),
    [
        (pa.int32(), OrderingType.INT, -(2**31), 2**31 - 1),
        (pa.int64(), OrderingType.LONG, -(2**63) + 1, 2**63 - 1),
        (pa.date32(), OrderingType.INT, -719162, 2932896),
        (pa.timestamp("us", "UTC"), OrderingType.LONG, -(2**62), 2**62),
        (pa.timestamp("us"), OrderingType.LONG, -(2**62), 2**62),
    ],
)
def test_whole_numbers_keep_their_value(
    arrow: pa.DataType, wrapper: OrderingType, low: int, high: int
) -> None:
    field = field_of(arrow)
    assert field.delete_type is wrapper
    storage = pa.int32() if arrow.bit_width == 32 else pa.int64()
    column = pa.chunked_array(
        [pa.array([low, 0], storage).view(arrow), pa.array([high], storage).view(arrow)]
    )
    ordering = field.to_int64(column)
    assert ordering.tolist() == [low, 0, high]
    assert field.from_int64(ordering).equals(column.combine_chunks())


def test_null_is_an_error_or_below_everything() -> None:
    field = field_of(pa.int64())
    column = pa.array([5, None, -7])
    with pytest.raises(OrderingError, match="field o: 1 of 3"):
        field.to_int64(column)
    assert field.to_int64_or_lowest(column).tolist() == [5, NO_ORDERING, -7]
    assert (
        field.to_int64_or_lowest(pa.array([None, 1.5], pa.float64()).cast(pa.float64()).slice(0, 0)).size == 0
    )


def test_column_of_another_type_is_an_error() -> None:
    with pytest.raises(OrderingError, match="field o"):
        field_of(pa.int64()).to_int64(pa.array(["a"]))


@pytest.mark.parametrize(
    "arrow", [pa.string(), pa.decimal128(10, 2), pa.bool_(), pa.binary(), pa.timestamp("ms", "UTC")]
)
def test_unserved_type_is_refused(arrow: pa.DataType) -> None:
    with pytest.raises(UnsupportedTableError, match="ordering field o has type"):
        field_of(arrow)


def test_missing_column_is_refused() -> None:
    with pytest.raises(SchemaError, match="no such column"):
        OrderingField.of(TableSchema.from_arrow("t", pa.schema([pa.field("o", pa.int64())])), "p")


def config_with(**properties: str):
    definition = TableDefinition(
        name="t", table_type=TableType.COPY_ON_WRITE, record_key_fields=("id",), ordering_fields=("o",)
    )
    return parse_table_config({**new_table_properties(definition), **properties})


def test_table_ordering_follows_the_merge_mode() -> None:
    schema = TableSchema.from_arrow("t", pa.schema([pa.field("o", pa.int64())]))
    mode, field = table_ordering(config_with(), schema)
    assert mode is MergeMode.EVENT_TIME_ORDERING
    assert field is not None
    assert field.name == "o"
    by_commit = config_with(**{"hoodie.record.merge.mode": "COMMIT_TIME_ORDERING"})
    assert table_ordering(by_commit, schema) == (MergeMode.COMMIT_TIME_ORDERING, None)
    for refused in (
        {"hoodie.record.merge.mode": "CUSTOM"},
        {"hoodie.table.ordering.fields": ""},
        {"hoodie.table.ordering.fields": "o,p"},
    ):
        with pytest.raises(UnsupportedTableError):
            table_ordering(config_with(**refused), schema)
