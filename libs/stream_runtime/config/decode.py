"""Turns plain mappings into the frozen types of `model`, driven by the fields' metadata. Knows no key by
name.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from stream_runtime.config.errors import ConfigError
from stream_runtime.config.values import BadValueError, PathReader, SectionReader, text

T = TypeVar("T")


def reject_unknown_keys(file: Path, key_path: str, given: Iterable[Any], known: Iterable[str]) -> None:
    """Raises ConfigError for the first key that is not known, naming the nearest known one."""
    known = sorted(known)
    for key in given:
        if key in known:
            continue
        near = difflib.get_close_matches(str(key), known, n=1, cutoff=0.5)
        advice = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(known)}"
        raise ConfigError(str(file), _join(key_path, str(key)), f"unknown key; {advice}")


def decode_section(file: Path, key_path: str, type_: type[T], value: Any) -> T:
    """Builds one section. `value` None means an empty mapping. Raises ConfigError."""
    given = _mapping(file, key_path, value)
    fields = {field.metadata.get("key") or field.name: field for field in dataclasses.fields(type_)}  # type: ignore[arg-type]
    reject_unknown_keys(file, key_path, given, fields)
    arguments: dict[str, Any] = {}
    for key, field in fields.items():
        where = _join(key_path, key)
        if given.get(key) is not None:
            arguments[field.name] = _decode_value(file, where, field.metadata["read"], given[key])
        elif field.default is dataclasses.MISSING:
            raise ConfigError(str(file), where, "is required")
    return type_(**arguments)


def pass_through(file: Path, key_path: str, value: Any) -> dict[str, str]:
    """A section whose keys belong to another system: every value as text, true and false in lower case."""
    settings: dict[str, str] = {}
    for key, item in _mapping(file, key_path, value).items():
        if isinstance(item, bool):
            settings[str(key)] = "true" if item else "false"
        elif isinstance(item, str | int | float):
            settings[str(key)] = str(item)
        else:
            raise ConfigError(str(file), _join(key_path, str(key)), f"must be a single value, not {item!r}")
    return settings


def _mapping(file: Path, key_path: str, value: Any) -> Mapping[Any, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigError(str(file), key_path, f"must be a mapping of keys to values, not {value!r}")
    return value


def _decode_value(file: Path, key_path: str, read: Any, value: Any) -> Any:
    if isinstance(read, SectionReader):
        return decode_section(file, key_path, read.type, value)
    try:
        if isinstance(read, PathReader):
            return read.read(file.parent, text(value))
        return read(value)
    except BadValueError as problem:
        raise ConfigError(str(file), key_path, str(problem)) from None


def _join(key_path: str, key: str) -> str:
    return f"{key_path}.{key}" if key_path else key
