"""Where a table says which indexes it has: its properties and definitions, as Hudi writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

LISTED: Final = "hoodie.table.metadata.partitions"
BUILDING: Final = "hoodie.table.metadata.partitions.inflight"
_PROPERTIES: Final = ".hoodie/hoodie.properties"
_DEFINITIONS: Final = ".hoodie/.index_defs/index.json"


def named_in(storage: Any, key: str) -> set[str]:
    """The indexes that a property names."""
    return set(filter(None, _properties(storage).get(key, "").split(",")))


def name_in(storage: Any, key: str, names: set[str]) -> None:
    """Sets a property; one without names goes."""
    changed = {**_properties(storage), key: ",".join(sorted(names))}
    kept = {each: value for each, value in changed.items() if each != key or names}
    text = "".join(f"{each}={value}\n" for each, value in kept.items())
    storage.replace(_PROPERTIES, text.encode("latin-1"))


def definitions(storage: Any) -> dict[str, Any]:
    """Definitions by the names of their indexes."""
    if not storage.exists(_DEFINITIONS):
        return {}
    found: dict[str, Any] = json.loads(storage.read(_DEFINITIONS))["indexDefinitions"]
    return found


def define(storage: Any, name: str, columns: tuple[str, ...] | None, kind: str, function: str) -> None:
    """Sets the columns of an index; None takes its definition out."""
    found: dict[str, Mapping[str, Any]] = {**definitions(storage)}
    found.pop(name, None)
    if columns is not None:
        found[name] = {
            "indexName": name,
            "indexType": kind,
            "indexFunction": function,
            "sourceFields": list(columns),
            "indexOptions": {},
            "version": "V2",
        }
    storage.replace(_DEFINITIONS, json.dumps({"indexDefinitions": found}, indent=2).encode())


def _properties(storage: Any) -> dict[str, str]:
    """Keys and values as they are written, comments left out."""
    lines = storage.read(_PROPERTIES).decode("latin-1").splitlines()
    pairs = (line.partition("=") for line in lines if "=" in line and not line.startswith("#"))
    return {key: value for key, _, value in pairs}
