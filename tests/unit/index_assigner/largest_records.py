"""What the largest records take of a process's memory on their way (`python -m` this module).

``python -m tests.unit.index_assigner.largest_records FORMAT`` takes records of `RECORD_BYTES`, whose values
are many and small, from their bytes to a base file: decoded and keyed, published, read again and written. It
prints one JSON document: by case the most memory that was taken beyond what the process had before, and how
many of the records became rows. `TIDEMARK_LARGEST_RECORDS=all` tries more widths of inner records.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
from google.protobuf import descriptor_pb2

from testing.clock import ManualClock
from tests.hostile_avro import long
from tests.unit.index_assigner.avro_world import DictRegistry, record_schema
from tests.unit.index_assigner.taken_shares import measured_share, taken_within_a_quarter
from tidemark.config.model import LimitsConfig, UnknownFields
from tidemark.epoch_protocol.batches import decode_batch
from tidemark.hudi_format.file_group.base_file import attach_meta_columns, write_base_file
from tidemark.hudi_format.keys import KeyGenerator
from tidemark.hudi_format.schema import TableSchema
from tidemark.index_assigner.shuffle.configured_keyer import ROWS_PER_INPUT_BYTE
from tidemark.index_assigner.shuffle.keyed_rows import RecordKeyer, RecordRules
from tidemark.index_assigner.shuffle.shuffle_batch import MESSAGE_OVERHEAD_BYTES, encode_lanes
from tidemark.record_formats.avro_keys import AvroKeys
from tidemark.record_formats.avro_rows import column_defaults
from tidemark.record_formats.avro_schema import SYMBOL_CHARACTERS_MAX
from tidemark.record_formats.debezium_avro import DebeziumAvro
from tidemark.record_formats.debezium_json import DebeziumJson
from tidemark.record_formats.decode_avro import AvroDecoder
from tidemark.record_formats.decode_protobuf import ProtobufDecoder
from tidemark.record_formats.decoder import RecordDecoder, RowTarget
from tidemark.record_formats.protobuf_message import message_class
from tidemark.record_formats.refusals import DeadLetterReason
from tidemark.stream_runtime.kafka.ports import Message
from tidemark.stream_runtime.platform.arrow_alone import use_arrow_alone

LIMITS: Final = LimitsConfig()
RECORD_BYTES: Final = LIMITS.record_bytes
MANY: Final = 4
"""As many as a transaction takes (`limits.transaction_bytes`)."""
WIDTHS: Final = (1, 8, 40) if os.environ.get("TIDEMARK_LARGEST_RECORDS") == "all" else (1, 40)
"""Columns of the inner records."""
WIDEST: Final = 200
"""Columns of inner records that nulls stand for."""
WHOLE: Final = Fraction(1)
_KINDS: Final = ("boolean", "long", "string", "double", "int", "float", "bytes", "string")
_PROTOBUF_KINDS: Final = {
    "boolean": descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
    "long": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
    "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
    "double": descriptor_pb2.FieldDescriptorProto.TYPE_DOUBLE,
    "int": descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
    "float": descriptor_pb2.FieldDescriptorProto.TYPE_FLOAT,
    "bytes": descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
}


def avro_schema(width: int) -> dict[str, Any]:
    """A row with arrays of arrays, of records with so many columns, of numbers and of texts."""
    fields = [
        {"name": f"f{at}", "type": ["null", _KINDS[at % len(_KINDS)]], "default": None} for at in range(width)
    ]
    line = {"type": "record", "name": "line", "fields": fields}
    lists = {"type": "array", "items": {"type": "array", "items": "long"}}
    return {
        "type": "record",
        "name": "rows",
        "fields": [
            {"name": "id", "type": "string"},
            {"name": "lists", "type": ["null", lists], "default": None},
            {"name": "lines", "type": {"type": "array", "items": line}},
            {"name": "texts", "type": {"type": "array", "items": "string"}},
        ],
    }


SCHEMA: Final = TableSchema.from_avro(json.dumps(avro_schema(8)))
GENERATOR: Final = KeyGenerator.for_table(SCHEMA, ["id"], [])


class Content(NamedTuple):
    """How many of each the record holds: empty arrays, empty records, texts of two characters."""

    lists: int = 0
    lines: int = 0
    texts: int = 0


def json_record(key: str, content: Content, _: int = 0) -> bytes:
    def items(item: bytes, count: int) -> bytes:
        return b",".join([item] * count)

    return b'{"id":"%s","lists":[%s],"lines":[%s],"texts":[%s]}' % (
        key.encode(),
        items(b"[]", content.lists),
        items(b"{}", content.lines),
        items(b'"ab"', content.texts),
    )


def avro_record(key: str, content: Content, width: int) -> bytes:
    def array(item: bytes, count: int) -> bytes:
        return (long(count) + item * count if count else b"") + b"\0"

    head = b"\0\0\0\0\7" + long(len(key)) + key.encode()
    lists = long(1) + array(b"\0", content.lists)
    return head + lists + array(b"\0" * width, content.lines) + array(long(2) + b"ab", content.texts)


def protobuf_record(key: str, content: Content, _: int = 0) -> bytes:
    head = b"\x0a" + bytes([len(key)]) + key.encode()
    return head + b"\x1a\0" * content.lines + b"\x22\2ab" * content.texts


def json_event(key: str, content: Content, width: int) -> bytes:
    return b'{"before":null,"after":%s,"op":"c"}' % json_record(key, content, width)


def avro_event(key: str, content: Content, width: int) -> bytes:
    """Before is null, after is the row."""
    return b"\0\0\0\0\7\0\2" + avro_record(key, content, width)[5:] + b"\2c"


def protobuf_decoder(target: RowTarget, width: int) -> ProtobufDecoder:
    """Of a message like the row of `avro_schema`, without arrays of arrays, which Protobuf has not."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="rows.proto", package="large", syntax="proto3")
    row, line = file.message_type.add(name="Row"), file.message_type.add(name="Line")
    row.field.add(name="id", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    lines = row.field.add(name="lines", number=3, type=kinds.TYPE_MESSAGE, label=kinds.LABEL_REPEATED)
    lines.type_name = ".large.Line"
    row.field.add(name="texts", number=4, type=kinds.TYPE_STRING, label=kinds.LABEL_REPEATED)
    for at in range(width):
        kind = _PROTOBUF_KINDS[_KINDS[at % len(_KINDS)]]
        line.field.add(name=f"f{at}", number=at + 1, type=kind, label=kinds.LABEL_OPTIONAL)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.desc")
        path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
        return ProtobufDecoder(message_class(path, "large.Row"), target, GENERATOR, False)


def keyer(
    format_: str, width: int, written: dict[str, Any] | None = None, columns: dict[str, Any] | None = None
) -> RecordKeyer:
    """As an assigner has it where nothing is configured. ``written``: by another schema, which is the table's
    where no ``columns`` are given.
    """
    written = written or avro_schema(width)
    table = json.dumps(columns or written)
    schema = TableSchema.from_avro(table)
    rules = RecordRules(
        schema,
        GENERATOR,
        None,
        4,
        1,
        RECORD_BYTES,
        row_bytes_max=LIMITS.message_bytes - MESSAGE_OVERHEAD_BYTES,
        rows_bytes_max=ROWS_PER_INPUT_BYTE * LIMITS.transaction_bytes,
    )
    clock = ManualClock()
    decoder: RecordDecoder | None = None
    target = RowTarget.of(schema, None, UnknownFields.DROP)
    registry = DictRegistry()
    defaults = column_defaults(table, target.columns)
    keys = AvroKeys(GENERATOR, target, registry, clock)
    if format_ == "avro":
        registry.register(7, written)
        decoder = AvroDecoder(target, defaults, keys, registry, clock)
    if format_ == "debezium-avro":
        images = {"before": ["null", written], "after": ["null", "rows"], "op": "string"}
        registry.register(7, record_schema("event", images))
        decoder = DebeziumAvro(target, GENERATOR, defaults, keys, None, registry, clock)
    if format_ == "debezium-json":
        decoder = DebeziumJson(schema, GENERATOR, UnknownFields.DROP, None)
    if format_ == "protobuf":
        decoder = protobuf_decoder(target, width)
    return RecordKeyer(rules, decoder)


class Format(NamedTuple):
    """``make``: a record of a key, a content and a width. Sizes of an empty array, a record, a text."""

    make: Callable[[str, Content, int], bytes]
    list_bytes: int
    line_bytes: Callable[[int], int]
    text_bytes: int
    widths: Sequence[int] = WIDTHS


FORMATS: Final = {
    "json": Format(json_record, 3, lambda _: 3, 5),
    "avro": Format(avro_record, 1, lambda width: width, 3),
    "protobuf": Format(protobuf_record, 0, lambda _: 2, 4),
    # Rows of events are read as those of JSON and Avro.
    "debezium-json": Format(json_event, 3, lambda _: 3, 5, (8,)),
    "debezium-avro": Format(avro_event, 1, lambda width: width, 3, (8,)),
}


def contents(format_: str, width: int) -> dict[str, Content]:
    """By name: what a record of the largest size holds of one kind."""
    given, room = FORMATS[format_], RECORD_BYTES - 100
    found = {f"records of {width}": Content(lines=room // given.line_bytes(width))}
    if width == WIDTHS[0]:
        found["texts"] = Content(texts=room // given.text_bytes)
        if given.list_bytes:
            found["arrays"] = Content(lists=room // given.list_bytes)
    return found


class Special(NamedTuple):
    """Records of one kind of value that `Content` has not. ``make``: of a key, and how many; ``most``: so
    many have room in a record of the largest size.
    """

    name: str
    keyer: RecordKeyer
    make: Callable[[str, int], bytes]
    most: int


def specials(format_: str) -> Iterator[Special]:
    """Nulls that stand for wide records, symbols of enums, and fields that a descriptor lacks."""

    def avro_row(name: str, items: Any, column: Any) -> Special:
        written, columns = (
            record_schema("rows", {"id": "string", "items": {"type": "array", "items": each}})
            for each in (items, column)
        )

        def make(key: str, count: int) -> bytes:
            return b"\0\0\0\0\7" + long(len(key)) + key.encode() + long(count) + bytes(count + 1)

        return Special(name, keyer(format_, 0, written, columns), make, RECORD_BYTES - 100)

    fields = [{"name": f"f{at}", "type": ["null", _KINDS[at % len(_KINDS)]]} for at in range(WIDEST)]
    wide = ["null", {"type": "record", "name": "wide", "fields": fields}]
    if format_ == "json":
        for kind, name in (("items", "arrays"), ("values", "maps")):
            column = ["null", {"type": "map" if kind == "values" else "array", kind: wide}]
            made_of = keyer(format_, 0, record_schema("rows", {"id": "string", "items": column}))
            size = 5 if kind == "items" else 15
            yield Special(
                f"nulls for records of {WIDEST} in {name}",
                made_of,
                partial(_json_nulls, kind == "values"),
                (RECORD_BYTES - 100) // size,
            )
    if format_ == "avro":
        yield avro_row(f"nulls for records of {WIDEST} in arrays", wide, wide)
        symbol = "A" * SYMBOL_CHARACTERS_MAX
        yield avro_row("symbols", {"type": "enum", "name": "long", "symbols": [symbol]}, "string")
    if format_ == "protobuf":
        made_of = keyer(format_, 8)
        # Of the number 15: a varint, and a group; both are empty.
        for name, unknown in (("unknown numbers", b"\x78\0"), ("unknown groups", b"\x7b\x7c")):
            count = (RECORD_BYTES - 100) // len(unknown)
            yield Special(name, made_of, partial(_with_unknown, unknown), count)


def _json_nulls(named: bool, key: str, count: int) -> bytes:
    if named:
        return b'{"id":"%s","items":{%s}}' % (
            key.encode(),
            b",".join(b'"%07d":null' % at for at in range(count)),
        )
    return b'{"id":"%s","items":[%s]}' % (key.encode(), b",".join([b"null"] * count))


def _with_unknown(unknown: bytes, key: str, count: int) -> bytes:
    return protobuf_record(key, Content()) + unknown * count


class _Keyed(NamedTuple):
    rows: int
    refused: int


def keyed(made_of: RecordKeyer, values: Sequence[bytes]) -> _Keyed:
    """As the shuffle stage does it, transaction by transaction, to base files."""
    messages = [Message("in", 0, at, None, value) for at, value in enumerate(values)]
    rows = refused = 0
    while messages:
        found = made_of.key_records(messages)
        assert {each.reason for each in found.refused} <= {DeadLetterReason.RECORD_TOO_LARGE}, found.refused[
            0
        ]
        assert found.rows.num_rows + len(found.refused) == found.records
        messages = messages[found.records :]
        encoded = encode_lanes(found, LIMITS.batch_bytes, LIMITS.message_bytes)
        assert not encoded.refused
        rows, refused = rows + found.rows.num_rows, refused + len(found.refused)
        del found
        for each in encoded.batches:
            _write(pa.Table.from_batches([decode_batch(each.value)]), made_of)
    return _Keyed(rows, refused)


def _write(rows: pa.Table, made_of: RecordKeyer) -> None:
    schema = made_of.table_schema
    keys = rows.column("_tm_key").combine_chunks()
    name = "f-0_0-0-0_20240101000000000.parquet"
    user = rows.select(schema.arrow.names)
    write_base_file(attach_meta_columns(user, keys, "", "20240101000000000", 0, name, 0), schema)


class _Kind(NamedTuple):
    """``make``: a record of a key, with so much of what has room in a record of the largest size."""

    name: str
    keyer: RecordKeyer
    make: Callable[[str, Fraction], bytes]


def _kinds(format_: str) -> Iterator[_Kind]:
    def with_content(width: int, content: Content, key: str, share: Fraction) -> bytes:
        return FORMATS[format_].make(key, Content(*(int(count * share) for count in content)), width)

    def special(one: Special, key: str, share: Fraction) -> bytes:
        return one.make(key, int(one.most * share))

    for width in FORMATS[format_].widths:
        made_of = keyer(format_, width)
        for name, content in contents(format_, width).items():
            yield _Kind(name, made_of, partial(with_content, width, content))
    for each in specials(format_):
        yield _Kind(each.name, each.keyer, partial(special, each))


def _try_cases(format_: str, became: Callable[[str, RecordKeyer, list[bytes]], _Keyed]) -> None:
    """``became``: takes the records of a case and says what became of them."""
    for name, made_of, make in _kinds(format_):
        alone = became(f"one of {name}", made_of, [make("a", WHOLE)])
        refused = partial(_is_refused, made_of, make)
        share = measured_share(refused, format_, name) if alone.refused else WHOLE
        many = share is not None and became(f"{MANY} of {name}", made_of, _many(make, share))
        if not many or many.refused:
            share = taken_within_a_quarter(refused, format_, name)
            became(f"{MANY} of {name}", made_of, _many(make, share))


def _many(make: Callable[[str, Fraction], bytes], share: Fraction) -> list[bytes]:
    return [make(f"k{at}", share) for at in range(MANY)]


def _is_refused(made_of: RecordKeyer, make: Callable[[str, Fraction], bytes], share: Fraction) -> bool:
    return keyed(made_of, [make("a", share)]).refused > 0


def _peak_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))


def main() -> None:
    """Prints memory and rows of each case."""
    format_ = sys.argv[1]
    use_arrow_alone()
    keyed(keyer(format_, 8), [FORMATS[format_].make("a", Content(lines=2, texts=2), 8)])
    before = _peak_bytes()
    told: dict[str, Any] = {"before": [before, 0]}

    def measured(name: str, made_of: RecordKeyer, values: list[bytes]) -> _Keyed:
        size = sum(map(len, values))
        Path("/proc/self/clear_refs").write_text("5")
        became = keyed(made_of, values)
        told[name] = [_peak_bytes() - before - size, became.rows]
        return became

    _try_cases(format_, measured)
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main()
