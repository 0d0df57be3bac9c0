"""A writer's own schema (Avro's, or Kafka Connect's in JSON) as columns; nothing is guessed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tidemark.hudi_format.avro_types import DECIMAL_PRECISION_MAX
from tidemark.init.columns import DATE, TIMESTAMP_MICROS, TIMESTAMP_MILLIS, Avro, Columns, nested_fields
from tidemark.record_formats.avro_schema import AvroType
from tidemark.record_formats.meanings import LogicalType, meaning_of, scale_in

_BY_MEANING: Final[Mapping[LogicalType, Avro]] = {
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
    """The columns of a record; what cannot be one has a note."""
    found = Columns()
    for name, each in (record.fields or {}).items():
        avro, note = _column(name, each), ""
        if avro is None:
            note = f"left out: {each.shown} cannot be a column"
        elif each.not_null.meaning is LogicalType.DECIMAL:
            note = "the widest decimal of this scale: lower the precision if you know it"
        found.add(name, avro, note)
    return found


def image_of(envelope: AvroType) -> AvroType | None:
    """The row within a change event's schema; None when it is none."""
    fields = envelope.fields or {}
    if not {"op", "after", "source"} <= set(fields):
        return None
    after = fields["after"].not_null
    return after if after.kind == "record" else None


def connect_type(schema: Any) -> AvroType:
    """Kafka Connect's JSON schema of a value, as the tree that Avro's schemas become."""
    kind = schema.get("type") if isinstance(schema, dict) else None
    if kind == "struct":
        fields = {str(each.get("field")): connect_type(each) for each in schema.get("fields") or ()}
        return AvroType("record", fields=fields)
    if kind in ("array", "map"):
        return AvroType(kind, item=connect_type(schema.get("items" if kind == "array" else "values")))
    meaning = meaning_of(schema.get("name")) if isinstance(schema, dict) else LogicalType.PLAIN
    scale = (
        scale_in((schema.get("parameters") or {}).get("scale", 0)) if meaning is LogicalType.DECIMAL else None
    )
    return AvroType(_CONNECT.get(str(kind), "string"), meaning, scale)


def _column(name: str, given: AvroType) -> Avro | None:
    each = given.not_null
    if each.meaning is LogicalType.DECIMAL and each.scale is not None:
        decimal = {"type": "bytes", "logicalType": "decimal"}
        return {**decimal, "precision": DECIMAL_PRECISION_MAX, "scale": each.scale}
    if each.meaning in _BY_MEANING:
        return dict(_BY_MEANING[each.meaning])
    if each.kind in _SAME:
        return each.kind
    if each.kind == "enum":
        return "string"
    if each.kind == "fixed":
        return "bytes"
    if each.item is not None:
        item = _column(name, each.item)
        if item is None:
            return None
        return {"type": each.kind, "items" if each.kind == "array" else "values": ["null", item]}
    if each.kind == "record" and each.fields:
        fields = nested_fields({key: _column(f"{name}_{key}", field) for key, field in each.fields.items()})
        return {"type": "record", "name": name, "fields": fields} if fields else None
    return None
