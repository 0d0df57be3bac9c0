"""Avro in Confluent's wire format as a hostile, broken or careless producer may write it: schema ids, schemas
and bodies. From a seeded generator; `tests.hostile_formats` says what becomes of them.

The table is `tests.hostile_formats.SCHEMA`.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any, Final, NamedTuple

from tidemark.stream_runtime.schema_registry.ports import AVRO, JSON, PROTOBUF, StoredSchema

SOUND: Final = 1
"""The id of the schema that good records have."""
_FIRST_BODY: Final = 100

Made = tuple[bytes, frozenset[str]]
"""A value, and what may become of it: reasons of dead letters, "" for a row."""


def making(
    value: Callable[[Random], bytes], become: frozenset[str], around: Callable[[bytes], bytes] = bytes
) -> Callable[[Random], Made]:
    """Values, and what may become of them. ``around``: what a value gets around it."""
    return lambda random: (around(value(random)), become)


def always(content: bytes) -> Callable[[Random], bytes]:
    """The same bytes each time."""
    return lambda _: content


def reasons(*names: str) -> frozenset[str]:
    return frozenset(names)


UNKNOWN: Final = reasons("unknown-schema")
NOT_FRAMED: Final = reasons("not-framed")
NOT_AVRO: Final = reasons("not-avro")
INCOMPATIBLE: Final = reasons("incompatible-schema")
MISTYPED: Final = reasons("mistyped-field")
ANY: Final = reasons(
    "", "not-avro", "mistyped-field", "null-key", "missing-key", "bad-partition", "key-too-long"
)


def long(number: int) -> bytes:
    """As Avro encodes it; numbers beyond 64 bits as well."""
    number = number << 1 if number >= 0 else (-number << 1) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def text(content: str | bytes) -> bytes:
    content = content.encode() if isinstance(content, str) else content
    return long(len(content)) + content


def framed(schema_id: int, body: bytes) -> bytes:
    return b"\0" + struct.pack(">I", schema_id) + body


def _record(name: str, /, **fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": each, "type": avro} for each, avro in fields.items()],
    }


_KEYED: Final[Mapping[str, Any]] = {"id": "string", "region": "string", "at": "long"}
_NULLABLE_TEXT: Final = ["null", "string"]
SOUND_SCHEMA: Final = _record("Row", **_KEYED, name=_NULLABLE_TEXT)


def head(key: str) -> bytes:
    """The fields of `_KEYED`."""
    return text(key) + text("eu") + long(5)


def sound(key: str) -> bytes:
    """A good record."""
    return framed(SOUND, head(key) + long(1) + text("n"))


# ------------------------------------------------------------ bodies behind a schema with one field more


class _Bodies(NamedTuple):
    """``avro``: the type of the field ``column``; ``made``: its bytes."""

    column: str
    avro: Any
    made: Callable[[Random], bytes]
    become: frozenset[str]


_HUGE: Final = (2**31, 2**40, 2**62, 2**63 - 1)
_BEYOND: Final = (*_HUGE, -1, -(2**31), -(2**63), 2**64, 2**70)
_ITEM: Final = {"type": "record", "name": "Item", "fields": [{"name": "n", "type": "long"}]}
_DECIMAL: Final = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
_INSTANT: Final = {"type": "long", "logicalType": "timestamp-millis"}
_DAY: Final = {"type": "int", "logicalType": "date"}


def _array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _endless_varint(random: Random) -> bytes:
    return b"\xff" * random.choice([1, 9, 10, 100, 5_000])


def _overlong_varint(random: Random) -> bytes:
    return b"\x80" * random.randrange(10, 3_000) + b"\x01"


def _blocks(random: Random) -> bytes:
    """Blocks of one item each with a negative count, which has a size behind it, and no end."""
    return (long(-1) + long(random.choice([0, 1, 2**62, -5])) + long(7)) * random.randrange(1, 20_000)


def _zero_map(random: Random) -> bytes:
    return (long(1) + text("k") + long(1)) * random.randrange(1, 20_000)


_BODIES: Final[Mapping[str, _Bodies]] = {
    "text of a huge length": _Bodies(
        "name", _NULLABLE_TEXT, lambda r: long(1) + long(r.choice(_BEYOND)) + b"abc", NOT_AVRO
    ),
    "text that is no UTF-8": _Bodies(
        "name", _NULLABLE_TEXT, lambda r: long(1) + text(b"\xff" + r.randbytes(r.randrange(40))), NOT_AVRO
    ),
    "union branch that is none": _Bodies(
        "name",
        _NULLABLE_TEXT,
        lambda r: long(r.choice([2, 3, 100, *_HUGE, -3, -(2**40)])) + text("x"),
        NOT_AVRO,
    ),
    "endless varint": _Bodies("at2", "long", _endless_varint, NOT_AVRO),
    "varint longer than 64 bits": _Bodies("at2", "long", _overlong_varint, ANY),
    "array of huge count": _Bodies(
        "list", _array("long"), lambda r: long(r.choice(_HUGE)) + long(1) * r.randrange(1_000), NOT_AVRO
    ),
    "array of negative counts without an end": _Bodies("list", _array("long"), _blocks, NOT_AVRO),
    "array of the least count": _Bodies("list", _array("long"), lambda r: long(-(2**63)) + long(8), NOT_AVRO),
    "array of records of huge count": _Bodies(
        "items", _array(_ITEM), lambda r: long(r.choice(_HUGE)) + b"\0" * r.randrange(1_000), NOT_AVRO
    ),
    "map of huge count": _Bodies(
        "map",
        {"type": "map", "values": "long"},
        lambda r: long(r.choice(_HUGE)) + (text("k") + long(1)) * r.randrange(1_000),
        NOT_AVRO,
    ),
    "map without an end": _Bodies("map", {"type": "map", "values": "long"}, _zero_map, NOT_AVRO),
    "enum symbol that is none": _Bodies(
        "name",
        {"type": "enum", "name": "E", "symbols": ["A", "B"]},
        lambda r: long(r.choice([2, 9, *_HUGE, -3])),
        NOT_AVRO,
    ),
    "decimal of many digits": _Bodies(
        "amount", _DECIMAL, lambda r: text(b"\x7f" + r.randbytes(r.randrange(20, 100_000))), MISTYPED
    ),
    "time beyond all": _Bodies(
        "when", _INSTANT, lambda r: long(r.choice([2**63 - 1, -(2**63), 2**62])), MISTYPED
    ),
    "day beyond all": _Bodies(
        "day", _DAY, lambda r: long(r.choice([2**31, 2**62, -(2**40)])), MISTYPED | NOT_AVRO
    ),
    "fixed of huge size": _Bodies(
        "raw", {"type": "fixed", "name": "F", "size": 2**31 - 1}, lambda _: b"x" * 100, NOT_AVRO
    ),
}


def _nested_type(depth: int, name: str = "D") -> Any:
    made: Any = "boolean"
    for level in range(depth):
        made = _record(f"{name}{level}", x=made)
    return made


# Few bytes of such a record are many values.
_HUNGRY: Final[Mapping[str, tuple[Any, bytes]]] = {
    "array of nested records of one byte": (_array(_nested_type(25)), b"\0"),
    "array of records with many nulls": (
        _array(_record("N", x="boolean", **{f"n{i}": "null" for i in range(15_000)})),
        b"\0",
    ),
    "array of branches with many nulls": (
        _array(["null", _record("N", **{f"n{i}": "null" for i in range(15_000)})]),
        long(1),
    ),
    "array of empty arrays": (_array(_array("long")), b"\0"),
    "array of empty maps": (_array({"type": "map", "values": "long"}), b"\0"),
}


# ------------------------------------------------------------ schemas that no row can be read by


def _chain(length: int) -> dict[str, Any]:
    """Each record has twice the one before it."""
    inner: Any = "long"
    for level in range(length):
        first = {"name": "a", "type": inner}
        second = {"name": "b", "type": f"C{level - 1}" if level else "long"}
        inner = {"type": "record", "name": f"C{level}", "fields": [first, second]}
    return dict(inner)


def _wide(count: int) -> dict[str, Any]:
    return _record("Wide", **_KEYED, **{f"f{i}": "long" for i in range(count)})


_LIST: Final = {
    "type": "record",
    "name": "Link",
    "fields": [{"name": "id", "type": "string"}, {"name": "next", "type": ["null", "Link"]}],
}
_UNREADABLE: Final[Mapping[str, Any]] = {
    "schema of a text": "string",
    "schema that contains itself": _LIST,
    "schema that contains itself at once": _record("Self", id="string", me="Self"),
    "schema of too many parts": _wide(20_001),
    "schema that doubles": _chain(30),
    "schema of too many levels": _record("Deep", id="string", x=_nested_type(40)),
    "schema of many levels of arrays": _record(
        "Deep", id="string", x=json.loads('{"type":"array","items":' * 90 + '"long"' + "}" * 90)
    ),
    "schema that names what it lacks": _record("Lack", id="string", x="no.such.Type"),
    "schema with a union of unions": _record("U", id="string", x=["null", ["null", "long"]]),
    "schema with an empty union": _record("U", id="string", x=[]),
    "schema of arrays without bytes": _record("Z", id="string", x=_array("null")),
    "schema of arrays of empty records": _record("Z", id="string", x=_array(_record("E"))),
    "schema with a fixed of negative size": _record(
        "F", id="string", x={"type": "fixed", "name": "G", "size": -1}
    ),
    "schema with a fixed without a size": _record("F", id="string", x={"type": "fixed", "name": "G"}),
    "schema with an enum without symbols": _record(
        "S", id="string", x={"type": "enum", "name": "G", "symbols": 5}
    ),
    "schema with a field without a name": {"type": "record", "name": "R", "fields": [{"type": "long"}]},
    "schema without a name": {"type": "record", "fields": []},
    "schema with a number for a type": _record("R", id="string", x=5),
    "schema of nothing": {},
    "schema of null": None,
    "schema of a list of nothing": [],
    "schema of two records": [_record("A", id="string"), _record("B", id="string")],
    "schema of the key of another type": _record("K", **{**_KEYED, "id": _array("string")}),
    "schema of a column of another type": _record("K", **_KEYED, amount=_record("Inner", x="long")),
}
_NO_JSON: Final[Mapping[str, StoredSchema]] = {
    "schema that is no JSON": StoredSchema(AVRO, '{"type": "record", '),
    "schema of 100 000 brackets": StoredSchema(AVRO, "[" * 100_000),
    "schema of nested types": StoredSchema(AVRO, '{"type":' * 900 + '"long"' + "}" * 900),
    "schema of a long text": StoredSchema(AVRO, '{"type": "string", "doc": "' + "x" * (5 << 20) + '"}'),
    "schema of no text": StoredSchema(AVRO, ""),
    "JSON schema": StoredSchema(JSON, "{}"),
    "Protobuf schema": StoredSchema(PROTOBUF, 'syntax = "proto3";'),
    "schema of an unknown kind": StoredSchema("XML", "<a/>"),
    "schema with references that are none": StoredSchema(AVRO, json.dumps(SOUND_SCHEMA), ("{", "[")),
}
# Odd, and yet of records whose keys can be read.
_ODD: Final[Mapping[str, tuple[Any, bytes, frozenset[str]]]] = {
    "schema of another subject": (
        _record("Other", order="long", total="double"),
        long(1) + bytes(8),
        reasons("missing-key"),
    ),
    "schema with a field of no column": (
        _record("More", **_KEYED, **{"\u202e\x1b[2J": "long"}),
        head("odd") + long(1),
        reasons(""),
    ),
    "schema with meanings that are none": (
        _record("M", **_KEYED, name={"type": "string", "logicalType": ["uuid", {}]}),
        head("odd") + text("x"),
        reasons(""),
    ),
    "schema with a decimal of a scale that is none": (
        _record(
            "M",
            **_KEYED,
            amount={"type": "bytes", "logicalType": "decimal", "precision": -4, "scale": 10**30},
        ),
        head("odd") + text(b"\1"),
        INCOMPATIBLE,
    ),
    "schema with the same field twice": (
        {
            "type": "record",
            "name": "T",
            "fields": [{"name": n, "type": "string"} for n in ("id", "id", "region", "region")],
        },
        text("a") * 4,
        ANY | reasons("null-ordering"),
    ),
}


class HostileAvro:
    """The schemas by id, and what makes values of each kind."""

    def __init__(self) -> None:
        self.schemas: dict[int, StoredSchema] = {SOUND: _stored(SOUND_SCHEMA)}
        self.kinds: dict[str, Callable[[Random], Made]] = {
            "empty value": lambda _: (b"", NOT_FRAMED),
            "header cut short": lambda r: (b"\0\0\0\0\1"[: r.randrange(1, 5)], NOT_FRAMED),
            "wrong magic byte": lambda r: (bytes([r.randrange(1, 256)]) + sound("x")[1:], NOT_FRAMED),
            "schema id 0": lambda _: (framed(0, head("x")), UNKNOWN),
            "unknown schema id": lambda r: (framed(r.choice([77_777, 2**31 - 1]), head("x")), UNKNOWN),
            "negative schema id": lambda r: (framed(r.randrange(2**31, 2**32), head("x")), UNKNOWN),
            "body cut short": self._cut,
            "garbage for a body": lambda r: (framed(SOUND, b"\xff" + r.randbytes(r.randrange(300))), ANY),
            "body with a byte changed": self._changed,
            "bytes behind the record": lambda r: (sound("x") + r.randbytes(r.randrange(1, 50)), NOT_AVRO),
            "no body": lambda _: (framed(SOUND, b""), NOT_AVRO),
        }
        for kind, body in _BODIES.items():
            schema = _record("Row", **_KEYED, **{body.column: body.avro})
            self._add(kind, _stored(schema), _behind_head(body.made), body.become)
        for kind, (avro, item) in _HUNGRY.items():
            schema = _record("Row", **_KEYED, hungry=avro)
            become = reasons("", "record-too-large", "incompatible-schema")
            self._add(kind, _stored(schema), partial(_hungry, item=item), become)
        nulls = _record("Row", **_KEYED, **{f"n{i}": "null" for i in range(19_000)})
        self._add(
            "record of many nulls", _stored(nulls), lambda _: head("x"), reasons("", "incompatible-schema")
        )
        for kind, avro in _UNREADABLE.items():
            self._add(kind, _stored(avro), lambda r: r.randbytes(20), INCOMPATIBLE | reasons("missing-key"))
        for kind, stored in _NO_JSON.items():
            self._add(kind, stored, lambda r: r.randbytes(20), INCOMPATIBLE)
        for kind, (avro, content, become) in _ODD.items():
            self._add(kind, _stored(avro), always(content), become)

    def _add(
        self, kind: str, stored: StoredSchema, body: Callable[[Random], bytes], become: frozenset[str]
    ) -> None:
        number = len(self.schemas) + _FIRST_BODY
        self.schemas[number] = stored
        self.kinds[kind] = lambda random: (framed(number, body(random)), become)

    def _cut(self, random: Random) -> Made:
        whole = sound("cut")
        return whole[: random.randrange(5, len(whole))], NOT_AVRO

    def _changed(self, random: Random) -> Made:
        whole = bytearray(sound("changed"))
        whole[random.randrange(5, len(whole))] = random.randrange(256)
        return bytes(whole), ANY


def _behind_head(made: Callable[[Random], bytes]) -> Callable[[Random], bytes]:
    return lambda random: head("x") + made(random)


def _hungry(random: Random, item: bytes) -> bytes:
    count = random.choice([1_000, 100_000, 1_000_000])
    return head("x") + long(count) + item * count + long(0)


def _stored(avro: Any) -> StoredSchema:
    return StoredSchema(AVRO, json.dumps(avro))
