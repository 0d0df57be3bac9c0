"""Framed Avro to columns: every writer's schema is read as the table's, or refused with what does not fit."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.index_assigner.avro_world import Reads, decode, framed, messages, record_schema
from tidemark.record_formats.refusals import DeadLetterReason
from tidemark.stream_runtime.schema_registry.ports import JSON, StoredSchema

NOON = datetime(2024, 2, 29, 12, 0, 0, 123456, UTC)


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


@pytest.mark.parametrize(
    ("column", "avro", "given", "expected"),
    [
        ("i", "int", -(2**31), -(2**31)),
        ("i", ["null", "int"], None, None),
        ("l", "int", 5, 5),
        ("l", "long", 2**63 - 1, 2**63 - 1),
        ("f", "int", 5, 5.0),
        ("f", "float", 0.5, 0.5),
        ("d", "long", 2**60, float(2**60)),
        ("d", "float", 0.5, 0.5),
        ("d", ["null", "double"], 1e300, 1e300),
        ("b", "boolean", True, True),
        ("raw", "bytes", b"\x00\xff", b"\x00\xff"),
        ("raw", "string", "é", "é".encode()),
        ("raw", {"type": "fixed", "name": "f2", "size": 2}, b"ab", b"ab"),
        ("status", "bytes", "é".encode(), "é"),
        ("status", {"type": "enum", "name": "e", "symbols": ["ON", "OFF"]}, "OFF", "OFF"),
        ("status", ["null", "string"], None, None),
        ("day", logical("int", "date"), date(2024, 2, 29), date(2024, 2, 29)),
        ("day", {"type": "int", "connect.name": "io.debezium.time.Date"}, -1, date(1969, 12, 31)),
        ("micros", logical("long", "timestamp-micros"), NOON, NOON),
        ("micros", logical("long", "timestamp-millis"), NOON, NOON.replace(microsecond=123000)),
        ("micros", "long", 1709208000123456, NOON),
        ("micros", {"type": "long", "connect.name": "io.debezium.time.NanoTimestamp"}, -1, None),
        ("micros", "string", "2024-02-29T14:00:00.123456+02:00", NOON),
        ("millis", logical("long", "timestamp-micros"), NOON, NOON.replace(microsecond=123000)),
        ("dec", logical("bytes", "decimal", precision=10, scale=2), Decimal("-12.34"), Decimal("-12.34")),
        ("dec", logical("bytes", "decimal", precision=5, scale=1), Decimal("1.5"), Decimal("1.50")),
        (
            "dec",
            {"type": "fixed", "name": "d", "size": 16, "logicalType": "decimal", "precision": 20, "scale": 4},
            Decimal("1.2300"),
            Decimal("1.23"),
        ),
        ("dec", "string", "1.5", Decimal("1.50")),
        ("dec", "int", 7, Decimal("7.00")),
        ("list", {"type": "array", "items": "int"}, [1, 2], [1, 2]),
        ("list", {"type": "array", "items": ["long", "null"]}, [1, None], [1, None]),
        ("map", {"type": "map", "values": "int"}, {"x": 1, "": 2}, [("x", 1), ("", 2)]),
        (
            "rec",
            record_schema("r", {"n": "int", "extra": "double"}),
            {"n": 1, "extra": 2.0},
            {"n": 1, "s": None},
        ),
        ("d", ["null", "int", "double"], 5, 5.0),
        ("d", ["null", "int", "double"], 5.5, 5.5),
        ("status", ["null", "string", "long"], "text", "text"),
    ],
)
def test_a_writers_value_is_read_as_the_column(column, avro, given, expected):
    row = Reads().one({column: avro}, **{column: given})
    if expected is None and given is not None:
        expected = datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)
    assert row[column] == expected


@pytest.mark.parametrize(
    ("column", "avro", "given"),
    [
        ("i", "long", 5),
        ("l", "double", 5.0),
        ("f", "double", 5.0),
        ("b", "int", 1),
        ("status", "long", 1),
        ("status", logical("bytes", "decimal", precision=5, scale=1), Decimal("1.5")),
        ("day", "long", 1),
        ("micros", logical("long", "time-micros"), 1),
        ("dec", "double", 1.5),
        ("list", "string", "x"),
        ("map", {"type": "array", "items": "long"}, [1]),
        ("rec", record_schema("r", {"other": "long"}), {"other": 1}),
        ("rec", record_schema("r", {"n": "string"}), {"n": "1"}),
        ("i", ["string", "boolean"], "x"),
        ("rec", ["null", record_schema("r", {"n": "long"}), record_schema("q", {"m": "long"})], {"m": 1}),
        ("rec", [{"type": "map", "values": "long"}, record_schema("r", {"n": "long"})], {"x": 1}),
        (
            "dec",
            [
                logical("bytes", "decimal", precision=9, scale=2),
                {
                    "type": "fixed",
                    "name": "x",
                    "size": 8,
                    "logicalType": "decimal",
                    "precision": 9,
                    "scale": 4,
                },
            ],
            b"1",
        ),
        ("micros", [logical("long", "timestamp-millis"), "int"], 5),
    ],
)
def test_a_writers_type_that_is_not_the_columns_is_refused_with_field_and_schema(column, avro, given):
    refusal = Reads().one({column: avro}, **{column: given})
    assert refusal.reason is DeadLetterReason.INCOMPATIBLE_SCHEMA
    assert column in refusal.detail
    assert "schema 7" in refusal.detail


@pytest.mark.parametrize(
    ("column", "avro", "given"),
    [
        ("dec", logical("bytes", "decimal", precision=30, scale=2), Decimal("123456789012.00")),
        ("dec", logical("bytes", "decimal", precision=10, scale=4), Decimal("0.0001")),
        ("dec", "string", "many"),
        ("dec", "string", "1e-9999999"),
        ("dec", "string", "5e-41"),
        ("dec", "string", "NaN"),
        ("dec", logical("bytes", "decimal", precision=38, scale=0), Decimal(10**37)),
        ("micros", logical("long", "timestamp-millis"), 2**62),
        ("micros", "string", "soon"),
        ("status", ["null", "string", "long"], 5),
        ("rec", record_schema("r", {"n": ["null", "long"]}), {"n": None}),
    ],
)
def test_a_value_that_does_not_fit_is_refused_alone(column, avro, given):
    reads = Reads()
    schema = record_schema(
        "w", {"id": "string", column: ["null", *(avro if isinstance(avro, list) else [avro])]}
    )
    schema["fields"][1]["type"] = list(dict.fromkeys(map(json.dumps, schema["fields"][1]["type"])))
    schema["fields"][1]["type"] = [json.loads(each) for each in schema["fields"][1]["type"]]
    reads.registry.register(7, schema)
    values = [framed(7, schema, {"id": str(n), column: given if n == 1 else None}) for n in range(3)]
    decoded = decode(reads.decoder, *values)
    assert [(each.position, each.reason) for each in decoded.refused] == [
        (1, DeadLetterReason.MISTYPED_FIELD)
    ]
    assert column in decoded.refused[0].detail
    assert decoded.rows.column("id").to_pylist() == ["0", "2"]


def test_what_the_writer_lacks_is_null_or_the_tables_default():
    row = Reads().one({})
    assert row["status"] == "new"
    assert {row[name] for name in row if name not in ("id", "status")} == {None}


def test_a_new_schema_version_in_the_middle_of_a_batch_is_read_like_the_old_one():
    reads = Reads()
    old = record_schema("w", {"id": "string", "l": "int"})
    new = record_schema("w", {"id": "string", "l": "long", "status": "string", "added": "double"})
    reads.registry.register(1, old)
    reads.registry.register(2, new)
    decoded = decode(
        reads.decoder,
        framed(1, old, {"id": "a", "l": 1}),
        framed(2, new, {"id": "b", "l": 2**40, "status": "old", "added": 0.5}),
        framed(1, old, {"id": "c", "l": 3}),
    )
    rows = [(row["id"], row["l"], row["status"]) for row in decoded.rows.to_pylist()]
    assert rows == [("a", 1, "new"), ("b", 2**40, "old"), ("c", 3, "new")]
    assert sorted(reads.registry.asked) == [1, 2]
    decode(reads.decoder, framed(1, old, {"id": "a", "l": 1}))
    assert len(reads.registry.asked) == 2


def test_unknown_fields_are_refused_where_the_configuration_says_so():
    refusal = Reads(strict=True).one({"added": "long"}, added=1)
    assert refusal.reason is DeadLetterReason.UNKNOWN_FIELD
    assert "added" in refusal.detail
    nested = Reads(strict=True).one(
        {"rec": record_schema("r", {"n": "long", "zz": "int"})}, rec={"n": 1, "zz": 1}
    )
    assert nested.reason is DeadLetterReason.UNKNOWN_FIELD
    assert "rec.zz" in nested.detail
    assert Reads(strict=True, delete_field="gone").one({"gone": "boolean"}, gone=False)["id"] == "a"


def test_the_delete_field_is_a_flag():
    reads = Reads(delete_field="gone")
    schema = record_schema("w", {"id": "string", "gone": ["null", "boolean"]})
    reads.registry.register(1, schema)
    flags = (True, False, None)
    decoded = decode(reads.decoder, *(framed(1, schema, {"id": "a", "gone": flag}) for flag in flags))
    assert decoded.deletes.tolist() == [True, False, False]
    mistyped = Reads(delete_field="gone").one({"gone": "long"}, gone=1)
    assert mistyped.reason is DeadLetterReason.INCOMPATIBLE_SCHEMA


def test_the_delete_field_may_be_text_as_debezium_flattens_it():
    reads = Reads(delete_field="gone")
    schema = record_schema("w", {"id": "string", "gone": ["null", "string"]})
    reads.registry.register(1, schema)
    flags = ("true", "false", None)
    decoded = decode(reads.decoder, *(framed(1, schema, {"id": "a", "gone": flag}) for flag in flags))
    assert decoded.deletes.tolist() == [True, False, False]


def test_named_types_are_followed_within_a_schema_and_into_referenced_ones():
    reads = Reads()
    inner = {**record_schema("inner", {"n": "long"}), "namespace": "shop.types"}
    schema = record_schema(
        "w", {"id": "string", "rec": ["null", "shop.types.inner"], "again": "shop.types.inner"}
    )
    reads.registry.register(3, schema, inner)
    whole = record_schema("w", {"id": "string", "rec": ["null", inner], "again": "shop.types.inner"})
    decoded = decode(reads.decoder, framed(3, whole, {"id": "a", "rec": {"n": 5}, "again": {"n": 6}}))
    assert decoded.rows.to_pylist()[0]["rec"] == {"n": 5, "s": None}


def test_bytes_that_are_no_record_are_refused_alone():
    reads = Reads()
    schema = record_schema("w", {"id": "string", "l": "long"})
    reads.registry.register(1, schema)
    good = framed(1, schema, {"id": "a", "l": 5})
    bad = [good[:-1], good + b"x", good[:5] + b"\xff" * 40, good[:5], b"", b"{}", b"\x01" + good[1:]]
    decoded = decode(reads.decoder, good, *bad, good)
    assert decoded.rows.column("l").to_pylist() == [5, 5]
    reasons = {each.position: each.reason for each in decoded.refused}
    assert [reasons[n] for n in range(1, 8)] == [DeadLetterReason.NOT_AVRO] * 4 + [
        DeadLetterReason.NOT_FRAMED
    ] * 3


def test_a_record_with_a_negative_index_is_refused_alone():
    """-1 is no branch and no symbol, though Python takes it for the last one."""
    reads = Reads()
    enum = {"type": "enum", "name": "e", "symbols": ["ON", "OFF"]}
    schema = record_schema("w", {"status": enum, "l": ["null", "long"]})
    reads.registry.register(1, schema)
    good = framed(1, schema, {"status": "OFF", "l": 5})
    assert good[5:] == b"\x02\x02\x0a"
    wrong = [good[:5] + b"\x01" + good[6:], good[:6] + b"\x01" + good[7:], good[:6] + b"\x03"]
    decoded = decode(reads.decoder, good, *wrong, good)
    assert decoded.rows.column("status").to_pylist() == ["OFF", "OFF"]
    assert [(each.position, each.reason) for each in decoded.refused] == [
        (position, DeadLetterReason.NOT_AVRO) for position in (1, 2, 3)
    ]


def test_a_schema_of_another_kind_or_of_no_record_is_refused():
    reads = Reads()
    reads.registry.schemas[1] = StoredSchema(JSON, "{}")
    reads.registry.register(2, {"type": "array", "items": "string"})
    reads.registry.schemas[3] = StoredSchema("AVRO", '{"type": "record", broken')
    heads = [b"\x00" + n.to_bytes(4, "big") + b"\x00" for n in (1, 2, 3)]
    decoded = decode(reads.decoder, *heads)
    assert {each.reason for each in decoded.refused} == {DeadLetterReason.INCOMPATIBLE_SCHEMA}
    assert "JSON" in decoded.refused[0].detail


READS = Reads()
WRITER = record_schema(
    "w",
    {
        "id": "string",
        "l": ["null", "int", "string"],
        "list": {"type": "array", "items": "long"},
        "rec": ["null", record_schema("r", {"n": "long"})],
        "dec": ["null", logical("bytes", "decimal", precision=10, scale=2)],
    },
)
READS.registry.register(7, WRITER)
HEAD = b"\x00\x00\x00\x00\x07"
unframed = st.binary(max_size=20).filter(lambda content: not content.startswith(b"\x00"))
contents = st.binary(max_size=60).map(lambda tail: HEAD + tail) | unframed
whole = st.fixed_dictionaries(
    {
        "id": st.text(max_size=5),
        "l": st.none() | st.integers(-(2**31), 2**31 - 1) | st.text(max_size=3),
        "list": st.lists(st.integers(-5, 5), max_size=3),
        "rec": st.none() | st.fixed_dictionaries({"n": st.integers(-9, 9)}),
        "dec": st.none() | st.decimals(places=2, min_value=-(10**7), max_value=10**7),
    }
)


@settings(max_examples=150, deadline=None)
@given(st.lists(contents | whole.map(lambda record: framed(7, WRITER, record)), max_size=8))
def test_decoding_never_raises_and_every_record_is_a_row_or_a_refusal(values):
    decoded = decode(READS.decoder, *values)
    assert decoded.positions.tolist() == sorted(decoded.positions.tolist())
    for row, position in enumerate(decoded.positions.tolist()):
        alone = decode(READS.decoder, values[position])
        assert alone.rows.equals(decoded.rows.slice(row, 1))


@given(whole)
def test_what_was_written_is_what_is_read(record):
    decoded = decode(READS.decoder, framed(7, WRITER, record))
    if isinstance(record["l"], str):
        assert decoded.refused[0].reason is DeadLetterReason.MISTYPED_FIELD
        return
    row = decoded.rows.to_pylist()[0]
    rec = record["rec"]
    assert (row["id"], row["l"], row["list"], row["dec"]) == (
        record["id"],
        record["l"],
        record["list"],
        record["dec"],
    )
    assert row["rec"] == (None if rec is None else {"n": rec["n"], "s": None})


def test_positions_are_the_callers():
    reads = Reads()
    schema = record_schema("w", {"id": "string"})
    reads.registry.register(1, schema)
    batch = messages([None, framed(1, schema, {"id": "a"}), b"?", framed(1, schema, {"id": "b"})])
    decoded = reads.decoder.decode(batch, np.array([1, 2, 3]))
    assert decoded.positions.tolist() == [1, 3]
    assert [each.position for each in decoded.refused] == [2]
