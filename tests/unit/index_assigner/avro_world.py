"""Framed Avro for tests: writers with schemas of their own, a registry that is a dictionary, and a table with
columns of every type that reads by it.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from fastavro import parse_schema, schemaless_writer

from testing.clock import ManualClock
from tidemark.config.model import UnknownFields
from tidemark.hudi_format.keys import KeyGenerator
from tidemark.hudi_format.schema import TableSchema
from tidemark.record_formats.avro_keys import AvroKeys
from tidemark.record_formats.avro_rows import column_defaults
from tidemark.record_formats.decode_avro import AvroDecoder
from tidemark.record_formats.decoder import DecodedRecords, RecordDecoder, RowTarget
from tidemark.stream_runtime.kafka.ports import Message
from tidemark.stream_runtime.schema_registry.ports import (
    AVRO,
    RegistryUnavailableError,
    StoredSchema,
    UnknownSchemaError,
)


@dataclass
class DictRegistry:
    """A `SchemaSource`. ``down``: it does not answer; ``failing``: nor for these ids, with the error;
    ``asked``: the ids in order, each takes ``takes_s``.
    """

    schemas: dict[int, StoredSchema] = field(default_factory=dict)
    down: bool = False
    failing: dict[int, str] = field(default_factory=dict)
    asked: list[int] = field(default_factory=list)
    takes_s: float = 0.0
    clock: ManualClock = field(default_factory=ManualClock)

    def fetch(self, schema_id: int) -> StoredSchema:
        self.asked.append(schema_id)
        self.clock.advance(self.takes_s)
        if self.down:
            raise RegistryUnavailableError("connection refused")
        if schema_id in self.failing:
            raise RegistryUnavailableError(self.failing[schema_id])
        if schema_id not in self.schemas:
            raise UnknownSchemaError(f"no schema {schema_id}")
        return self.schemas[schema_id]

    def close(self) -> None: ...

    def register(self, schema_id: int, avro: Any, *references: Any) -> None:
        texts = tuple(json.dumps(each) for each in references)
        self.schemas[schema_id] = StoredSchema(AVRO, json.dumps(avro), texts)


def framed(schema_id: int, avro: Any, record: Any) -> bytes:
    """A record as a producer with that schema writes it; Python's own types, logical ones included."""
    content = io.BytesIO()
    schemaless_writer(content, parse_schema(json.loads(json.dumps(avro))), record)
    return b"\x00" + schema_id.to_bytes(4, "big") + content.getvalue()


def record_schema(name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": each, "type": avro} for each, avro in fields.items()],
    }


def messages(values: Sequence[bytes | None], key: bytes | None = None) -> list[Message]:
    return [Message("in", 0, i, key, value) for i, value in enumerate(values)]


def decode(decoder: RecordDecoder, *values: bytes) -> DecodedRecords:
    decoded = decoder.decode(messages(values), np.arange(len(values)))
    decoded.rows.validate(full=True)
    refused = [each.position for each in decoded.refused]
    told = decoded.positions.tolist() + refused + decoded.by_kafka_key.positions.tolist()
    assert sorted(told) == list(range(len(values)))
    return decoded


TABLE = {
    "type": "record",
    "name": "zoo",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "i", "type": ["null", "int"], "default": None},
        {"name": "l", "type": ["null", "long"], "default": None},
        {"name": "f", "type": ["null", "float"], "default": None},
        {"name": "d", "type": ["null", "double"], "default": None},
        {"name": "b", "type": ["null", "boolean"], "default": None},
        {"name": "raw", "type": ["null", "bytes"], "default": None},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}], "default": None},
        {
            "name": "micros",
            "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}],
            "default": None,
        },
        {
            "name": "millis",
            "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}],
            "default": None,
        },
        {
            "name": "dec",
            "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}],
            "default": None,
        },
        {"name": "list", "type": ["null", {"type": "array", "items": ["null", "long"]}], "default": None},
        {"name": "map", "type": ["null", {"type": "map", "values": "long"}], "default": None},
        {
            "name": "rec",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "rec",
                    "fields": [
                        {"name": "n", "type": "long"},
                        {"name": "s", "type": ["null", "string"], "default": None},
                    ],
                },
            ],
            "default": None,
        },
        {"name": "status", "type": "string", "default": "new"},
    ],
}
ZOO = TableSchema.from_avro(json.dumps(TABLE))


class Reads:
    def __init__(self, strict: bool = False, delete_field: str | None = None) -> None:
        self.clock, self.registry = ManualClock(), DictRegistry()
        target = RowTarget.of(ZOO, delete_field, UnknownFields.ERROR if strict else UnknownFields.DROP)
        defaults = column_defaults(json.dumps(TABLE), target.columns)
        self.generator = KeyGenerator.for_table(ZOO, ["id"])
        self.keys = AvroKeys(self.generator, target, self.registry, self.clock)
        self.decoder = AvroDecoder(target, defaults, self.keys, self.registry, self.clock)

    def one(self, fields: dict[str, Any], **record: Any) -> Any:
        """The row that a record becomes, or the refusal."""
        schema = record_schema("w", {"id": "string", **fields})
        self.registry.register(7, schema)
        decoded = decode(self.decoder, framed(7, schema, {"id": "a", **record}))
        return decoded.refused[0] if decoded.refused else decoded.rows.to_pylist()[0]
