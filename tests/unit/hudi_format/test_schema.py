"""Avro and Arrow schemas, their union, and casting rows to them."""

from __future__ import annotations

import json
from decimal import Decimal

import fastavro
import pyarrow as pa
import pytest

from tidemark.hudi_format.schema import META_COLUMNS, SchemaError, TableSchema, cast_rows, union

# As Hudi 1.2.0 on Spark wrote it into a commit, for a table `trips` (one column of every served type).
SPARK_SCHEMA = {
    "type": "record",
    "name": "trips_record",
    "namespace": "hoodie.trips",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "i", "type": ["null", "int"], "default": None},
        {"name": "l", "type": ["null", "long"], "default": None},
        {"name": "f", "type": ["null", "float"], "default": None},
        {"name": "d", "type": ["null", "double"], "default": None},
        {"name": "b", "type": ["null", "boolean"], "default": None},
        {"name": "raw", "type": ["null", "bytes"], "default": None},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}], "default": None},
        {
            "name": "ts",
            "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}],
            "default": None,
        },
        {
            "name": "local",
            "type": ["null", {"type": "long", "logicalType": "local-timestamp-micros"}],
            "default": None,
        },
        {
            "name": "price",
            "type": [
                "null",
                {
                    "type": "fixed",
                    "name": "fixed",
                    "namespace": "hoodie.trips.trips_record.price",
                    "size": 5,
                    "logicalType": "decimal",
                    "precision": 10,
                    "scale": 2,
                },
            ],
            "default": None,
        },
        {"name": "tags", "type": ["null", {"type": "array", "items": ["null", "string"]}], "default": None},
        {"name": "attrs", "type": ["null", {"type": "map", "values": ["null", "long"]}], "default": None},
        {
            "name": "st",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "st",
                    "namespace": "hoodie.trips.trips_record",
                    "fields": [
                        {"name": "a", "type": ["null", "string"], "default": None},
                        {
                            "name": "m",
                            "type": [
                                "null",
                                {
                                    "type": "fixed",
                                    "name": "fixed",
                                    "namespace": "hoodie.trips.trips_record.st.m",
                                    "size": 9,
                                    "logicalType": "decimal",
                                    "precision": 20,
                                    "scale": 3,
                                },
                            ],
                            "default": None,
                        },
                    ],
                },
            ],
            "default": None,
        },
    ],
}


def schema_of(*fields: pa.Field, name: str = "t") -> TableSchema:
    return TableSchema.from_arrow(name, pa.schema(list(fields)))


def avro_of(field_type: object, name: str = "c") -> str:
    return json.dumps({"type": "record", "name": "t", "fields": [{"name": name, "type": field_type}]})


def test_schema_of_every_type_comes_back_as_spark_writes_it() -> None:
    schema = TableSchema.from_avro(json.dumps(SPARK_SCHEMA))
    assert schema.table_name == "trips"
    assert json.loads(schema.avro_json) == SPARK_SCHEMA
    assert schema.arrow.field("price").type == pa.decimal128(10, 2)
    assert schema.arrow.field("ts").type == pa.timestamp("us", "UTC")
    assert schema.arrow.field("local").type == pa.timestamp("us")
    assert not schema.arrow.field("id").nullable
    assert schema.arrow.field("i").nullable


def test_schema_with_meta_columns_is_valid_avro_and_reads_back_without_them() -> None:
    schema = TableSchema.from_avro(json.dumps(SPARK_SCHEMA))
    fastavro.parse_schema(json.loads(schema.avro_with_meta_json))
    assert schema.arrow_with_meta.names[:5] == list(META_COLUMNS)
    again = TableSchema.from_avro(schema.avro_with_meta_json)
    assert again.arrow.equals(schema.arrow)
    assert again.fingerprint == schema.fingerprint


def test_user_schema_gets_canonical_names_and_fixed_decimals() -> None:
    user = {
        "type": "record",
        "name": "Flight",
        "namespace": "org.example",
        "fields": [
            {"name": "id", "type": "string", "doc": "the key"},
            {
                "name": "price",
                "type": [
                    {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 4},
                    "null",
                ],
            },
        ],
    }
    schema = TableSchema.from_avro(json.dumps(user), "my-flights")
    avro = json.loads(schema.avro_json)
    assert (avro["name"], avro["namespace"]) == ("my__flights_record", "hoodie.my__flights")
    fixed = avro["fields"][1]["type"][1]
    assert fixed["size"] == 16
    assert fixed["namespace"] == "hoodie.my__flights.my__flights_record.price"


@pytest.mark.parametrize(
    ("precision", "size"), [(1, 1), (2, 1), (3, 2), (9, 4), (10, 5), (18, 8), (19, 9), (38, 16)]
)
def test_decimal_size_is_the_smallest_that_holds_the_precision(precision: int, size: int) -> None:
    schema = schema_of(pa.field("c", pa.decimal128(precision, 0), nullable=False))
    assert json.loads(schema.avro_json)["fields"][0]["type"]["size"] == size


@pytest.mark.parametrize(
    ("avro", "words"),
    [
        (["null", "int", "string"], "union"),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, "enum"),
        ({"type": "fixed", "name": "f", "size": 4}, "fixed"),
        ({"type": "int", "logicalType": "time-millis"}, "time-millis"),
        ({"type": "fixed", "name": "f", "size": 1, "logicalType": "decimal", "precision": 9}, "too small"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 39}, "outside"),
        ({"type": "record", "name": "r", "fields": []}, "without fields"),
        ("Other", "Other"),
        (7, "7"),
    ],
)
def test_unserved_type_is_refused_by_column_and_type(avro: object, words: str) -> None:
    with pytest.raises(SchemaError, match="column c") as raised:
        TableSchema.from_avro(avro_of(avro))
    assert words in str(raised.value)


@pytest.mark.parametrize("name", ["_hoodie_file", "a-b", "", "1a"])
def test_column_name_that_cannot_be_is_refused(name: str) -> None:
    with pytest.raises(SchemaError):
        schema_of(pa.field(name, pa.string()))


def test_columns_that_differ_in_case_only_are_refused() -> None:
    with pytest.raises(SchemaError, match="occurs twice"):
        schema_of(pa.field("Day", pa.string()), pa.field("day", pa.string()))


def test_schema_that_is_no_record_is_refused() -> None:
    for text in ("", "[]", '"string"', '{"type":"record","name":"x"}'):
        with pytest.raises(SchemaError):
            TableSchema.from_avro(text)


def test_union_adds_new_columns_at_the_end_and_makes_one_sided_ones_nullable() -> None:
    first = schema_of(
        pa.field("id", pa.string(), nullable=False), pa.field("old", pa.int32(), nullable=False)
    )
    second = schema_of(
        pa.field("new", pa.int64(), nullable=False), pa.field("id", pa.string(), nullable=False)
    )
    both = union(first, second)
    assert [(field.name, field.nullable) for field in both.arrow] == [
        ("id", False),
        ("old", True),
        ("new", True),
    ]
    assert union(both, second).fingerprint == both.fingerprint


def test_union_reaches_into_nested_records_lists_and_maps() -> None:
    def nested(*names: str) -> TableSchema:
        record = pa.struct([pa.field(name, pa.int32()) for name in names])
        return schema_of(
            pa.field("st", record),
            pa.field("li", pa.list_(pa.field("element", record))),
            pa.field("ma", pa.map_(pa.string(), record)),
        )

    both = union(nested("a"), nested("b")).arrow
    wanted = pa.struct([pa.field("a", pa.int32()), pa.field("b", pa.int32())])
    assert both.field("st").type == wanted
    assert both.field("li").type.value_type == wanted
    assert both.field("ma").type.item_type == wanted


@pytest.mark.parametrize(
    ("old", "new"), [(pa.int32(), pa.int64()), (pa.float64(), pa.bool_()), (pa.string(), pa.binary())]
)
def test_union_refuses_a_changed_type_promotion_by_us_included(old: pa.DataType, new: pa.DataType) -> None:
    with pytest.raises(SchemaError, match="column c: its type changed"):
        union(schema_of(pa.field("c", old)), schema_of(pa.field("c", new)))


def test_field_finds_nested_columns_and_names_what_is_missing() -> None:
    schema = TableSchema.from_avro(json.dumps(SPARK_SCHEMA))
    assert schema.field("st.a").type == pa.string()
    with pytest.raises(SchemaError, match=r"st\.x"):
        schema.field("st.x")
    with pytest.raises(SchemaError, match="no such column"):
        schema.field("nope")


def test_cast_rows_fills_new_columns_widens_and_drops_unknown_ones() -> None:
    rows = pa.table(
        {
            "gone": [1, 2],
            "n": pa.array([1, 2], pa.int32()),
            "st": pa.array([{"a": 1}, None], pa.struct([("a", pa.int32())])),
            "li": pa.array([["x"], None], pa.list_(pa.field("array", pa.string(), nullable=False))),
        }
    )
    wanted = pa.schema(
        [
            pa.field("n", pa.int64()),
            pa.field("new", pa.decimal128(4, 2)),
            pa.field("st", pa.struct([pa.field("a", pa.int32()), pa.field("b", pa.string())])),
            pa.field("li", pa.list_(pa.field("element", pa.string()))),
        ]
    )
    cast = cast_rows(rows, wanted)
    assert cast.schema.equals(wanted)
    assert cast.to_pylist() == [
        {"n": 1, "new": None, "st": {"a": 1, "b": None}, "li": ["x"]},
        {"n": 2, "new": None, "st": None, "li": None},
    ]


def test_cast_rows_refuses_values_that_do_not_fit_and_missing_required_ones() -> None:
    with pytest.raises(SchemaError, match="column n"):
        cast_rows(pa.table({"n": [2**40]}), pa.schema([pa.field("n", pa.int32())]))
    with pytest.raises(SchemaError, match="column p"):
        cast_rows(pa.table({"p": [Decimal("1.234")]}), pa.schema([pa.field("p", pa.decimal128(4, 2))]))
    required = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    with pytest.raises(SchemaError, match="must not be null"):
        cast_rows(pa.table({"n": pa.array([None, 1])}), required)
    with pytest.raises(SchemaError, match="must not be null"):
        cast_rows(pa.table({"m": [1]}), required)
