"""Debezium's change events as a hostile, broken or careless producer may write them, as JSON and as Avro,
from a seeded generator. The table is `tests.hostile_formats.SCHEMA`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any, Final

from tests import hostile_avro as avro
from tests.hostile_avro import Made, long, making, reasons, text
from tidemark.stream_runtime.schema_registry.ports import AVRO, StoredSchema

NOT_JSON: Final = reasons("not-json")
SHAPE: Final = reasons("wrong-shape", "not-json", "mistyped-field")
UNKNOWN_OP: Final = reasons("unknown-operation")
ANY: Final = SHAPE | reasons(
    "", "missing-key", "null-key", "unknown-operation", "null-ordering", "bad-partition"
)
NO_KEY: Final = reasons("null-value-without-key")


def row(key: Any, **fields: Any) -> dict[str, Any]:
    return {"id": key, "region": "eu", "at": 5, "name": "n", **fields}


def event(**fields: Any) -> dict[str, Any]:
    return {"op": "u", "before": None, "after": row("x"), "source": {"lsn": 5}, **fields}


def sound_json(key: str) -> bytes:
    """A good record."""
    return json.dumps(event(after=row(key))).encode()


def _json(document: Any) -> bytes:
    return json.dumps(document).encode()


def _without(*names: str) -> dict[str, Any]:
    return {name: value for name, value in event().items() if name not in names}


_ODD_OPS: Final = ("x", "", "cc", "\x1b[2J", "U", 5, None, True, ["u"], {"u": 1}, 1.5, 10**400)
_JUNK: Final[tuple[Any, ...]] = (5, "text", True, [1], [[[]]], 1.5, "null")
_ODD_DECIMALS: Final[tuple[Any, ...]] = (
    "x",
    "1e999999999",
    "9" * 50_000,
    "NaN",
    "5e-656",
    "1e-9999999",
    [1],
    {},
)
_ODD_LSN: Final[tuple[Any, ...]] = (None, "x", "9" * 5_000, 2**63, -(2**70), 1.5, [1], {}, True, 10**4_000)


def _nested(random: Random) -> bytes:
    opening = random.choice([b"[", b'{"a":', b'[{"b":'])
    place = random.choice([b"before", b"after", b"source", b"schema", b"payload", b"x"])
    closing = {b"[": b"]", b'{"a":': b"}", b'[{"b":': b"}]"}[opening]
    depth = random.randrange(2_000, 20_000)
    return b'{"op":"u","' + place + b'":' + opening * depth + b"1" + closing * depth + b"}"


def _written_schema(random: Random) -> bytes:
    """A schema of its own in each event."""
    fields = [
        {
            "field": "amount",
            "type": "bytes",
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": random.choice([str(random.randrange(38)), "x", 10**30, None, []])},
        },
        {
            "field": "when",
            "type": "int64",
            "name": "io.debezium.time.MicroTimestamp",
            "doc": str(random.random()),
        },
    ]
    schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]}
    return _json({"schema": schema, "payload": event()})


def _odd_schema(random: Random) -> bytes:
    odd = random.choice(
        [
            5,
            [],
            "x",
            {"fields": 5},
            {"fields": [5]},
            {"fields": [{"field": "after"}]},
            {"fields": [{"field": ["after"], "fields": []}]},
            {"fields": [{"field": "after", "fields": [{"field": {}}]}]},
            {"fields": [{"field": "after", "fields": [{"field": "amount", "name": ["x"]}]}]},
        ]
    )
    return _json({"schema": odd, "payload": event()})


_BAD_JSON: Final[Mapping[str, tuple[Callable[[Random], bytes], frozenset[str]]]] = {
    "empty value": (lambda _: b"", NOT_JSON),
    "garbage": (lambda r: b"\xff" + r.randbytes(r.randrange(300)), NOT_JSON),
    "event cut short": (lambda r: sound_json("cut")[: r.randrange(1, 60)], NOT_JSON),
    "nested junk": (_nested, ANY | NO_KEY),
    "no object": (lambda r: r.choice([b"[1]", b'"t"', b"null", b"7", b"true"]), SHAPE),
    "event without op": (lambda _: _json(_without("op")), UNKNOWN_OP),
    "op that is none": (lambda r: _json(event(op=r.choice(_ODD_OPS))), UNKNOWN_OP | NOT_JSON),
    "before and after null": (lambda r: _json(event(op=r.choice("cur"), after=None)), SHAPE),
    "event without before and after": (lambda r: _json({"op": r.choice("cur")}), SHAPE),
    "delete without before and key": (lambda _: _json(event(op="d", after=None)), NO_KEY),
    "decimal that is none": (
        lambda r: _json(event(after=row("x", amount=r.choice(_ODD_DECIMALS)))),
        reasons("mistyped-field", "not-json"),
    ),
    "junk for after": (lambda r: _json(event(after=r.choice(_JUNK))), SHAPE),
    "junk for before": (lambda r: _json(event(op="d", before=r.choice(_JUNK))), SHAPE | NO_KEY),
    "row without its key": (
        lambda _: _json(event(after={"region": "eu"})),
        reasons("missing-key", "null-key"),
    ),
    "junk for the source": (lambda r: _json(event(source=r.choice(_JUNK))), SHAPE),
    "position that is none": (
        lambda r: _json(event(source={"lsn": r.choice(_ODD_LSN)})),
        reasons("null-ordering") | NOT_JSON,
    ),
    "event without a source": (lambda _: _json(_without("source")), reasons("null-ordering")),
    "payload null": (lambda _: _json({"schema": None, "payload": None}), NO_KEY),
    "payload in a payload": (lambda _: _json({"payload": {"payload": {"payload": event()}}}), UNKNOWN_OP),
    "junk for the payload": (lambda r: _json({"payload": r.choice(_JUNK)}), SHAPE | UNKNOWN_OP),
    "schema of its own": (_written_schema, reasons("")),
    "junk for the schema": (_odd_schema, reasons("")),
    "truncated table": (lambda _: _json(event(op="t", after=None)), reasons("truncate")),
    "value that was not logged": (
        lambda _: _json(event(after=row("x", name="__debezium_unavailable_value"))),
        reasons("unavailable-value"),
    ),
    "the same field twice": (
        lambda _: (
            b'{"op":"x","op":"u","after":5,"after":{"id":"x","id":"y","region":"eu"},"source":{"lsn":1}}'
        ),
        ANY,
    ),
    "key of another type": (lambda r: _json(event(after=row(r.choice([5, [1], {}, 1.5, True])))), SHAPE),
    "hostile partition": (
        lambda r: _json(
            event(after=row("x", region=r.choice(["..", "a/../b", "/etc", "nul\0", "r" * 256, "a%2Fb"])))
        ),
        reasons("bad-partition", ""),
    ),
}


def hostile_json() -> dict[str, Callable[[Random], Made]]:
    """What makes values of each kind."""
    return {kind: making(made, become) for kind, (made, become) in _BAD_JSON.items()}


# ------------------------------------------------------------ Avro

_VALUE: Final = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "region", "type": "string"},
        {"name": "name", "type": ["null", "string"]},
    ],
}


def _envelope(op: Any = "string", after: Any = "Value", source: Any = None, **more: Any) -> dict[str, Any]:
    source = source or {
        "type": "record",
        "name": "Source",
        "fields": [{"name": "lsn", "type": ["null", "long"]}],
    }
    fields = {"before": ["null", _VALUE], "after": ["null", after], "source": source, "op": op, **more}
    return {
        "type": "record",
        "name": "Envelope",
        "fields": [{"name": n, "type": t} for n, t in fields.items()],
    }


def _row(key: str) -> bytes:
    return text(key) + text("eu") + long(1) + text("n")


def _event(
    op: bytes, before: bytes | None = None, after: bytes | None = None, source: bytes = long(1) + long(5)
) -> bytes:
    images = [long(0) if each is None else long(1) + each for each in (before, after)]
    return b"".join(images) + source + op


_SOUND: Final = _envelope()
_OPS: Final[Mapping[str, tuple[Any, bytes]]] = {
    "op of bytes": ("bytes", text("u")),
    "op of a list": ({"type": "array", "items": "string"}, long(1) + text("u") + long(0)),
    "op of a map": ({"type": "map", "values": "string"}, long(1) + text("u") + text("u") + long(0)),
    "op of a number": ("long", long(7)),
    "op of a record": (
        {"type": "record", "name": "Op", "fields": [{"name": "u", "type": "string"}]},
        text("u"),
    ),
    "op of null": ("null", b""),
}


_SOUND_EVENT: Final = _event(text("u"), None, _row("x"))
_BODIES: Final[Mapping[str, tuple[Callable[[Random], bytes], frozenset[str]]]] = {
    "event cut short": (lambda r: _SOUND_EVENT[: r.randrange(len(_SOUND_EVENT))], avro.NOT_AVRO),
    "op that is none": (
        lambda r: _event(text(r.choice(["x", "", "uu", "\x1b[2J"])), None, _row("x")),
        UNKNOWN_OP,
    ),
    "before and after null": (lambda r: _event(text(r.choice("cur"))), SHAPE),
    "delete without before and key": (lambda _: _event(text("d")), NO_KEY),
    "branch that is none": (lambda r: long(r.choice([2, 2**62, -5])) + _SOUND_EVENT, avro.NOT_AVRO),
    "position that is none": (
        lambda _: _event(text("u"), None, _row("x"), long(0)),
        reasons("null-ordering"),
    ),
}


class HostileDebeziumAvro:
    """The schemas by id, and what makes values of each kind."""

    def __init__(self) -> None:
        flat = avro.HostileAvro()
        self.schemas = {**flat.schemas, avro.SOUND: _stored(_SOUND)}
        # What is no envelope is refused as a schema.
        strange = reasons("incompatible-schema")
        self.kinds: dict[str, Callable[[Random], Made]] = {}
        for kind, made in flat.kinds.items():
            self.kinds[kind] = _in_an_envelope_s_place(made)
        for kind, (body, become) in _BODIES.items():
            self.kinds[kind] = making(body, become, partial(avro.framed, avro.SOUND))
        for kind, (op, content) in _OPS.items():
            self._add(kind, _envelope(op), _event(content, None, _row("x")), UNKNOWN_OP | strange)
        self._add("envelope without op", {**_SOUND, "fields": _SOUND["fields"][:3]}, _SOUND_EVENT, strange)
        nulls = [{"name": name, "type": "null"} for name in ("before", "after", "source")]
        null_images = {**_SOUND, "fields": [*nulls, {"name": "op", "type": "string"}]}
        self._add("envelope of null images", null_images, text("u"), strange | SHAPE)
        textual = _event(text("u"), None, _row("x"), text("s"))
        self._add("source of a text", _envelope(source="string"), textual, reasons("null-ordering"))
        second = {"type": "record", "name": "V2", "fields": []}
        before, after = _SOUND["fields"][0], {"name": "after", "type": ["null", "Value", second]}
        two = {**_SOUND, "fields": [before, after, *_SOUND["fields"][2:]]}
        of_second = long(0) + long(2) + long(1) + long(5) + text("u")
        self._add("after of two records", two, of_second, strange | ANY)

    def _add(self, kind: str, schema: Any, content: bytes, become: frozenset[str]) -> None:
        number = len(self.schemas) + 1_000
        self.schemas[number] = _stored(schema)
        self.kinds[kind] = lambda _: (avro.framed(number, content), become)

    @staticmethod
    def sound(key: str) -> bytes:
        """A good record."""
        return avro.framed(avro.SOUND, _event(text("u"), None, _row(key)))


def _in_an_envelope_s_place(flat: Callable[[Random], Made]) -> Callable[[Random], Made]:
    def made(random: Random) -> Made:
        value, become = flat(random)
        return value, become | avro.INCOMPATIBLE | avro.NOT_AVRO | ANY | NO_KEY

    return made


def _stored(schema: Any) -> StoredSchema:
    return StoredSchema(AVRO, json.dumps(schema))
