"""Ordinary records are never refused for the memory that they are counted with, whatever is in them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.hostile_avro import long as avro_long
from tests.unit.index_assigner.avro_world import framed, record_schema
from tests.unit.index_assigner.largest_records import FORMATS, RECORD_BYTES, Content, keyer
from tests.unit.index_assigner.shuffle_world import order, rules
from tests.unit.record_formats.test_memory_counts import (
    PROTOBUF_TABLE,
    AvroTable,
    array,
    longs,
    messages,
    nested,
    protobuf_types,
    record_keyer,
    told,
)
from tidemark.config.model import UnknownFields
from tidemark.epoch_protocol.batches import decode_batch
from tidemark.index_assigner.shuffle.keyed_parts import large_rows
from tidemark.index_assigner.shuffle.keyed_rows import RecordKeyer
from tidemark.index_assigner.shuffle.shuffle_batch import MESSAGE_OVERHEAD_BYTES, encode_lanes
from tidemark.record_formats.decode_avro import AvroDecoder
from tidemark.record_formats.decode_json import JsonDecoder
from tidemark.record_formats.decode_protobuf import ProtobufDecoder
from tidemark.record_formats.decoded_memory import MEMORY_MAX
from tidemark.record_formats.decoder import RecordDecoder, RowTarget
from tidemark.record_formats.plain_json import PlainJson
from tidemark.record_formats.refusals import DeadLetterReason

BYTES_MAX = 64 << 10
COLUMNS = 8
ROWS = record_schema(
    "rows",
    {
        "id": "string",
        "text": ["null", "string"],
        "number": ["null", "long"],
        "numbers": array(["null", "double"]),
        "lines": array(["null", longs("line", COLUMNS)]),
        "named": {"type": "map", "values": ["null", longs("named_line", COLUMNS)]},
    },
)
TABLE = AvroTable(ROWS)
whole = st.none() | st.integers(-(2**63), 2**63 - 1)
line = st.none() | st.fixed_dictionaries({f"column_{at}": whole for at in range(COLUMNS)})
rows = st.fixed_dictionaries(
    {
        "id": st.text(min_size=1, max_size=20),
        "text": st.none() | st.text(max_size=2_000),
        "number": whole,
        "numbers": st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False)),
        "lines": st.lists(line),
        "named": st.dictionaries(st.text(max_size=10), line),
    }
)
# By number: what the descriptor has, and what it lacks.
parts = st.lists(
    st.sampled_from([b"\x1a\0", b"\x1a\4\x0a\2\x0a\0", b"\x2a\2\0\0"])
    | st.binary(max_size=500).map(lambda content: nested(b"\x7a", content))
    | st.integers(0, 127).map(lambda number: bytes([0x78, number]))
)


def repeated(row: dict[str, Any], times: int) -> dict[str, Any]:
    """The row with longer arrays, as large as `BYTES_MAX` allows."""
    return {**row, "numbers": row["numbers"] * times, "lines": row["lines"] * times}


def check(decoder: RecordDecoder, made_of: Any, value: bytes, key: str) -> None:
    if len(value) <= BYTES_MAX:
        assert int(decoder.memory([value], MEMORY_MAX)[0]) <= MEMORY_MAX // 4
        assert told(made_of.key_records(messages(value))) == ([key], [])


@settings(max_examples=60, deadline=None)
@given(row=rows, times=st.integers(1, 50), ascii_only=st.booleans())
def test_json_and_avro_rows_are_taken(row: dict[str, Any], times: int, ascii_only: bool) -> None:
    large = repeated(row, times)
    plain = PlainJson(JsonDecoder(TABLE.schema, None, UnknownFields.DROP), TABLE.generator)
    text = json.dumps(large, ensure_ascii=ascii_only).encode()
    check(plain, record_keyer(TABLE.schema, plain), text, row["id"])
    avro = AvroDecoder(TABLE.target, {}, TABLE.keys, TABLE.registry, TABLE.clock)
    check(avro, TABLE.keyer(), framed(1, ROWS, large), row["id"])


@pytest.mark.parametrize("unknown", [UnknownFields.DROP, UnknownFields.IGNORE])
@settings(max_examples=40, deadline=None)
@given(found=parts, times=st.integers(1, 100))
def test_protobuf_rows_are_taken_with_fields_of_newer_types(
    unknown: UnknownFields, found: list[bytes], times: int
) -> None:
    target = RowTarget.of(PROTOBUF_TABLE, None, unknown)
    decoder = ProtobufDecoder(protobuf_types(), target, TABLE.generator, False)
    check(decoder, record_keyer(PROTOBUF_TABLE, decoder), b"\x0a\1a" + b"".join(found) * times, "a")


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("width", [1, 8, 40])
def test_one_large_text_is_a_row(format_: str, width: int) -> None:
    size = RECORD_BYTES - 200
    one = FORMATS[format_].make("a", Content(texts=1), width)
    short, long = {
        "json": (b'"ab"', b'"' + b"{,}[" * (size // 4) + b'"'),
        "avro": (avro_long(2) + b"ab", avro_long(size) + b"\xc3\xa9" * (size // 2)),
        "protobuf": (b"\x22\2ab", nested(b"\x22", b"\x1a\0" * (size // 2))),
    }[format_.removeprefix("debezium-")]
    assert one.count(short) == 1
    value = one.replace(short, long)
    assert len(value) <= RECORD_BYTES
    assert told(keyer(format_, width).key_records(messages(value))) == (["a"], [])


def wide_schema(columns: int) -> dict[str, Any]:
    kinds = ["string", "long", "double", "boolean"]
    fields = {f"column_{at}": ["null", kinds[at % len(kinds)]] for at in range(columns)}
    line = {"type": "array", "items": record_schema("line", {**fields})}
    return record_schema("rows", {"id": "string", **fields, "lines": ["null", line]})


def wide_row(key: str, columns: int, lines: int) -> dict[str, Any]:
    values = ["some text", 1_700_000_000_000, 3.25, True]
    row = {f"column_{at}": values[at % len(values)] for at in range(columns)}
    return {"id": key, **row, "lines": [row] * lines}


@pytest.mark.parametrize(("columns", "lines"), [(1_000, 100), (40, 4_000), (8, 16_000)])
@pytest.mark.parametrize("format_", ["json", "avro"])
def test_wide_and_nested_rows_of_ordinary_values_are_taken(format_: str, columns: int, lines: int) -> None:
    avro = wide_schema(columns)
    table = AvroTable(avro)
    row = wide_row("a", columns, lines)
    if format_ == "avro":
        made_of, value = table.keyer(), framed(1, avro, row)
    else:
        decoder = PlainJson(JsonDecoder(table.schema, None, UnknownFields.DROP), table.generator)
        made_of, value = record_keyer(table.schema, decoder), json.dumps(row, separators=(",", ":")).encode()
    assert RECORD_BYTES // 8 < len(value) <= RECORD_BYTES
    keyed = made_of.key_records(messages(value))
    assert told(keyed) == (["a"], [])
    assert len(keyed.rows.column("lines")[0]) == lines


def test_many_partitions_in_a_batch_make_no_row_too_large_for_a_message() -> None:
    limit = 20_000
    made_of = RecordKeyer(replace(rules(), row_bytes_max=limit - MESSAGE_OVERHEAD_BYTES))
    days = [f"day-{at}-" + "d" * 100 for at in range(1_000)]
    values = [order(f"k{at}", day=day) for at, day in enumerate(days)]
    values[7] = order("k7", day=days[7], note="x" * limit)
    keyed = made_of.key_records(messages(*values))
    assert [(each.position, each.reason) for each in keyed.refused] == [
        (7, DeadLetterReason.RECORD_TOO_LARGE)
    ]
    assert large_rows(keyed.rows, limit - MESSAGE_OVERHEAD_BYTES) == {}
    encoded = encode_lanes(keyed, 1 << 20, limit)
    assert encoded.refused == []
    assert all(len(each.value) <= limit for each in encoded.batches)
    rows = pa.Table.from_batches([decode_batch(each.value) for each in encoded.batches]).unify_dictionaries()
    found = dict(zip(rows["_tm_key"].to_pylist(), rows["_tm_partition"].to_pylist(), strict=True))
    assert found == {f"k{at}": day for at, day in enumerate(days) if at != 7}
