"""Turns parsed YAML mappings into the frozen types of `model`, using the metadata of their fields."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from tidemark.config.errors import ConfigError, Problems
from tidemark.config.partial import UNREAD, holds_unread, partial
from tidemark.config.values import BadValueError, PathReader, SectionReader, text

T = TypeVar("T")


def reject_unknown_keys(
    problems: Problems, file: Path, key_path: str, given: Iterable[Any], known: Iterable[str]
) -> set[str]:
    """Notes each unknown key with the most similar known one; returns those known ones."""
    known, meant = sorted(known), set()
    for key in given:
        if key in known:
            continue
        near = difflib.get_close_matches(str(key), known, n=1, cutoff=0.5)
        advice = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(known)}"
        problems.note(ConfigError(str(file), _join(key_path, str(key)), f"unknown key; {advice}"))
        meant.update(near)
    return meant


def decode_section(problems: Problems, file: Path, key_path: str, type_: type[T], value: Any) -> T | None:
    """Builds one section from its value in the YAML; None means an empty mapping.

    Keys that are wrong are noted, and missing from the section (`partial`). Returns None when the value is
    no mapping, or unknown.
    """
    given: Mapping[Any, Any] | None = None
    with problems.gathered():
        given = None if value is UNREAD else _mapping(file, key_path, value)
    if given is None:
        return None
    fields = {field.metadata.get("key") or field.name: field for field in dataclasses.fields(type_)}  # type: ignore[arg-type]
    meant = reject_unknown_keys(problems, file, key_path, given, fields)
    arguments: dict[str, Any] = {}
    for key, field in fields.items():
        where, read = _join(key_path, key), field.metadata["read"]
        if given.get(key) is None and field.default is not dataclasses.MISSING:
            if key not in meant:
                arguments[field.name] = field.default
            continue
        with problems.gathered():
            if given.get(key) is None and key not in meant:
                raise ConfigError(str(file), where, "is required")
            if given.get(key) is None:
                continue
            if isinstance(read, SectionReader):
                inner = decode_section(problems, file, where, read.type, given[key])
                arguments |= {} if inner is None else {field.name: inner}
            elif not holds_unread(given[key]):
                arguments[field.name] = _decode_value(file, where, read, given[key])
    return partial(type_, arguments)


def pass_through(problems: Problems, file: Path, key_path: str, value: Any) -> dict[str, str] | None:
    """Reads a section whose keys belong to another system: all values become text, true and false in lower
    case.

    Values that are wrong are noted and left out. Returns None when the section is no mapping, or unknown.
    """
    given: Mapping[Any, Any] | None = None
    with problems.gathered():
        given = None if value is UNREAD else _mapping(file, key_path, value)
    if given is None:
        return None
    settings: dict[str, str] = {}
    for key, item in given.items():
        if isinstance(item, bool):
            settings[str(key)] = "true" if item else "false"
        elif isinstance(item, str | int | float):
            settings[str(key)] = str(item)
        elif item is not UNREAD:
            where = _join(key_path, str(key))
            problems.note(ConfigError(str(file), where, f"must be a single value, not {item!r}"))
    return settings


def _mapping(file: Path, key_path: str, value: Any) -> Mapping[Any, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigError(str(file), key_path, f"must be a mapping of keys to values, not {value!r}")
    return value


def _decode_value(file: Path, key_path: str, read: Any, value: Any) -> Any:
    try:
        if isinstance(read, PathReader):
            return read.read(file.parent, text(value))
        return read(value)
    except BadValueError as problem:
        raise ConfigError(str(file), key_path, str(problem)) from None


def _join(key_path: str, key: str) -> str:
    return f"{key_path}.{key}" if key_path else key
