"""Columns of a producer's own schema (Avro, or Kafka Connect's JSON schema). The schema has every type, so
none is guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tidemark.hudi_format.avro_types import DECIMAL_PRECISION_MAX
from tidemark.init.columns import DATE, TIMESTAMP_MICROS, TIMESTAMP_MILLIS, Avro, Columns, nested_fields
from tidemark.record_formats.avro_schema import AvroType
from tidemark.record_formats.logical_types import LogicalType, logical_type_of, scale_in

_BY_LOGICAL_TYPE: Final[Mapping[LogicalType, Avro]] = {
    LogicalType.DATE: DATE,
    LogicalType.MILLIS: TIMESTAMP_MILLIS,
    LogicalType.MICROS: TIMESTAMP_MICROS,
    LogicalType.NANOS: TIMESTAMP_MICROS,
}
_SAME: Final = frozenset({"boolean", "int", "long", "float", "double", "bytes", "string"})
_CONNECT: Final = {
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "long",
    "float": "float",
    "float32": "float",
    "double": "double",
    "float64": "double",
    "boolean": "boolean",
    "string": "string",
    "bytes": "bytes",
}


def columns_of(record: AvroType) -> Columns:
    """The columns of a record type; a field that cannot be a column has a note."""
    columns = Columns()
    for name, field in (record.fields or {}).items():
        avro, note = _column(name, field), ""
        if avro is None:
            note = f"left out: {field.shown} cannot be a column"
        elif field.not_null.logical_type is LogicalType.DECIMAL:
            note = "the widest decimal of this scale: lower the precision if you know it"
        columns.add(name, avro, note)
    return columns


def image_of(envelope: AvroType) -> AvroType | None:
    """The type of the row (`after`) in the schema of a change event; None when the schema is not one of
    change events.
    """
    fields = envelope.fields or {}
    if not {"op", "after", "source"} <= set(fields):
        return None
    after = fields["after"].not_null
    return after if after.kind == "record" else None


def connect_type(schema: Any) -> AvroType:
    """Kafka Connect's JSON schema of a value, as the same tree of types that Avro schemas become."""
    kind = schema.get("type") if isinstance(schema, dict) else None
    if kind == "struct":
        fields = {str(part.get("field")): connect_type(part) for part in schema.get("fields") or ()}
        return AvroType("record", fields=fields)
    if kind in ("array", "map"):
        return AvroType(kind, item=connect_type(schema.get("items" if kind == "array" else "values")))
    logical_type = logical_type_of(schema.get("name")) if isinstance(schema, dict) else LogicalType.PLAIN
    scale = (
        scale_in((schema.get("parameters") or {}).get("scale", 0))
        if logical_type is LogicalType.DECIMAL
        else None
    )
    return AvroType(_CONNECT.get(str(kind), "string"), logical_type, scale)


def _column(name: str, given: AvroType) -> Avro | None:
    plain = given.not_null
    if plain.logical_type is LogicalType.DECIMAL and plain.scale is not None:
        decimal = {"type": "bytes", "logicalType": "decimal"}
        return {**decimal, "precision": DECIMAL_PRECISION_MAX, "scale": plain.scale}
    if plain.logical_type in _BY_LOGICAL_TYPE:
        return dict(_BY_LOGICAL_TYPE[plain.logical_type])
    if plain.kind in _SAME:
        return plain.kind
    if plain.kind == "enum":
        return "string"
    if plain.kind == "fixed":
        return "bytes"
    if plain.item is not None:
        item = _column(name, plain.item)
        if item is None:
            return None
        return {"type": plain.kind, "items" if plain.kind == "array" else "values": ["null", item]}
    if plain.kind == "record" and plain.fields:
        fields = nested_fields({key: _column(f"{name}_{key}", field) for key, field in plain.fields.items()})
        return {"type": "record", "name": name, "fields": fields} if fields else None
    return None
