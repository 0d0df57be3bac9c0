"""Input records as producers of each `input.format` write them, and the schema registry that they use.

One set of fields for all tables: what a table has no column for is dropped, as `input.unknown_fields` says.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import fastavro
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tests.simulation.world.checkers.layout import SUB, Layout
from tidemark.stream_runtime.schema_registry.ports import AVRO, StoredSchema

DELETE_FIELD: Final = "gone"
MESSAGE: Final = "sim.Row"
_FIELDS: Final = {
    "id": "string", "sub": "string", "day": "string", "zone": "string", "ts": "long", "v": "long",
    "note": "string",
}  # fmt: skip
_NULLABLE: Final = [{"name": n, "type": ["null", kind], "default": None} for n, kind in _FIELDS.items()]
_FLAT: Final = {
    "type": "record",
    "name": "Row",
    "fields": [*_NULLABLE, {"name": DELETE_FIELD, "type": "boolean", "default": False}],
}
_VALUE: Final = {"type": "record", "name": "Value", "namespace": "sim", "fields": _NULLABLE}
_SOURCE: Final = {"type": "record", "name": "Source", "fields": [{"name": "lsn", "type": ["null", "long"]}]}
_ENVELOPE: Final = {
    "type": "record",
    "name": "Envelope",
    "namespace": "sim",
    "fields": [
        {"name": "before", "type": ["null", _VALUE], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": _SOURCE},
        {"name": "op", "type": "string"},
    ],
}
_KEY: Final = {"type": "record", "name": "Key", "fields": _NULLABLE[:2]}
_FLAT_ID, _ENVELOPE_ID, _KEY_ID = 1, 2, 3
_SCHEMAS: Final[dict[int, dict[str, Any]]] = {_FLAT_ID: _FLAT, _ENVELOPE_ID: _ENVELOPE, _KEY_ID: _KEY}
_TRUNCATED: Final = b"\x02"


class Registry:
    """The schema registry that all services of a world ask; takes the place of its client."""

    def __init__(self, *_: object) -> None:
        pass

    def fetch(self, schema_id: int) -> StoredSchema:
        return StoredSchema(AVRO, json.dumps(_SCHEMAS[schema_id]))

    def close(self) -> None:
        return None


class Encoding:
    """One of the formats."""

    def __init__(self, format_: str, layout: Layout) -> None:
        self.format, self._layout = format_, layout
        self._message = protobuf_message()[1] if format_ == "protobuf" else None

    @property
    def is_debezium(self) -> bool:
        """A null value right behind a delete of its key only repeats that one."""
        return self.format.startswith("debezium")

    def value(self, row: Mapping[str, Any], deleted: bool) -> bytes:
        """A record with a value; a delete names its key and its ordering value."""
        if self.is_debezium:
            return self._change(row, deleted)
        flag = {DELETE_FIELD: True} if deleted else {}
        if self._message is not None:
            return bytes(self._message(**row, **flag).SerializeToString())
        if self.format == "avro":
            return _framed(_FLAT_ID, {**row, **flag})
        return json.dumps({**row, **flag}).encode()

    def _change(self, row: Mapping[str, Any], deleted: bool) -> bytes:
        images = {"before": row, "after": None} if deleted else {"before": None, "after": row}
        event = {**images, "source": {"lsn": row["ts"]}, "op": "d" if deleted else "u"}
        if self.format == "debezium-avro":
            return _framed(_ENVELOPE_ID, event)
        return json.dumps({"schema": {"type": "struct"}, "payload": event}).encode()

    def key(self, name: str) -> bytes:
        """The Kafka key of the row with this `id`."""
        if self.format in ("avro", "debezium-avro"):
            return _framed(_KEY_ID, {"id": name, "sub": SUB})
        return self._layout.record_key(name).encode()

    def broken(self) -> bytes:
        """What no decoder takes."""
        if self.format in ("avro", "debezium-avro"):
            return b"\x00" + _FLAT_ID.to_bytes(4, "big") + _TRUNCATED
        return b"\xff\xff\xff" if self.format == "protobuf" else b"{broken"


def _framed(schema_id: int, record: Mapping[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(_SCHEMAS[schema_id]), dict(record))
    return b"\x00" + schema_id.to_bytes(4, "big") + out.getvalue()


def input_settings(format_: str, ordered: bool, folder: Path) -> dict[str, Any]:
    """What the section `input` says of the format; a descriptor is written to ``folder``."""
    settings: dict[str, Any] = {"format": format_}
    if format_.startswith("debezium"):
        settings |= {"debezium": {"ordering": "source.lsn"}} if ordered else {}
    else:
        settings["delete_field"] = DELETE_FIELD
    if format_ in ("avro", "debezium-avro"):
        settings["schema_registry"] = {"url": "http://registry:8081"}
    if format_ == "protobuf":
        file = folder / "row.desc"
        file.write_bytes(protobuf_message()[0])
        settings["protobuf"] = {"descriptor": str(file), "message": MESSAGE}
    return settings


def protobuf_message() -> tuple[bytes, Any]:
    """The set of descriptors as a file holds it, and the class of the message."""
    kinds = descriptor_pb2.FieldDescriptorProto
    described = descriptor_pb2.FileDescriptorProto(name="row.proto", package="sim", syntax="proto3")
    row = described.message_type.add(name="Row")
    for number, (name, kind) in enumerate({**_FIELDS, DELETE_FIELD: "bool"}.items(), 1):
        type_ = {"string": kinds.TYPE_STRING, "long": kinds.TYPE_INT64, "bool": kinds.TYPE_BOOL}[kind]
        added = row.field.add(name=name, number=number, type=type_, label=kinds.LABEL_OPTIONAL)
        added.proto3_optional, added.oneof_index = True, number - 1
        row.oneof_decl.add(name=f"_{name}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(described)
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName(MESSAGE))
    return descriptor_pb2.FileDescriptorSet(file=[described]).SerializeToString(), message
