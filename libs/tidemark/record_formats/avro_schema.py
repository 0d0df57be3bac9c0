"""Parses a writer's Avro schema into a tree: references to named types are replaced by the types.

Schemas come from outside. So this module limits, before any record is read, how a record of the schema
could harm its reader: a type must not contain itself, depth and size of the tree are limited, and an
array's items must take at least one byte.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from tidemark.hudi_format.avro_types import NESTING_DEPTH_MAX
from tidemark.record_formats.logical_types import LogicalType, logical_type_of, scale_in

NODES_MAX: Final = 20_000
TEXT_BYTES_MAX: Final = 4 << 20
SYMBOL_CHARACTERS_MAX: Final = 255
_PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


class AvroSchemaError(Exception):
    """The schema is invalid, or not allowed for reading records; the text says which part of it."""


@dataclass(frozen=True)
class AvroType:
    """One node of the tree.

    ``fields``: of a record. ``item``: of an array or map. ``branches``: of a union. ``symbols``: of an enum.
    ``size``: of a fixed type, in bytes. ``scale``: of a decimal.
    """

    kind: str
    logical_type: LogicalType = LogicalType.PLAIN
    scale: int | None = None
    fields: Mapping[str, AvroType] | None = None
    item: AvroType | None = None
    branches: tuple[AvroType, ...] = ()
    symbols: tuple[str, ...] = ()
    size: int = 0

    @property
    def not_null(self) -> AvroType:
        """The one branch beside null of a union; else the type itself."""
        others = [branch for branch in self.branches if branch.kind != "null"]
        return others[0] if len(others) == 1 else self

    @property
    def shown(self) -> str:
        """The type's name in errors and refusals."""
        if self.kind == "union":
            return "a union of " + ", ".join(branch.shown for branch in self.branches)
        return (
            self.kind
            if self.logical_type is LogicalType.PLAIN
            else f"{self.kind} ({self.logical_type.value})"
        )


def count_parts(avro: AvroType) -> int:
    """How many nodes the tree has."""
    inner = (*(avro.fields or {}).values(), *avro.branches, *([avro.item] if avro.item else ()))
    return 1 + sum(map(count_parts, inner))


def read_avro_schema(text: str, references: Iterable[str] = ()) -> AvroType:
    """Parses a schema; ``references``: texts of the schemas whose types it names. Raises AvroSchemaError."""
    reader = _Reader()
    for reference in references:
        reader.learn(load_json(reference), "")
    avro = load_json(text)
    reader.learn(avro, "")
    return reader.read(avro, "", 0)


def load_json(text: str) -> Any:
    """Parses the JSON of a schema, or the bare name of a primitive type. Raises AvroSchemaError."""
    if len(text) > TEXT_BYTES_MAX:
        raise AvroSchemaError(f"its text is longer than {TEXT_BYTES_MAX} characters")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        # A primitive may be registered by its bare name.
        if text.strip() in _PRIMITIVES:
            return text.strip()
        raise AvroSchemaError(f"it is no JSON: {error}") from None


def plain_schema(avro: AvroType) -> Any:
    """The tree as a schema without logical types, so that fastavro returns values as they are encoded.

    Types get new names, because the old ones do not matter for reading values.
    """
    return _plain(avro, count())


def _plain(avro: AvroType, numbers: Iterator[int]) -> Any:
    if avro.kind == "union":
        return [_plain(branch, numbers) for branch in avro.branches]
    if avro.kind == "record":
        fields = [{"name": name, "type": _plain(kind, numbers)} for name, kind in (avro.fields or {}).items()]
        return {"type": "record", "name": f"t{next(numbers)}", "fields": fields}
    if avro.item is not None:
        return {"type": avro.kind, "items" if avro.kind == "array" else "values": _plain(avro.item, numbers)}
    if avro.kind == "enum":
        return {"type": "enum", "name": f"t{next(numbers)}", "symbols": list(avro.symbols)}
    if avro.kind == "fixed":
        return {"type": "fixed", "name": f"t{next(numbers)}", "size": avro.size}
    return avro.kind


class _Reader:
    def __init__(self) -> None:
        self._named: dict[str, tuple[dict[str, Any], str]] = {}
        self._open: set[str] = set()
        self._nodes = 0

    def learn(self, avro: Any, namespace: str, depth: int = 0) -> None:
        """Stores the definitions of named types in a schema under their full names."""
        if depth > 4 * NESTING_DEPTH_MAX:
            raise AvroSchemaError(f"it is nested more than {NESTING_DEPTH_MAX} levels deep")
        if isinstance(avro, list):
            for branch in avro:
                self.learn(branch, namespace, depth + 1)
        if not isinstance(avro, dict):
            return
        inner = namespace
        if avro.get("type") in ("record", "error", "enum", "fixed"):
            name = _full_name(avro.get("name"), avro.get("namespace", namespace))
            inner = name.rpartition(".")[0]
            self._named.setdefault(name, (avro, inner))
        for key in ("type", "items", "values"):
            self.learn(avro.get(key), inner, depth + 1)
        for member in avro["fields"] if isinstance(avro.get("fields"), list) else ():
            self.learn(member.get("type") if isinstance(member, dict) else None, inner, depth + 1)

    def read(self, avro: Any, namespace: str, depth: int) -> AvroType:
        self._nodes += 1
        if self._nodes > NODES_MAX:
            raise AvroSchemaError(f"it has more than {NODES_MAX} parts")
        if depth > NESTING_DEPTH_MAX:
            raise AvroSchemaError(f"it is nested more than {NESTING_DEPTH_MAX} levels deep")
        if isinstance(avro, list):
            branches = tuple(self.read(branch, namespace, depth + 1) for branch in avro)
            if not branches or any(branch.kind == "union" for branch in branches):
                raise AvroSchemaError("it has an empty union, or one within another")
            return AvroType("union", branches=branches)
        if isinstance(avro, str):
            return AvroType(avro) if avro in _PRIMITIVES else self._reference(avro, namespace, depth)
        if not isinstance(avro, dict):
            raise AvroSchemaError(f"{avro!r:.80} is no Avro type")
        return self._complex(avro, namespace, depth)

    def _reference(self, name: str, namespace: str, depth: int) -> AvroType:
        for full in (_full_name(name, namespace), name):
            if full in self._named:
                avro, _ = self._named[full]
                return self._complex(avro, full.rpartition(".")[0], depth)
        raise AvroSchemaError(f"it names the type {name[:80]!r}, which is not in it")

    def _complex(self, avro: dict[str, Any], namespace: str, depth: int) -> AvroType:
        kind = avro.get("type")
        if isinstance(kind, dict | list):
            return self.read(kind, namespace, depth + 1)
        logical_type = logical_type_of(avro.get("logicalType"), avro.get("connect.name"))
        if kind in ("record", "error"):
            return self._record(avro, namespace, depth)
        if kind == "array":
            item = self.read(avro.get("items"), namespace, depth + 1)
            if _bytes_min(item) == 0:
                raise AvroSchemaError("it has an array whose items take no bytes: its length has no limit")
            return AvroType("array", item=item)
        if kind == "map":
            return AvroType("map", item=self.read(avro.get("values"), namespace, depth + 1))
        if kind == "enum":
            return AvroType("enum", symbols=_symbols(avro.get("symbols")))
        if kind == "fixed":
            size = avro.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or size < 0:
                raise AvroSchemaError("it has a fixed type without a size")
            return AvroType("fixed", logical_type, _scale(avro, logical_type), size=size)
        if isinstance(kind, str) and kind in _PRIMITIVES:
            return AvroType(kind, logical_type, _scale(avro, logical_type))
        if isinstance(kind, str):
            return self._reference(kind, namespace, depth)
        raise AvroSchemaError(f"{kind!r:.80} is no Avro type")

    def _record(self, avro: dict[str, Any], namespace: str, depth: int) -> AvroType:
        name = _full_name(avro.get("name"), avro.get("namespace", namespace))
        if name in self._open:
            raise AvroSchemaError(f"its type {name} contains itself, which is not served")
        self._open.add(name)
        inner = name.rpartition(".")[0]
        fields: dict[str, AvroType] = {}
        listed = avro.get("fields")
        for member in listed if isinstance(listed, list) else ():
            if not isinstance(member, dict) or not isinstance(member.get("name"), str):
                raise AvroSchemaError(f"its record {name} has a field without a name")
            fields[member["name"]] = self.read(member.get("type"), inner, depth + 1)
        self._open.discard(name)
        return AvroType("record", fields=fields)


def _symbols(symbols: Any) -> tuple[str, ...]:
    if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
        raise AvroSchemaError("it has an enum without symbols")
    if any(len(symbol) > SYMBOL_CHARACTERS_MAX for symbol in symbols):
        raise AvroSchemaError(
            f"it has an enum with a symbol of more than {SYMBOL_CHARACTERS_MAX} characters: a record holds "
            "one in a byte"
        )
    return tuple(symbols)


def _scale(avro: dict[str, Any], logical_type: LogicalType) -> int | None:
    return scale_in(avro.get("scale", 0)) if logical_type is LogicalType.DECIMAL else None


def _full_name(name: Any, namespace: Any) -> str:
    if not isinstance(name, str) or not name:
        raise AvroSchemaError("it has a named type without a name")
    if "." in name or not isinstance(namespace, str) or not namespace:
        return name
    return f"{namespace}.{name}"


def _bytes_min(avro: AvroType) -> int:
    """A lower limit of the bytes of a value: 0 only if a value may take no bytes."""
    if avro.kind == "null":
        return 0
    if avro.kind == "record":
        return sum(_bytes_min(field) for field in (avro.fields or {}).values())
    return avro.size if avro.kind == "fixed" else 1
