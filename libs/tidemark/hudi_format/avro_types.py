"""Maps Avro types to Arrow types and back, for the types that Hudi writes (FORMAT.md, section 4.5).

This library computes with Arrow types; the timeline and the log files carry Avro JSON. The mapping back to
Avro is canonical: it produces the text that Hudi's Spark writer produces for the same columns, including the
names of nested records and of decimal `fixed` types. So two engines that add a column to one table agree on
its schema.
"""

from __future__ import annotations

import re
from typing import Any, Final

import pyarrow as pa

from tidemark.hudi_format.errors import HudiFormatError

DECIMAL_PRECISION_MAX: Final = 38
NESTING_DEPTH_MAX: Final = 32
_AVRO_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PRIMITIVES: Final[dict[str, pa.DataType]] = {
    "string": pa.string(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "bytes": pa.binary(),
}
_LOGICAL: Final[dict[tuple[str, str], pa.DataType]] = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("string", "uuid"): pa.string(),
}
_TO_AVRO: Final[dict[pa.DataType, Any]] = {
    **{arrow: avro for avro, arrow in _PRIMITIVES.items()},
    **{
        arrow: {"type": base, "logicalType": logical}
        for (base, logical), arrow in _LOGICAL.items()
        if base != "string"
    },
}


class SchemaError(HudiFormatError):
    """This release cannot store a column's type, name or nullability; the text names the column."""


def is_avro_name(name: str) -> bool:
    """Whether Avro allows `name` as the name of a field or record."""
    return _AVRO_NAME.fullmatch(name) is not None


def sanitized_name(name: str) -> str:
    """A table's name as part of an Avro name: characters that Avro does not allow become `__`, as in Hudi."""
    if name and re.match(r"[^A-Za-z_]", name):
        name = "__" + name[1:]
    return re.sub(r"[^A-Za-z0-9_]", "__", name)


def decimal_bytes(precision: int) -> int:
    """The size in bytes of the smallest two's complement number that holds every decimal of `precision`
    digits.
    """
    largest: int = 10**precision - 1
    return (largest.bit_length() + 8) // 8


def field_from_avro(avro: Any, path: str, depth: int = 0) -> pa.Field:
    """An Avro record field as Arrow field; `path` is its dotted name, for errors. Raises `SchemaError`."""
    if not isinstance(avro, dict) or "name" not in avro or "type" not in avro:
        raise SchemaError(f"column {path}: an Avro field needs 'name' and 'type', got {avro!r}")
    name = avro["name"]
    if not isinstance(name, str) or not is_avro_name(name):
        raise SchemaError(f"column {path}: {name!r} is no Avro name; use letters, digits and '_'")
    arrow, nullable = type_from_avro(avro["type"], path, depth)
    return pa.field(name, arrow, nullable=nullable)


def type_from_avro(avro: Any, path: str, depth: int = 0) -> tuple[pa.DataType, bool]:
    """An Avro type as (Arrow type, nullable); the only unions served are [null, T] and [T, null].

    Raises `SchemaError`, with the column's dotted name `path`.
    """
    if depth > NESTING_DEPTH_MAX:
        raise SchemaError(f"column {path}: nested more than {NESTING_DEPTH_MAX} levels deep")
    if isinstance(avro, list):
        others = [branch for branch in avro if branch != "null"]
        if len(others) != 1 or len(avro) > 2 or isinstance(others[0], list):
            raise SchemaError(f'column {path}: union {avro!r} is not served, only ["null", T]')
        return type_from_avro(others[0], path, depth)[0], len(avro) == 2
    if isinstance(avro, str):
        if avro in _PRIMITIVES:
            return _PRIMITIVES[avro], False
        raise SchemaError(
            f"column {path}: Avro type {avro!r} is not served (a named type has to be written out)"
        )
    if not isinstance(avro, dict):
        raise SchemaError(f"column {path}: {avro!r} is no Avro type")
    return _complex_from_avro(avro, path, depth), False


def _complex_from_avro(avro: dict[str, Any], path: str, depth: int) -> pa.DataType:
    kind, logical = avro.get("type"), avro.get("logicalType")
    if isinstance(kind, (dict, list)):
        raise SchemaError(f"column {path}: write the type {kind!r} without the wrapping object")
    if logical == "decimal" and kind in ("fixed", "bytes"):
        return _decimal_from_avro(avro, path)
    if logical is not None:
        arrow = _LOGICAL.get((str(kind), str(logical)))
        if arrow is None:
            raise SchemaError(f"column {path}: logical type {logical!r} of Avro {kind!r} is not served")
        return arrow
    if kind in _PRIMITIVES:
        return _PRIMITIVES[str(kind)]
    if kind == "record":
        fields = [
            field_from_avro(field, f"{path}.{field.get('name')}", depth + 1)
            for field in avro.get("fields", [])
        ]
        _refuse_duplicates([field.name for field in fields], path)
        if not fields:
            raise SchemaError(f"column {path}: a record without fields cannot be stored in Parquet")
        return pa.struct(fields)
    if kind == "array":
        item, nullable = type_from_avro(avro.get("items"), f"{path}.element", depth + 1)
        return pa.list_(pa.field("element", item, nullable=nullable))
    if kind == "map":
        value, nullable = type_from_avro(avro.get("values"), f"{path}.value", depth + 1)
        return pa.map_(
            pa.field("key", pa.string(), nullable=False), pa.field("value", value, nullable=nullable)
        )
    raise SchemaError(f"column {path}: Avro type {kind!r} is not served")


def _refuse_duplicates(names: list[str], path: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise SchemaError(f"column {path or name}: {name!r} occurs twice (Spark ignores case)")
        seen.add(name.lower())


def checked_names(names: list[str]) -> None:
    """Raises `SchemaError` when two names are equal to Spark, which ignores case."""
    _refuse_duplicates(names, "")


def _decimal_from_avro(avro: dict[str, Any], path: str) -> pa.DataType:
    precision, scale, size = avro.get("precision"), avro.get("scale", 0), avro.get("size")
    if not isinstance(precision, int) or not isinstance(scale, int):
        raise SchemaError(f"column {path}: a decimal needs whole numbers as precision and scale")
    if not 1 <= precision <= DECIMAL_PRECISION_MAX or not 0 <= scale <= precision:
        raise SchemaError(
            f"column {path}: decimal({precision}, {scale}) is outside 1..{DECIMAL_PRECISION_MAX} digits"
        )
    if avro["type"] == "fixed" and (not isinstance(size, int) or size < decimal_bytes(precision)):
        raise SchemaError(f"column {path}: fixed size {size} is too small for decimal({precision}, {scale})")
    return pa.decimal128(precision, scale)


def type_to_avro(arrow: pa.DataType, name: str, namespace: str) -> Any:
    """An Arrow type as canonical Avro. `name` is the column's name, `namespace` the full name of the
    enclosing record. Raises `SchemaError` for a type that cannot be stored.
    """
    if arrow in _TO_AVRO:
        avro = _TO_AVRO[arrow]
        return dict(avro) if isinstance(avro, dict) else avro
    if pa.types.is_decimal128(arrow):
        return {
            "type": "fixed",
            "name": "fixed",
            "namespace": f"{namespace}.{name}",
            "size": decimal_bytes(arrow.precision),
            "logicalType": "decimal",
            "precision": arrow.precision,
            "scale": arrow.scale,
        }
    if pa.types.is_struct(arrow):
        fields = [field_to_avro(field, f"{namespace}.{name}") for field in arrow]
        return {"type": "record", "name": name, "namespace": namespace, "fields": fields}
    if pa.types.is_map(arrow):
        values = _nullable(type_to_avro(arrow.item_type, name, namespace), arrow.item_field.nullable)
        return {"type": "map", "values": values}
    if pa.types.is_list(arrow):
        items = _nullable(type_to_avro(arrow.value_type, name, namespace), arrow.value_field.nullable)
        return {"type": "array", "items": items}
    raise SchemaError(
        f"column {name}: Arrow type {arrow} cannot be stored; see the list of types in schema.py"
    )


def field_to_avro(field: pa.Field, namespace: str) -> dict[str, Any]:
    """An Arrow field as Avro record field; a nullable one has the default null."""
    avro: dict[str, Any] = {
        "name": field.name,
        "type": _nullable(type_to_avro(field.type, field.name, namespace), field.nullable),
    }
    if field.nullable:
        avro["default"] = None
    return avro


def _nullable(avro: Any, nullable: bool) -> Any:
    return ["null", avro] if nullable else avro
