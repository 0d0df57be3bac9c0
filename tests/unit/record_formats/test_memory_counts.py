"""What decoding a record takes is counted from above, whatever its bytes are."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from testing.clock import ManualClock
from tests.hostile_avro import long
from tests.hostile_protobuf import varint
from tests.unit.index_assigner.avro_world import DictRegistry, record_schema
from tests.unit.index_assigner.largest_records import (
    RECORD_BYTES,
    SCHEMA,
    Content,
    json_record,
    keyer,
)
from tidemark.config.model import UnknownFields
from tidemark.hudi_format.keys import KeyGenerator
from tidemark.hudi_format.schema import TableSchema
from tidemark.index_assigner.shuffle.keyed_parts import KeyedRows
from tidemark.index_assigner.shuffle.keyed_rows import RecordKeyer, RecordRules
from tidemark.record_formats.avro_keys import AvroKeys
from tidemark.record_formats.avro_schema import SYMBOL_CHARACTERS_MAX
from tidemark.record_formats.debezium_avro import DebeziumAvro
from tidemark.record_formats.debezium_json import DebeziumJson
from tidemark.record_formats.decode_avro import AvroDecoder
from tidemark.record_formats.decode_json import JsonDecoder
from tidemark.record_formats.decode_protobuf import ProtobufDecoder
from tidemark.record_formats.decoded_memory import MEMORY_MAX, memory_max
from tidemark.record_formats.decoder import RecordDecoder, RowTarget
from tidemark.record_formats.plain_json import FramedJson, PlainJson
from tidemark.record_formats.protobuf_memory import ProtobufMemory
from tidemark.record_formats.refusals import DeadLetterReason
from tidemark.stream_runtime.kafka.ports import Message

# A 34 is the byte of a quote.
QUOTE_ID = 34
CPU_SECONDS_MAX = 60.0
"""Counting takes less than one, of any record; what grew with the square of its bytes would take hours."""
Kinds = descriptor_pb2.FieldDescriptorProto


def messages(*values: bytes) -> list[Message]:
    return [Message("in", 0, at, None, value) for at, value in enumerate(values)]


def record_keyer(
    schema: TableSchema, decoder: RecordDecoder, record_bytes: int = RECORD_BYTES
) -> RecordKeyer:
    generator = KeyGenerator.for_table(schema, ["id"], [])
    return RecordKeyer(RecordRules(schema, generator, None, 4, 1, record_bytes), decoder)


def told(keyed: KeyedRows) -> tuple[list[str], list[tuple[int, DeadLetterReason]]]:
    """Keys of the rows, and what was refused."""
    keys = keyed.rows.column("_tm_key").to_pylist()
    return keys, [(each.position, each.reason) for each in keyed.refused]


# ------------------------------------------------------------ Avro


class AvroTable:
    """``avro`` is the writer's schema, and the table's where no ``columns`` are given."""

    def __init__(self, avro: dict[str, Any], columns: dict[str, Any] | None = None) -> None:
        self.avro = avro
        self.schema = TableSchema.from_avro(json.dumps(columns or avro))
        self.generator = KeyGenerator.for_table(self.schema, ["id"], [])
        self.target = RowTarget.of(self.schema, None, UnknownFields.DROP)
        self.registry = DictRegistry()
        self.clock = ManualClock()
        self.keys = AvroKeys(self.generator, self.target, self.registry, self.clock)

    def keyer(self, record_bytes: int = RECORD_BYTES) -> RecordKeyer:
        self.registry.register(1, self.avro)
        most = memory_max(record_bytes)
        decoder = AvroDecoder(self.target, {}, self.keys, self.registry, self.clock, most)
        return record_keyer(self.schema, decoder, record_bytes)

    def events(self) -> RecordKeyer:
        self.registry.register(
            1, record_schema("e", {"before": ["null", self.avro], "after": ["null", "w"], "op": "string"})
        )
        decoder = DebeziumAvro(self.target, self.generator, {}, self.keys, None, self.registry, self.clock)
        return record_keyer(self.schema, decoder)


def many(item: bytes, count: int, key: str = "b") -> bytes:
    """A row with an array of so many items, without its header."""
    return long(len(key)) + key.encode() + long(count) + item * count + b"\0"


def items_of(avro: Any) -> dict[str, Any]:
    items = {"type": "array", "items": record_schema("i", {"x": avro})}
    return record_schema("w", {"id": "string", "items": items})


LONG_ENUM = {"type": "enum", "name": "en", "symbols": ["A" * SYMBOL_CHARACTERS_MAX]}
# Name: the item's type, and one value of it.
SMALL_VALUES: dict[str, tuple[Any, bytes]] = {
    "booleans that look like numbers which go on": ("boolean", b"\xff"),
    "fixed ones of one byte that look so": ({"type": "fixed", "name": "f", "size": 1}, b"\xff"),
    "fixed ones of two bytes": ({"type": "fixed", "name": "f", "size": 2}, b"\xff\xff"),
    "floats": ("float", b"\0\0\0\0"),
    "numbers": ("long", b"\2"),
    "symbols": (LONG_ENUM, b"\0"),
    "texts": ("string", b"\2x"),
}


@pytest.mark.parametrize("name", SMALL_VALUES)
@pytest.mark.parametrize("events", [False, True])
def test_avro_values_are_counted_whatever_they_look_like(name: str, events: bool) -> None:
    kind, item = SMALL_VALUES[name]
    column = {"enum": "string", "fixed": "bytes"}[kind["type"]] if isinstance(kind, dict) else kind
    table = AvroTable(items_of(kind), items_of(column))
    made_of = table.events() if events else table.keyer()
    # Of an event: before is null, after is there, op is c.
    head, tail = (b"\0\0\0\0\1\0\2", b"\2c") if events else (b"\0\0\0\0\1", b"")
    large = head + many(item, (RECORD_BYTES - 100) // len(item)) + tail
    good = [head + many(item, 2, key) + tail for key in "ac"]
    keys, refused = told(made_of.key_records(messages(good[0], large, good[1])))
    assert (keys, refused) == (["a", "c"], [(1, DeadLetterReason.RECORD_TOO_LARGE)])


def test_the_memory_of_an_avro_record_grows_with_the_largest_that_is_allowed() -> None:
    table = AvroTable(items_of("long"))
    value = b"\0\0\0\0\1" + many(b"\2", 1_000_000)
    assert told(table.keyer(RECORD_BYTES).key_records(messages(value)))[1] == [
        (0, DeadLetterReason.RECORD_TOO_LARGE)
    ]
    assert told(table.keyer(RECORD_BYTES * 8).key_records(messages(value))) == (["b"], [])


def test_the_text_of_a_symbol_is_counted_as_a_column_that_grows() -> None:
    written, columns = (
        record_schema("w", {"id": "string", "x": array(each)}) for each in (LONG_ENUM, "string")
    )
    table = AvroTable(written, columns)
    given = [b"\0\0\0\0\1" + many(b"\0", count) for count in (600_000, 300_000)]
    assert told(table.keyer().key_records(messages(*given))) == (
        ["b"],
        [(0, DeadLetterReason.RECORD_TOO_LARGE)],
    )


def test_a_symbol_of_very_many_characters_is_not_served() -> None:
    enum = {"type": "enum", "name": "en", "symbols": ["A" * (SYMBOL_CHARACTERS_MAX + 1)]}
    table = AvroTable(record_schema("w", {"id": "string", "x": enum}), record_schema("w", {"id": "string"}))
    keyed = table.keyer().key_records(messages(b"\0\0\0\0\1\2a\0"))
    assert told(keyed) == ([], [(0, DeadLetterReason.INCOMPATIBLE_SCHEMA)])
    assert f"more than {SYMBOL_CHARACTERS_MAX} characters" in keyed.refused[0].detail


# ------------------------------------------------------------ JSON


@pytest.mark.parametrize("format_", ["json", "debezium-json"])
@pytest.mark.parametrize("schema_id", [1, QUOTE_ID])
def test_a_header_is_no_part_of_the_json_that_is_counted(format_: str, schema_id: int) -> None:
    wire = FramedJson(None, ManualClock())
    generator = KeyGenerator.for_table(SCHEMA, ["id"], [])
    decoder: RecordDecoder = PlainJson(JsonDecoder(SCHEMA, None, UnknownFields.DROP), generator, wire)
    if format_ == "debezium-json":
        decoder = DebeziumJson(SCHEMA, generator, UnknownFields.DROP, None, wire)

    def value(key: str, content: Content) -> bytes:
        row = json_record(key, content)
        head = b"\0" + schema_id.to_bytes(4, "big")
        return head + (b'{"op":"c","after":%s}' % row if format_ == "debezium-json" else row)

    text = b'"' + b"{},[]" * 400_000 + b'"'
    tall = value("d", Content(texts=1)).replace(b'"ab"', text)
    given = [value("a", Content(lines=2)), value("b", Content(lines=1_390_000)), value("c", Content()), tall]
    assert max(map(len, given)) < RECORD_BYTES
    keys, refused = told(record_keyer(SCHEMA, decoder).key_records(messages(*given)))
    assert (keys, refused) == (["a", "c", "d"], [(1, DeadLetterReason.RECORD_TOO_LARGE)])


def test_the_envelope_of_an_event_is_no_way_around_the_count() -> None:
    generator = KeyGenerator.for_table(SCHEMA, ["id"], [])
    made_of = record_keyer(SCHEMA, DebeziumJson(SCHEMA, generator, UnknownFields.DROP, None))
    row, large = (json_record("a", Content(lines=count)) for count in (1, 1_390_000))
    given = [
        b'{"op":"c","after":%s}' % large,
        b'{"schema":null,"payload":{"op":"u","before":%s,"after":%s}}' % (large, row),
        b'{"op":"d","before":%s,"after":null}' % large,
        b'{"op":"c","after":%s}' % row,
    ]
    keys, refused = told(made_of.key_records(messages(*given)))
    assert (keys, refused) == (["a"], [(at, DeadLetterReason.RECORD_TOO_LARGE) for at in range(3)])


def longs(name: str, columns: int) -> dict[str, Any]:
    return record_schema(name, {f"column_{at}": ["null", "long"] for at in range(columns)})


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def json_table(events: bool, **fields: Any) -> RecordKeyer:
    nullable = {name: ["null", kind] for name, kind in fields.items()}
    table = AvroTable(record_schema("w", {"id": "string", **nullable}))
    decoder: RecordDecoder = PlainJson(JsonDecoder(table.schema, None, UnknownFields.DROP), table.generator)
    if events:
        decoder = DebeziumJson(table.schema, table.generator, UnknownFields.DROP, None)
    return record_keyer(table.schema, decoder)


def json_of(key: str, name: str, content: bytes, events: bool = False) -> bytes:
    row = b'{"id":"%s","%s":%s}' % (key.encode(), name.encode(), content)
    return b'{"op":"c","before":null,"after":%s}' % row if events else row


@pytest.mark.parametrize("events", [False, True])
def test_a_null_that_stands_for_a_record_is_counted_with_its_columns(events: bool) -> None:
    wide = ["null", longs("wide", 200)]
    of_arrays = json_table(events, items=array(wide), text="string", lines=array(longs("line", 40)))
    line = b"{%s}" % b",".join(b'"column_%d" :\n null' % at for at in range(40))
    given = [
        json_of("a", "items", b"[%s]" % b", ".join([b"null"] * 690_000), events),
        json_of("b", "items", b"[%s]" % b",".join([b"null"] * 20_000), events),
        json_of("c", "text", b'"[%s]"' % b",".join([b"null"] * 830_000), events),
        json_of("d", "lines", b"[%s]" % b",".join([line] * 4_500), events),
    ]
    assert min(map(len, [given[0], *given[2:]])) > RECORD_BYTES // 2
    assert max(map(len, given)) <= RECORD_BYTES
    assert told(of_arrays.key_records(messages(*given))) == (
        ["b", "c", "d"],
        [(0, DeadLetterReason.RECORD_TOO_LARGE)],
    )
    of_maps = json_table(events, items={"type": "map", "values": wide})
    content = b"{%s}" % b",".join(b'"%06d":null' % at for at in range(290_000))
    few = b"{%s}" % b",".join(b'"%06d":null' % at for at in range(20_000))
    given = [json_of("a", "items", content, events), json_of("b", "items", few, events)]
    assert told(of_maps.key_records(messages(*given))) == (["b"], [(0, DeadLetterReason.RECORD_TOO_LARGE)])


@pytest.mark.parametrize("items", [["null", "long"], longs("wide", 200)])
def test_a_null_that_stands_for_no_record_is_a_value_like_others(items: Any) -> None:
    made_of = json_table(False, items=array(items), numbers=array(["null", "long"]))
    value = json_of("a", "numbers", b"[%s]" % b",".join([b"null"] * 830_000))
    assert told(made_of.key_records(messages(value))) == (["a"], [])


# ------------------------------------------------------------ Protobuf


def protobuf_types() -> Any:
    """Row {id, lines: [Line {subs: [Sub {x}]}], numbers, states}, Tree {trees: [Tree]}."""
    file = descriptor_pb2.FileDescriptorProto(name="counted.proto", package="counted", syntax="proto3")
    row, line, sub, tree = (file.message_type.add(name=name) for name in ("Row", "Line", "Sub", "Tree"))
    state = file.enum_type.add(name="State")
    state.value.add(name="N" * 200, number=0)
    one, repeated = Kinds.LABEL_OPTIONAL, Kinds.LABEL_REPEATED
    row.field.add(name="id", number=1, type=Kinds.TYPE_STRING, label=one)
    inner = [(row, "lines", 3, "Line"), (line, "subs", 1, "Sub"), (row, "trees", 4, "Tree")]
    for owner, name, number, kind in [*inner, (tree, "trees", 1, "Tree")]:
        of_message = {"type": Kinds.TYPE_MESSAGE, "type_name": f".counted.{kind}"}
        owner.field.add(name=name, number=number, label=repeated, **of_message)
    sub.field.add(name="x", number=1, type=Kinds.TYPE_STRING, label=one)
    row.field.add(name="states", number=5, type=Kinds.TYPE_ENUM, type_name=".counted.State", label=repeated)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("counted.Row"))


SUB = {"type": "array", "items": record_schema("sub", {"x": "string"})}
LINE = {"type": "array", "items": record_schema("line", {"subs": SUB})}
STATES = {"type": "array", "items": "string"}
PROTOBUF_TABLE = TableSchema.from_avro(
    json.dumps(record_schema("rows", {"id": "string", "lines": LINE, "states": STATES}))
)


def nested(tag: bytes, content: bytes) -> bytes:
    return tag + varint(len(content)) + content


def test_protobuf_elements_are_counted_on_all_levels() -> None:
    """Those of the first level alone take more than is decoded at a time, and less than one record may."""
    target = RowTarget.of(PROTOBUF_TABLE, None, UnknownFields.DROP)
    generator = KeyGenerator.for_table(PROTOBUF_TABLE, ["id"], [])
    made_of = record_keyer(PROTOBUF_TABLE, ProtobufDecoder(protobuf_types(), target, generator, False))
    first = b"\x1a\0" * 200_000
    given = [
        b"\x0a\1a" + first + nested(b"\x1a", b"\x0a\0" * 1_800_000),
        b"\x0a\1b" + first,
        b"\x0a\1c" + nested(b"\x2a", b"\0" * 4_000_000),
        b"\x0a\1d" + nested(b"\x2a", b"\0" * 400_000),
        b"\x0a\1e" + nested(b"\x2a", b"\0" * 700_000),
    ]
    assert max(map(len, given)) < RECORD_BYTES
    keyed = made_of.key_records(messages(*given))
    assert told(keyed) == (["b", "d"], [(at, DeadLetterReason.RECORD_TOO_LARGE) for at in (0, 2, 4)])
    assert len(keyed.rows.column("lines")[0].as_py()) == 200_000


def test_fields_that_the_descriptor_lacks_are_counted_where_they_are_read() -> None:
    generator = KeyGenerator.for_table(PROTOBUF_TABLE, ["id"], [])
    # A group with the number 15, without content.
    group = b"\x7b\x7c"
    large = group * 2_000_000
    given = [
        b"\x0a\1a" + large,
        b"\x0a\1b" + nested(b"\x1a", large),
        b"\x0a\1c" + b"\x7b" * 50 + group * 2_000_000 + b"\x7c" * 50,
        b"\x0a\1d" + nested(b"\x7a", b"{|" * 2_097_000),
        b"\x0a\1e" + nested(b"\x1a", nested(b"\x7a", b"x" * 4_194_000)),
        b"\x0a\1f" + nested(b"\x1a", group * 200_000),
    ]
    assert max(map(len, given)) <= RECORD_BYTES
    for unknown in UnknownFields:
        target = RowTarget.of(PROTOBUF_TABLE, None, unknown)
        made_of = record_keyer(PROTOBUF_TABLE, ProtobufDecoder(protobuf_types(), target, generator, False))
        keys, refused = told(made_of.key_records(messages(*given)))
        if unknown is UnknownFields.IGNORE:
            assert (keys, refused) == (list("abcdef"), [])
            continue
        assert [at for at, reason in refused if reason is DeadLetterReason.RECORD_TOO_LARGE] == [0, 1, 2]
        assert keys == (["e", "f"] if unknown is UnknownFields.ERROR else ["d", "e", "f"])


# ------------------------------------------------------------ time


def test_counting_takes_no_long_time_whatever_the_record() -> None:
    memory = ProtobufMemory(protobuf_types().DESCRIPTOR, PROTOBUF_TABLE.arrow)
    deep = b"x" * (RECORD_BYTES // 2)
    for _ in range(99):
        deep = nested(b"\x0a", deep)
    wide = b"\x0a\0" * (RECORD_BYTES // 2 - 500)
    for _ in range(90):
        wide = nested(b"\x0a", wide)
    damaged = nested(b"\x22", deep) + b"\x1a\x7f"
    given = [nested(b"\x22", deep), nested(b"\x22", wide), damaged, b"\x1a\0" * (RECORD_BYTES // 2)]
    began_s = time.process_time()
    for value in given:
        memory.of([value], MEMORY_MAX)
    half = RECORD_BYTES // 2
    texts = [b"[" * RECORD_BYTES, b"\\" * RECORD_BYTES, b'"' * RECORD_BYTES, b'\\"' * half, b"{}" * half]
    texts += [b'{"id":"' + b'\\\\\\"' * (half // 2), b",\n" * half, b"\0" * RECORD_BYTES]
    made_of = keyer("json", 40)
    for value in texts:
        keyed = made_of.key_records(messages(value, json_record("a", Content())))
        assert keyed.rows.column("_tm_key").to_pylist() == ["a"]
    assert time.process_time() - began_s < CPU_SECONDS_MAX
