"""Lists a loaded configuration as settings: each key's effective value and where it comes from.

The list is made from the dataclasses' fields, so a new key needs no change here. Values of keys that are
named like secrets are hidden in the list, so no caller can print them.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

from tidemark.config import values
from tidemark.config.model import Address, KafkaSection, SchemaRegistryConfig, TableConfigFile
from tidemark.config.origins import KeyPath, Origin, read_origins
from tidemark.redaction import redact_settings

DEFAULT: Final = "default"
WORKED_OUT: Final = "worked out from other keys"


@dataclass(frozen=True, slots=True)
class Setting:
    """One key. ``value``: fit for JSON, with secrets hidden. ``origin`` None: the key is not in the file."""

    key: str
    value: Any
    origin: Origin | None
    is_default: bool

    @property
    def source(self) -> str:
        """Where the value comes from, as text."""
        if self.origin is not None:
            return str(self.origin)
        return DEFAULT if self.is_default else WORKED_OUT


def effective_settings(config: TableConfigFile, env: Mapping[str, str] | None = None) -> list[Setting]:
    """Returns all effective keys, in the order of the model; pass-through sections (`kafka`, `spark`,
    `hoodie`) have the keys that were given. ``env`` None: the process environment.
    """
    origins = read_origins(config.file, os.environ if env is None else env)
    settings: list[Setting] = []
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if isinstance(value, Path):
            continue
        if isinstance(value, KafkaSection):
            value = value.settings
        if isinstance(value, Mapping):
            settings += _given((field.name,), value, origins)
        else:
            settings += _section((field.name,), value, origins)
    return settings


def hide_secrets(tree: Any, key: str = "") -> Any:
    """A parsed document in which the values of keys that are named like secrets are hidden."""
    if isinstance(tree, dict):
        return {name: hide_secrets(item, str(name)) for name, item in tree.items()}
    if isinstance(tree, list):
        return [hide_secrets(item, key) for item in tree]
    return _without_secret(key, tree)


def shown(read: Any, value: Any) -> Any:
    """A value of the model as it is written in the file; ``read``: the field's reader, which tells the
    unit.
    """
    if value is None or isinstance(value, bool):
        return value
    if read is values.duration_ms:
        return _in_units(value, (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)), "ms")
    if read is values.size_bytes:
        return _in_units(value, (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)), "B")
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Address | Path):
        return str(value)
    if isinstance(value, tuple | list):
        return [shown(None, item) for item in value]
    return value if isinstance(value, int | float) else str(value)


def _section(path: KeyPath, section: Any, origins: Mapping[KeyPath, Origin]) -> Iterator[Setting]:
    for field in dataclasses.fields(section):
        where = (*path, field.metadata.get("key") or field.name)
        read, value = field.metadata.get("read"), getattr(section, field.name)
        if isinstance(value, SchemaRegistryConfig):
            timeout = {"timeout": shown(values.duration_ms, value.timeout_ms)}
            yield from _given(where, {**value.settings, **timeout}, origins)
        elif isinstance(read, values.SectionReader) and value is not None:
            yield from _section(where, value, origins)
        else:
            content = _without_secret(where[-1], shown(read, value))
            yield Setting(".".join(where), content, origins.get(where), value == field.default)


def _given(path: KeyPath, given: Mapping[str, str], origins: Mapping[KeyPath, Origin]) -> Iterator[Setting]:
    for key, value in given.items():
        where = (*path, key)
        yield Setting(".".join(where), _without_secret(key, value), origins.get(where), True)


def _without_secret(key: str, value: Any) -> Any:
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        return value
    text = str(value)
    kept = redact_settings({key: text})[key]
    return value if kept == text else kept


def _in_units(number: int, units: tuple[tuple[str, int], ...], smallest: str) -> str:
    for name, size in units:
        if number >= size and number % size == 0:
            return f"{number // size}{name}"
    return f"{number}{smallest}"
