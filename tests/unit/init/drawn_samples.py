"""Samples of a topic as producers with a schema of their own write them: Avro, Debezium's Avro, Protobuf.

Schemas are drawn before their records: columns of every kind that the formats have, also of those that no
table can have, under the names that producers use.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, NamedTuple

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

from tests.schema_registry import RegistryServer
from tests.unit.index_assigner.avro_world import framed, record_schema
from tests.unit.record_formats.test_decode_protobuf import Field, descriptor_set, field
from tidemark.config import InputFormat
from tidemark.stream_runtime.kafka.ports import Message

_USUAL: Final = """
    id uuid updated_at ts event_time created_ms version seq day dt region status amount name note at lsn
    deleted_at payload tags is_open _deleted __op __source_ts_ms value Key key Name _hoodie_commit_time
"""
KEY: Final = "order_id"
TOPIC: Final = "orders"
_FIRST: Final = datetime(2024, 2, 29, tzinfo=UTC)


class TopicSample(NamedTuple):
    """What lies in the topic, and what `init` has to be told of it besides: options by name."""

    format: InputFormat
    messages: list[Message]
    options: dict[str, Any]


Made = Callable[[Path, RegistryServer], TopicSample]
"""A sample once there is a folder for its files, and a registry for its schema."""


class _Kind(NamedTuple):
    """A type as the schema has it, and values of it. ``named``: of a field's path, for Avro's named types."""

    named: Callable[[str], Any]
    values: st.SearchStrategy[Any]


def _plain(avro: Any, values: st.SearchStrategy[Any]) -> _Kind:
    return _Kind(lambda _: avro, values)


_TEXTS: Final = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12)
_INTS: Final = st.integers(-(2**31), 2**31 - 1)
_LONGS: Final = st.integers(-(2**63), 2**63 - 1)
_MOMENTS: Final = st.integers(0, 2**40).map(lambda micros: _FIRST + timedelta(microseconds=micros))
_DAYS: Final = st.integers(0, 300).map(lambda days: date(2024, 1, 1) + timedelta(days=days))
_TIMES: Final = _MOMENTS.map(lambda at: at.timetz().replace(tzinfo=None))
_FLOATS: Final = st.floats(width=32, allow_nan=False, allow_infinity=False)
_CENTS: Final = st.integers(-(10**9), 10**9).map(lambda cents: Decimal(cents).scaleb(-2))


def _logical(kind: str, logical: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical, **more}


_SCALARS: Final = (
    _plain("string", _TEXTS),
    _plain("int", _INTS),
    _plain("long", _LONGS),
    _plain("long", st.integers(1_600_000_000_000, 1_800_000_000_000)),
    _plain("float", _FLOATS),
    _plain("double", st.floats(allow_nan=False, allow_infinity=False)),
    _plain("boolean", st.booleans()),
    _plain("bytes", st.binary(max_size=12)),
    _plain("null", st.none()),
    _plain(["string", "long"], st.one_of(_TEXTS, _LONGS)),
    _plain(_logical("int", "date"), _DAYS),
    _plain(_logical("int", "time-millis"), _TIMES),
    _plain(_logical("long", "time-micros"), _TIMES),
    _plain(_logical("long", "timestamp-millis"), _MOMENTS),
    _plain(_logical("long", "timestamp-micros"), _MOMENTS),
    _plain(_logical("long", "local-timestamp-micros"), _MOMENTS.map(lambda at: at.replace(tzinfo=None))),
    _plain(_logical("bytes", "decimal", precision=12, scale=2), _CENTS),
    _plain(_logical("string", "uuid"), st.uuids()),
    _Kind(
        lambda path: {"type": "enum", "name": f"e_{path}", "symbols": ["NEW", "PAID"]},
        st.sampled_from(["NEW"]),
    ),
    _Kind(lambda path: {"type": "fixed", "name": f"f_{path}", "size": 4}, st.binary(min_size=4, max_size=4)),
)


def _nullable(kind: _Kind) -> _Kind:
    return _Kind(lambda path: ["null", kind.named(path)], st.none() | kind.values)


def _array(kind: _Kind) -> _Kind:
    return _Kind(lambda path: {"type": "array", "items": kind.named(path)}, st.lists(kind.values, max_size=3))


def _map(kind: _Kind) -> _Kind:
    values = st.dictionaries(_TEXTS, kind.values, max_size=3)
    return _Kind(lambda path: {"type": "map", "values": kind.named(path)}, values)


def _record(kinds: dict[str, _Kind]) -> _Kind:
    def named(path: str) -> Any:
        return record_schema(
            f"r_{path}", {name: kind.named(f"{path}_{name}") for name, kind in kinds.items()}
        )

    return _Kind(named, st.fixed_dictionaries({name: kind.values for name, kind in kinds.items()}))


def _is_no_union(kind: _Kind) -> bool:
    return not isinstance(kind.named("x"), list) and kind.named("x") != "null"


def _takes_bytes(avro: Any) -> bool:
    """An array of what takes none is never served."""
    if isinstance(avro, dict) and avro["type"] == "record":
        return any(_takes_bytes(each["type"]) for each in avro["fields"])
    return bool(avro != "null")


_NAMES: Final = st.sampled_from(_USUAL.split())
_KINDS: Final = st.recursive(
    st.sampled_from(_SCALARS),
    lambda inner: st.one_of(
        inner.filter(_is_no_union).map(_nullable),
        inner.filter(lambda kind: _takes_bytes(kind.named("x"))).map(_array),
        inner.map(_map),
        st.dictionaries(_NAMES, inner, min_size=1, max_size=3).map(_record),
    ),
    max_leaves=4,
)


@st.composite
def avro_samples(draw: st.DrawFn, *, debezium: bool) -> Made:
    """Four of five have what can be a key."""
    kinds = draw(st.dictionaries(_NAMES, _KINDS, min_size=1, max_size=7))
    has_key = draw(st.integers(0, 4)) > 0
    if has_key:
        kinds[KEY] = _plain("string", st.nothing())
    row = record_schema("orders_row", {name: kind.named(name) for name, kind in kinds.items()})
    rows = []
    for number in range(draw(st.integers(1, 8))):
        drawn = {name: draw(kind.values) for name, kind in kinds.items() if name != KEY}
        rows.append({**drawn, KEY: f"o-{number}"} if has_key else drawn)
    schema, records = (_envelope(row), list(map(_event, range(len(rows)), rows))) if debezium else (row, rows)

    def made(_: Path, registry: RegistryServer) -> TopicSample:
        number = registry.register(f"{TOPIC}-value", json.dumps(schema))
        format_ = InputFormat.DEBEZIUM_AVRO if debezium else InputFormat.AVRO
        values = [framed(number, schema, each) for each in records]
        return TopicSample(format_, _messages(values), {"registry": {"url": registry.url}})

    return made


def _envelope(row: Any) -> dict[str, Any]:
    source = record_schema("Source", {"lsn": ["null", "long"], "ts_ms": "long"})
    before, after = ["null", row], ["null", row["name"]]
    return record_schema("Envelope", {"before": before, "after": after, "source": source, "op": "string"})


def _event(number: int, row: dict[str, Any]) -> dict[str, Any]:
    return {"before": None, "after": row, "source": {"lsn": 9_000 + number, "ts_ms": 5}, "op": "c"}


def _messages(values: list[bytes]) -> list[Message]:
    return [Message(TOPIC, 0, at, f"o-{at}".encode(), value) for at, value in enumerate(values)]


class _Wire(NamedTuple):
    """A Protobuf field: its kind and type's name, and values as a message is made of them."""

    kind: int
    values: st.SearchStrategy[Any]
    type_name: str | None = None


_STAMP: Final = st.fixed_dictionaries(
    {"seconds": st.integers(1_600_000_000, 1_800_000_000), "nanos": st.integers(0, 999_999_999)}
)
_LINE: Final = st.fixed_dictionaries({}, optional={"n": _LONGS, "s": _TEXTS})
_WIRES: Final = (
    _Wire(Field.TYPE_STRING, _TEXTS),
    _Wire(Field.TYPE_SINT32, _INTS),
    _Wire(Field.TYPE_INT64, _LONGS),
    _Wire(Field.TYPE_INT64, st.integers(1_600_000_000_000, 1_800_000_000_000)),
    _Wire(Field.TYPE_UINT64, st.integers(0, 2**63 - 1)),
    _Wire(Field.TYPE_FLOAT, _FLOATS),
    _Wire(Field.TYPE_DOUBLE, st.floats(allow_nan=False, allow_infinity=False)),
    _Wire(Field.TYPE_BOOL, st.booleans()),
    _Wire(Field.TYPE_BYTES, st.binary(max_size=12)),
    _Wire(Field.TYPE_ENUM, st.integers(0, 1), ".shop.State"),
    _Wire(Field.TYPE_MESSAGE, _STAMP, ".google.protobuf.Timestamp"),
    _Wire(Field.TYPE_MESSAGE, st.fixed_dictionaries({"value": _TEXTS}), ".google.protobuf.StringValue"),
    _Wire(Field.TYPE_MESSAGE, _LINE, ".shop.Line"),
    _Wire(Field.TYPE_MESSAGE, st.just({}), ".shop.Empty"),
)


@st.composite
def protobuf_samples(draw: st.DrawFn) -> Made:
    """Four of five have what can be a key; half are framed, as with a registry's serializer."""
    shape = draw(st.dictionaries(_NAMES, st.tuples(st.sampled_from(_WIRES), st.booleans()), max_size=7))
    has_key = draw(st.integers(0, 4)) > 0
    if has_key:
        shape[KEY] = (_Wire(Field.TYPE_STRING, st.nothing()), False)
    elif not shape:
        shape["name"] = (_WIRES[0], False)
    listed = descriptor_set(_order_file(shape))
    order = _message_class(listed)
    contents = []
    for number in range(draw(st.integers(1, 8))):
        given = {KEY: f"o-{number}"} if has_key else {}
        for name, (wire, repeated) in shape.items():
            if name != KEY and draw(st.integers(0, 4)) > 0:
                given[name] = draw(st.lists(wire.values, max_size=3) if repeated else wire.values)
        contents.append(order(**given).SerializeToString())
    # Confluent's header; the zero behind the id stands for the first message of the file.
    head = b"\0" + (77).to_bytes(4, "big") + b"\0" if draw(st.booleans()) else b""

    def made(folder: Path, _: RegistryServer) -> TopicSample:
        (folder / "shop.desc").write_bytes(listed)
        options = {"descriptor": folder / "shop.desc", "message": "shop.Order"}
        return TopicSample(InputFormat.PROTOBUF, _messages([head + each for each in contents]), options)

    return made


def _order_file(shape: dict[str, tuple[_Wire, bool]]) -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    file.enum_type.add(name="State").value.add(name="NEW", number=0)
    file.enum_type[0].value.add(name="PAID", number=1)
    order = file.message_type.add(name="Order")
    line = file.message_type.add(name="Line")
    line.field.extend([field("n", 1, Field.TYPE_INT64), field("s", 2, Field.TYPE_STRING)])
    file.message_type.add(name="Empty")
    for number, (name, (wire, repeated)) in enumerate(shape.items(), 1):
        label = Field.LABEL_REPEATED if repeated else Field.LABEL_OPTIONAL
        order.field.append(field(name, number, wire.kind, wire.type_name, label=label))
    return file


def _message_class(listed: bytes) -> Any:
    pool = DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(listed).file:
        pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
