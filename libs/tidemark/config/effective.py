"""A loaded configuration as a list of settings: what holds, and why.

Knows no key by name: sections, fields and readers are those of the dataclasses, so a new key appears by
itself. Values that sound like secrets are hidden here, before anybody can print them.
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
    """`value` is fit for JSON, secrets hidden. `origin` None: not in the file."""

    key: str
    value: Any
    origin: Origin | None
    is_default: bool

    @property
    def source(self) -> str:
        """In words."""
        if self.origin is not None:
            return str(self.origin)
        return DEFAULT if self.is_default else WORKED_OUT


def effective_settings(config: TableConfigFile, env: Mapping[str, str] | None = None) -> list[Setting]:
    """Every key that holds, in the order of the model; those of pass-through sections as they were given."""
    origins = read_origins(config.file, os.environ if env is None else env)
    found: list[Setting] = []
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if isinstance(value, Path):
            continue
        if isinstance(value, KafkaSection):
            value = value.settings
        if isinstance(value, Mapping):
            found += _given((field.name,), value, origins)
        else:
            found += _section((field.name,), value, origins)
    return found


def hide_secrets(tree: Any, key: str = "") -> Any:
    """A parsed document with what sounds like a secret hidden."""
    if isinstance(tree, dict):
        return {name: hide_secrets(item, str(name)) for name, item in tree.items()}
    if isinstance(tree, list):
        return [hide_secrets(item, key) for item in tree]
    return _without_secret(key, tree)


def shown(read: Any, value: Any) -> Any:
    """A value of the model as one would write it in the file."""
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
        return [shown(None, each) for each in value]
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
