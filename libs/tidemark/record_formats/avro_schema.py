"""A writer's Avro schema as a tree: named types put in where they are named, meanings told by type names.

Schemas come from outside, so what a record of one could do to its reader is bounded here, before any is read:
no type contains itself, nesting and size of the tree are limited, and no item of an array takes zero bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from tidemark.hudi_format.avro_types import NESTING_DEPTH_MAX
from tidemark.record_formats.meanings import LogicalType, meaning_of, scale_in

NODES_MAX: Final = 20_000
TEXT_BYTES_MAX: Final = 4 << 20
SYMBOL_CHARACTERS_MAX: Final = 255
_PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


class AvroSchemaError(Exception):
    """The schema is none, or one that no record may be read by; the text says what in it."""


@dataclass(frozen=True)
class AvroType:
    """One node. ``fields`` of a record, ``item`` of an array or map, ``branches`` of a union."""

    kind: str
    meaning: LogicalType = LogicalType.PLAIN
    scale: int | None = None
    fields: Mapping[str, AvroType] | None = None
    item: AvroType | None = None
    branches: tuple[AvroType, ...] = ()
    symbols: tuple[str, ...] = ()
    size: int = 0

    @property
    def not_null(self) -> AvroType:
        """The one branch beside null of a union; else the type itself."""
        others = [each for each in self.branches if each.kind != "null"]
        return others[0] if len(others) == 1 else self

    @property
    def shown(self) -> str:
        """For texts."""
        if self.kind == "union":
            return "a union of " + ", ".join(each.shown for each in self.branches)
        return self.kind if self.meaning is LogicalType.PLAIN else f"{self.kind} ({self.meaning.value})"


def count_parts(avro: AvroType) -> int:
    """How many nodes the tree has."""
    inner = (*(avro.fields or {}).values(), *avro.branches, *([avro.item] if avro.item else ()))
    return 1 + sum(map(count_parts, inner))


def read_avro_schema(text: str, references: Iterable[str] = ()) -> AvroType:
    """The tree of a schema. Raises `AvroSchemaError`."""
    reader = _Reader()
    for each in references:
        reader.learn(load_json(each), "")
    avro = load_json(text)
    reader.learn(avro, "")
    return reader.read(avro, "", 0)


def load_json(text: str) -> Any:
    """Raises `AvroSchemaError`."""
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
    """The tree as a schema by which values are read as they are encoded, with nothing made of them. Names of
    types are new ones: what a type was called matters to nobody who reads values.
    """
    return _plain(avro, count())


def _plain(avro: AvroType, numbers: Iterator[int]) -> Any:
    if avro.kind == "union":
        return [_plain(each, numbers) for each in avro.branches]
    if avro.kind == "record":
        fields = [{"name": name, "type": _plain(each, numbers)} for name, each in (avro.fields or {}).items()]
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
        """Notes the definitions in a schema under their full names."""
        if depth > 4 * NESTING_DEPTH_MAX:
            raise AvroSchemaError(f"it is nested more than {NESTING_DEPTH_MAX} levels deep")
        if isinstance(avro, list):
            for each in avro:
                self.learn(each, namespace, depth + 1)
        if not isinstance(avro, dict):
            return
        inner = namespace
        if avro.get("type") in ("record", "error", "enum", "fixed"):
            name = _full_name(avro.get("name"), avro.get("namespace", namespace))
            inner = name.rpartition(".")[0]
            self._named.setdefault(name, (avro, inner))
        for key in ("type", "items", "values"):
            self.learn(avro.get(key), inner, depth + 1)
        for each in avro["fields"] if isinstance(avro.get("fields"), list) else ():
            self.learn(each.get("type") if isinstance(each, dict) else None, inner, depth + 1)

    def read(self, avro: Any, namespace: str, depth: int) -> AvroType:
        self._nodes += 1
        if self._nodes > NODES_MAX:
            raise AvroSchemaError(f"it has more than {NODES_MAX} parts")
        if depth > NESTING_DEPTH_MAX:
            raise AvroSchemaError(f"it is nested more than {NESTING_DEPTH_MAX} levels deep")
        if isinstance(avro, list):
            branches = tuple(self.read(each, namespace, depth + 1) for each in avro)
            if not branches or any(each.kind == "union" for each in branches):
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
        meaning = meaning_of(avro.get("logicalType"), avro.get("connect.name"))
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
            return AvroType("fixed", meaning, _scale(avro, meaning), size=size)
        if isinstance(kind, str) and kind in _PRIMITIVES:
            return AvroType(kind, meaning, _scale(avro, meaning))
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
        for each in listed if isinstance(listed, list) else ():
            if not isinstance(each, dict) or not isinstance(each.get("name"), str):
                raise AvroSchemaError(f"its record {name} has a field without a name")
            fields[each["name"]] = self.read(each.get("type"), inner, depth + 1)
        self._open.discard(name)
        return AvroType("record", fields=fields)


def _symbols(symbols: Any) -> tuple[str, ...]:
    if not isinstance(symbols, list) or not all(isinstance(each, str) for each in symbols):
        raise AvroSchemaError("it has an enum without symbols")
    if any(len(each) > SYMBOL_CHARACTERS_MAX for each in symbols):
        raise AvroSchemaError(
            f"it has an enum with a symbol of more than {SYMBOL_CHARACTERS_MAX} characters: a record holds "
            "one in a byte"
        )
    return tuple(symbols)


def _scale(avro: dict[str, Any], meaning: LogicalType) -> int | None:
    return scale_in(avro.get("scale", 0)) if meaning is LogicalType.DECIMAL else None


def _full_name(name: Any, namespace: Any) -> str:
    if not isinstance(name, str) or not name:
        raise AvroSchemaError("it has a named type without a name")
    if "." in name or not isinstance(namespace, str) or not namespace:
        return name
    return f"{namespace}.{name}"


def _bytes_min(avro: AvroType) -> int:
    """The least that a value takes, as far as telling zero from more goes."""
    if avro.kind == "null":
        return 0
    if avro.kind == "record":
        return sum(_bytes_min(each) for each in (avro.fields or {}).values())
    return avro.size if avro.kind == "fixed" else 1
