"""Ordinary records are never refused for the memory that they are counted with, whatever is in them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from index_assigner.formats.decode_avro import AvroDecoder
from index_assigner.formats.decode_protobuf import ProtobufDecoder
from index_assigner.formats.decoded_memory import MEMORY_MAX
from index_assigner.formats.decoder import RecordDecoder, RowTarget
from index_assigner.formats.plain_json import PlainJson
from index_assigner.shuffle.decode_json import JsonDecoder
from stream_runtime.config.model import UnknownFields
from tests.unit.index_assigner.avro_world import framed, record_schema
from tests.unit.index_assigner.test_memory_counts import (
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
