"""Avro bytes whose unions or enums carry a negative index are no record."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest

from tidemark.hudi_format.errors import CorruptFileError
from tidemark.hudi_format.parsed_avro import parsed_record, parsed_schema

ENUM = {"type": "enum", "name": "side", "symbols": ["LEFT", "RIGHT"]}
INNER = {"type": "record", "name": "inner", "fields": [{"name": "u", "type": ["null", "long"]}]}
# Field, bytes before the index, the index that is right, bytes after it, what is read.
CASES: dict[str, tuple[Any, bytes, int, bytes, Any]] = {
    "union": (["null", "string"], b"", 1, b"\x02x", "x"),
    "enum": (ENUM, b"", 1, b"", "RIGHT"),
    "enum in a union": (["null", ENUM], b"\x02", 1, b"", "RIGHT"),
    "union in an array": ({"type": "array", "items": ["null", "long"]}, b"\x02", 1, b"\x0e\x00", [7]),
    "enum in a map": ({"type": "map", "values": ENUM}, b"\x02\x02k", 1, b"\x00", {"k": "RIGHT"}),
    "union in a record": (INNER, b"", 1, b"\x0e", {"u": 7}),
    "union in a record in a union": (["null", INNER], b"\x02", 1, b"\x0e", {"u": 7}),
}


def number(value: int) -> bytes:
    sink = io.BytesIO()
    fastavro.schemaless_writer(sink, "long", value)
    return sink.getvalue()


def of_field(type_: Any) -> str:
    return json.dumps({"type": "record", "name": "r", "fields": [{"name": "f", "type": type_}]})


@pytest.mark.parametrize("case", CASES)
def test_a_negative_index_is_refused_by_name(case: str) -> None:
    type_, before, index, after, expected = CASES[case]
    schema = parsed_schema(of_field(type_), "p/f")
    assert parsed_record(before + number(index) + after, schema, "p/f") == {"f": expected}
    # -1 is the last one, as Python counts.
    for wrong in (-1, -2, -3, 2, -(2**31), -(2**63), 2**63 - 1):
        with pytest.raises(CorruptFileError, match="p/f"):
            parsed_record(before + number(wrong) + after, schema, "p/f")


def test_a_type_that_is_named_again_refuses_them_too() -> None:
    fields = [
        {"name": "a", "type": ENUM},
        {"name": "b", "type": "side"},
        {"name": "c", "type": ["null", "side"]},
    ]
    schema = parsed_schema(json.dumps({"type": "record", "name": "r", "fields": fields}), "p/f")
    right = [b"\x00", b"\x02", b"\x02\x02"]
    read = {"a": "LEFT", "b": "RIGHT", "c": "RIGHT"}
    assert parsed_record(b"".join(right), schema, "p/f") == read
    for at, wrong in ((0, number(-2)), (1, number(-1)), (2, b"\x02" + number(-1)), (2, number(-1) + b"\x02")):
        with pytest.raises(CorruptFileError, match="negative index"):
            parsed_record(b"".join([*right[:at], wrong, *right[at + 1 :]]), schema, "p/f")
