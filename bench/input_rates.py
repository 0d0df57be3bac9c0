"""Records a second from bytes to keyed rows, by input format: `python -m bench.input_rates`.

CPU time of one thread, so that other work on the machine counts little; the best of several rounds over one
batch of 20,000 records of about 250 bytes of content. Nothing is read from Kafka or a registry.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from fastavro import parse_schema, schemaless_writer
from google.protobuf import descriptor_pb2

from tidemark.config.model import UnknownFields
from tidemark.hudi_format.keys import KeyGenerator
from tidemark.hudi_format.ordering import OrderingField
from tidemark.hudi_format.schema import TableSchema
from tidemark.index_assigner.shuffle.keyed_rows import RecordKeyer, RecordRules
from tidemark.record_formats.avro_keys import AvroKeys
from tidemark.record_formats.debezium_avro import DebeziumAvro
from tidemark.record_formats.debezium_json import DebeziumJson
from tidemark.record_formats.decode_avro import AvroDecoder
from tidemark.record_formats.decode_json import JsonDecoder
from tidemark.record_formats.decode_protobuf import ProtobufDecoder
from tidemark.record_formats.decoder import RecordDecoder, RowTarget
from tidemark.record_formats.plain_json import PlainJson
from tidemark.record_formats.protobuf_message import message_class
from tidemark.record_formats.source_position import EnvelopeOrdering
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.kafka.ports import Message
from tidemark.stream_runtime.schema_registry.ports import AVRO, StoredSchema

RECORDS: Final = 20_000
ROUNDS: Final = 5
FIELDS: Final[dict[str, Any]] = {
    "id": "string",
    "region": "string",
    "lsn": "long",
    "amount": "double",
    "count": "int",
    "open": "boolean",
    "note": ["null", "string"],
    "text": "string",
}
ROW_SCHEMA: Final = {
    "type": "record",
    "name": "rows",
    "fields": [{"name": name, "type": avro} for name, avro in FIELDS.items()],
}
SOURCE: Final = {"type": "record", "name": "Source", "fields": [{"name": "lsn", "type": "long"}]}
ENVELOPE: Final = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", ROW_SCHEMA]},
        {"name": "after", "type": ["null", "rows"]},
        {"name": "source", "type": SOURCE},
        {"name": "op", "type": "string"},
    ],
}


class _Registry:
    """Schema 1 is the row's, schema 2 the envelope's."""

    def fetch(self, schema_id: int) -> StoredSchema:
        return StoredSchema(AVRO, json.dumps(ROW_SCHEMA if schema_id == 1 else ENVELOPE))

    def close(self) -> None: ...


def row(number: int) -> dict[str, Any]:
    """About 250 bytes of content."""
    return {
        "id": f"customer-{number:012}",
        "region": f"region-{number % 16}",
        "lsn": number,
        "amount": number / 4,
        "count": number % 100,
        "open": number % 2 == 0,
        "note": None if number % 3 else "a note",
        "text": "x" * 180,
    }


def change(number: int) -> dict[str, Any]:
    return {"before": None, "after": row(number), "source": {"lsn": number}, "op": "u"}


def avro_values(schema_id: int, schema: Any, records: Sequence[Any]) -> list[bytes]:
    parsed = parse_schema(json.loads(json.dumps(schema)))
    values = []
    for record in records:
        content = io.BytesIO()
        schemaless_writer(content, parsed, record)
        values.append(b"\x00" + schema_id.to_bytes(4, "big") + content.getvalue())
    return values


def protobuf_message(folder: Path) -> Any:
    kinds = descriptor_pb2.FieldDescriptorProto
    types = [kinds.TYPE_STRING, kinds.TYPE_STRING, kinds.TYPE_INT64, kinds.TYPE_DOUBLE, kinds.TYPE_INT32]
    types += [kinds.TYPE_BOOL, kinds.TYPE_STRING, kinds.TYPE_STRING]
    file = descriptor_pb2.FileDescriptorProto(name="rows.proto", package="bench", syntax="proto3")
    made = file.message_type.add(name="Row")
    for number, (name, kind) in enumerate(zip(FIELDS, types, strict=True), 1):
        made.field.add(name=name, number=number, type=kind, label=kinds.LABEL_OPTIONAL)
    (folder / "rows.desc").write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    return message_class(folder / "rows.desc", "bench.Row")


def rate(keyer: RecordKeyer, values: Sequence[bytes]) -> float:
    """Records a second of CPU time, the best round."""
    batch = [Message("in", 0, offset, None, value) for offset, value in enumerate(values)]
    best = 0.0
    for _ in range(ROUNDS):
        began = time.process_time()
        keyed = keyer.key_records(batch)
        best = max(best, len(batch) / (time.process_time() - began))
        assert keyed.rows.num_rows == len(batch), keyed.refused[:3]
    return best


def main() -> None:
    schema = TableSchema.from_avro(json.dumps(ROW_SCHEMA))
    generator = KeyGenerator.for_table(schema, ["id"], ["region"])
    rules = RecordRules(schema, generator, OrderingField.of(schema, "lsn"), 8, 4, 1 << 22)
    target, registry, clock = RowTarget.of(schema, None, UnknownFields.DROP), _Registry(), SystemClock()
    keys = AvroKeys(generator, target, registry, clock)
    lsn = EnvelopeOrdering.of("source.lsn", "lsn", schema.field("lsn").type)
    rows, changes = [row(n) for n in range(RECORDS)], [change(n) for n in range(RECORDS)]
    connect = {
        "type": "struct",
        "fields": [{"field": "after", "type": "struct", "fields": [{"field": "id"}] * 60}],
    }
    with TemporaryDirectory() as folder:
        message = protobuf_message(Path(folder))
        messages = [message(**{k: v for k, v in each.items() if v is not None}) for each in rows]
        cases: dict[str, tuple[Callable[[], RecordDecoder], list[bytes]]] = {
            "json": (
                lambda: PlainJson(JsonDecoder(schema, None, UnknownFields.DROP), generator),
                [json.dumps(each).encode() for each in rows],
            ),
            "avro": (
                lambda: AvroDecoder(target, {}, keys, registry, clock),
                avro_values(1, ROW_SCHEMA, rows),
            ),
            "protobuf": (
                lambda: ProtobufDecoder(message, target, generator, False),
                [each.SerializeToString() for each in messages],
            ),
            "debezium-json": (
                lambda: DebeziumJson(schema, generator, UnknownFields.DROP, lsn),
                [json.dumps(each).encode() for each in changes],
            ),
            "debezium-json, with schema": (
                lambda: DebeziumJson(schema, generator, UnknownFields.DROP, lsn),
                [json.dumps({"schema": connect, "payload": each}).encode() for each in changes],
            ),
            "debezium-avro": (
                lambda: DebeziumAvro(target, generator, {}, keys, lsn, registry, clock),
                avro_values(2, ENVELOPE, changes),
            ),
        }
        for name, (decoder, values) in cases.items():
            size = sum(map(len, values)) // len(values)
            found = rate(RecordKeyer(rules, decoder()), values)
            print(f"{name:28} {found:>10,.0f} records/s   {size} bytes each")


if __name__ == "__main__":
    main()
