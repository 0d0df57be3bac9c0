"""What becomes of a column with column stats or a secondary index when another writer changes its type, for
each change that Hudi 1.2.0 has a rule for (`HoodieSchemaCompatibilityChecker`, `SchemaChangeUtils`).

Before every plan the newest schemas of the timeline are united, then the indexed columns are looked up in
that one: what neither refuses is written, so these two decide.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from tidemark.hudi_format.column_ranges import has_ranges
from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.metadata_table.partitions.secondary_index_codec import value_texts
from tidemark.hudi_format.metadata_table.secondary_layout import SecondaryLayout
from tidemark.hudi_format.schema import SchemaError, TableSchema, cast_rows, newer_union

INT, LONG, FLOAT, DOUBLE = pa.int32(), pa.int64(), pa.float32(), pa.float64()
STRING, BYTES, DATE = pa.string(), pa.binary(), pa.date32()
MILLIS, MICROS, LOCAL = pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC"), pa.timestamp("us")
NARROW, WIDE, LONGER = pa.decimal128(10, 2), pa.decimal128(12, 2), pa.decimal128(12, 4)
KEPT = [(INT, LONG), (INT, STRING), (LONG, STRING)]
"""The index has the texts of the values, which stay as they are."""
NO_SECONDARY = [
    (INT, FLOAT), (INT, DOUBLE), (LONG, FLOAT), (LONG, DOUBLE),
    (FLOAT, DOUBLE), (FLOAT, STRING), (DOUBLE, STRING),
]  # fmt: skip
"""A secondary index cannot be of the new type, or could not of the former one."""
REFUSED = [
    (INT, NARROW), (LONG, NARROW), (FLOAT, NARROW), (DOUBLE, NARROW), (STRING, NARROW),
    (NARROW, WIDE), (NARROW, LONGER), (NARROW, STRING), (LONG, MILLIS), (LONG, MICROS), (LONG, LOCAL),
    (MILLIS, MICROS), (MICROS, MILLIS), (MICROS, LOCAL), (LOCAL, MICROS), (MICROS, LONG), (MICROS, STRING),
    (DATE, STRING), (STRING, DATE), (DATE, INT), (INT, DATE), (DATE, MICROS),
    (BYTES, STRING), (STRING, BYTES),
]  # fmt: skip
"""No schema of both is made: the stream halts before anything is planned."""


def schema_of(kind: pa.DataType) -> TableSchema:
    return TableSchema.from_arrow("t", pa.schema([("id", pa.string()), ("c", kind)]))


def united(former: pa.DataType, later: pa.DataType) -> TableSchema:
    """The table's schema behind a commit with the type `later`."""
    return newer_union(schema_of(later), schema_of(former))


def named(change: object) -> str:
    return str(change)


@pytest.mark.parametrize(("former", "later"), KEPT + NO_SECONDARY, ids=named)
def test_a_wider_type_can_have_column_stats(former: pa.DataType, later: pa.DataType) -> None:
    """The coordinator takes stats of numbers out when the column becomes one of strings
    (`tests/simulation/test_foreign_schema.py`).
    """
    schema = united(former, later)
    assert schema.arrow.field("c").type == later
    assert has_ranges(former)
    assert has_ranges(later)


@pytest.mark.parametrize(("former", "later"), KEPT, ids=named)
def test_a_secondary_index_stays_where_every_value_keeps_its_text(
    former: pa.DataType, later: pa.DataType
) -> None:
    schema = united(former, later)
    SecondaryLayout("secondary_index_c", "c", 2).check_schema(schema)
    values = pa.table({"c": pa.array([5, -7, 0, None, 2**31 - 1], former)})
    rows = cast_rows(values, pa.schema([schema.arrow.field("c")]))
    assert value_texts(rows.column("c")).equals(value_texts(values.column("c")))


@pytest.mark.parametrize(("former", "later"), NO_SECONDARY, ids=named)
def test_another_wider_type_is_refused_where_the_column_has_a_secondary_index(
    former: pa.DataType, later: pa.DataType
) -> None:
    layout = SecondaryLayout("secondary_index_c", "c", 2)
    kinds = (schema_of(former), united(former, later))
    refused = []
    for schema in kinds:
        try:
            layout.check_schema(schema)
        except UnsupportedTableError as error:
            refused.append(error.remedy)
    assert refused, "neither the former type nor the later one is refused"
    assert all("`tidemark index drop`" in remedy for remedy in refused)


@pytest.mark.parametrize(("former", "later"), REFUSED, ids=named)
def test_any_other_change_of_a_type_is_refused_with_its_column(
    former: pa.DataType, later: pa.DataType
) -> None:
    with pytest.raises(
        SchemaError, match=r"column c: its type changed from .* add a column under a new name"
    ):
        united(former, later)
