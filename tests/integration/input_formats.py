"""One table's records in every input format, as producers of that format write them: by Confluent's own
serializer where there is one, bytes by the book elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tests.schema_registry import RegistryServer

Row = Mapping[str, Any]
"""id (long), region (text), at (long), name (text or null)."""

SCHEMA: Final = {
    "type": "record",
    "name": "rows",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "region", "type": "string"},
        {"name": "at", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
    ],
}
_FIELDS: Final = [
    {"name": "id", "type": "long"},
    {"name": "region", "type": "string"},
    {"name": "name", "type": ["null", "string"], "default": None},
]
_FLAT: Final = {
    "type": "record",
    "name": "Row",
    "fields": [
        *_FIELDS,
        {"name": "at", "type": "long"},
        {"name": "gone", "type": "boolean", "default": False},
    ],
}
_VALUE: Final = {"type": "record", "name": "Value", "namespace": "shop.rows", "fields": _FIELDS}
_KEY: Final = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
_ENVELOPE: Final = {
    "type": "record",
    "name": "Envelope",
    "namespace": "shop.rows",
    "fields": [
        {"name": "before", "type": ["null", _VALUE], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {
            "name": "source",
            "type": {
                "type": "record",
                "name": "Source",
                "fields": [{"name": "lsn", "type": ["null", "long"]}],
            },
        },
        {"name": "op", "type": "string"},
    ],
}


@dataclass(frozen=True)
class Format:
    """``settings`` of `input`; ``value(row, deleted)`` and ``key(row)`` as producers write them;
    ``tombstones``: a null value follows each delete.
    """

    settings: Mapping[str, Any]
    value: Callable[[Row, bool], bytes]
    key: Callable[[Row], bytes]
    tombstones: bool = False


def formats(topic: str, registry: RegistryServer, folder: Path) -> dict[str, Format]:
    """By name. The descriptor of the Protobuf message is written to ``folder``."""
    client = SchemaRegistryClient({"url": registry.url})

    def serializer(schema: Any) -> Callable[[Any, MessageField], bytes]:
        made = AvroSerializer(client, json.dumps(schema))
        return lambda record, part: bytes(made(record, SerializationContext(topic, part)))

    flat, envelope, key = serializer(_FLAT), serializer(_ENVELOPE), serializer(_KEY)
    url = {"schema_registry": {"url": registry.url}}
    flag = {"delete_field": "gone"}
    ordered = {"debezium": {"ordering": "source.lsn"}}
    json_id = registry.register(f"{topic}-value-json", "{}", "JSON")
    message = _protobuf_message(folder / "rows.desc")
    protobuf = {"descriptor": str(folder / "rows.desc"), "message": "shop.Row"}

    def json_key(row: Row) -> bytes:
        return json.dumps({"id": row["id"]}).encode()

    def avro_key(row: Row) -> bytes:
        return key({"id": row["id"]}, MessageField.KEY)

    def framed_json(row: Row, deleted: bool) -> bytes:
        return b"\x00" + json_id.to_bytes(4, "big") + json.dumps({**row, "gone": deleted}).encode()

    def framed_protobuf(row: Row, deleted: bool) -> bytes:
        given = {name: value for name, value in row.items() if value is not None}
        return b"\x00\x00\x00\x00\x2a\x00" + bytes(message(**given, gone=deleted).SerializeToString())

    return {
        "json": Format({"format": "json", **url, **flag}, framed_json, json_key),
        "avro": Format(
            {"format": "avro", **url, **flag},
            lambda row, deleted: flat({**row, "gone": deleted}, MessageField.VALUE),
            avro_key,
        ),
        "protobuf": Format(
            {"format": "protobuf", "protobuf": protobuf, "framing": "confluent", **flag},
            framed_protobuf,
            lambda row: str(row["id"]).encode(),
        ),
        "debezium-json": Format(
            {"format": "debezium-json", **ordered},
            lambda row, deleted: json.dumps(
                {"schema": {"type": "struct"}, "payload": change(row, deleted)}
            ).encode(),
            json_key,
            tombstones=True,
        ),
        "debezium-avro": Format(
            {"format": "debezium-avro", **url, **ordered},
            lambda row, deleted: envelope(change(row, deleted), MessageField.VALUE),
            avro_key,
            tombstones=True,
        ),
    }


def change(row: Row, deleted: bool) -> dict[str, Any]:
    """The envelope; a delete's image has the key alone, as with PostgreSQL's default replica identity."""
    image = {"id": row["id"], "region": row["region"], "name": row["name"]}
    source = {"lsn": row["at"]}
    if deleted:
        return {"before": {**image, "region": "", "name": None}, "after": None, "source": source, "op": "d"}
    return {"before": None, "after": image, "source": source, "op": "u"}


def _protobuf_message(file: Path) -> Any:
    kinds = descriptor_pb2.FieldDescriptorProto
    described = descriptor_pb2.FileDescriptorProto(name="rows.proto", package="shop", syntax="proto3")
    row = described.message_type.add(name="Row")
    types = {
        "id": kinds.TYPE_INT64,
        "region": kinds.TYPE_STRING,
        "at": kinds.TYPE_SINT64,
        "name": kinds.TYPE_STRING,
        "gone": kinds.TYPE_BOOL,
    }
    for number, (name, kind) in enumerate(types.items(), 1):
        added = row.field.add(name=name, number=number, type=kind, label=kinds.LABEL_OPTIONAL)
        if name == "name":
            added.proto3_optional = True
            added.oneof_index = 0
    row.oneof_decl.add(name="_name")
    file.write_bytes(descriptor_pb2.FileDescriptorSet(file=[described]).SerializeToString())
    pool = descriptor_pool.DescriptorPool()
    pool.Add(described)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Row"))
