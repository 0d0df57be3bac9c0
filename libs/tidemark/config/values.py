"""Readers of single values of the configuration. A reader takes the value that YAML gave, and returns a
typed one.

A reader raises BadValueError with a text that says what to write instead; `decode` adds the file and the
key's path.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final, TypeVar

REQUIRED: Final = object()
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(B|KiB|MiB|GiB|TiB)?")
_URI: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_TOPIC_PREFIX: Final = re.compile(r"[a-zA-Z0-9._-]{1,200}")
_SOURCE_POSITION: Final = re.compile(r"source\.[a-z][a-z0-9_]*|ts_ms|ts_us|ts_ns")
_REGISTRY_TIMEOUT_MS: Final = 5_000
# The settings of the registry's client that may be given. Retries and caches are left out: ours replace them.
_REGISTRY_KEYS: Final = frozenset(
    {
        "url",
        "proxy",
        "timeout",
        "basic.auth.user.info",
        "bearer.auth.credentials.source",
        "bearer.auth.token",
        "bearer.auth.logical.cluster",
        "bearer.auth.identity.pool.id",
        "bearer.auth.client.id",
        "bearer.auth.client.secret",
        "bearer.auth.scope",
        "bearer.auth.issuer.endpoint.url",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.key.password",
    }
)
_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_BYTES: Final = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}

Read = Callable[[Any], Any]
EnumT = TypeVar("EnumT", bound=Enum)


class BadValueError(Exception):
    """The value cannot be used; the text says what to write instead."""


@dataclass(frozen=True)
class SectionReader:
    """Marks a field whose value is a nested mapping, read as the dataclass ``type``."""

    type: type[Any]

    def __call__(self, value: Any) -> Any:
        raise TypeError("nested sections are decoded by tidemark.config.decode")


@dataclass(frozen=True)
class PathReader:
    """Marks a field whose value is a path; relative ones start at the YAML file's folder."""

    read: Callable[[Path, str], Any]

    def __call__(self, value: Any) -> Any:
        raise TypeError("paths are decoded by tidemark.config.decode")


def section(type_: type[Any]) -> SectionReader:
    """The reader of a nested section of this dataclass."""
    return SectionReader(type_)


def text(value: Any) -> str:
    """A text that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise BadValueError(f"must be a non-empty text, not {value!r}")
    return value


def boolean(value: Any) -> bool:
    """true or false; also as text, as an environment variable gives it."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise BadValueError(f"must be true or false, not {value!r}")


def integer(low: int, high: int) -> Read:
    """The reader of a whole number from ``low`` to ``high``; also as text."""

    def read(value: Any) -> int:
        if isinstance(value, str) and re.fullmatch(r"-?\d+", value):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise BadValueError(f"must be a whole number from {low} to {high}, not {value!r}")
        return value

    return read


def number(low: float, high: float) -> Read:
    """The reader of a number from ``low`` to ``high``; also as text."""

    def read(value: Any) -> float:
        if isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)?", value):
            value = float(value)
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise BadValueError(f"must be a number from {low} to {high}, not {value!r}")
        return float(value)

    return read


def duration_ms(value: Any) -> int:
    """A duration with its unit (`500ms 2s 10m 24h 7d`) in milliseconds, at least 1."""
    match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    duration = round(float(match[1]) * _MS[match[2]]) if match else 0
    if duration < 1:
        raise BadValueError(
            f"must be a duration above zero with its unit (500ms, 2s, 10m, 24h, 7d), not {value!r}"
        )
    return duration


def size_bytes(value: Any) -> int:
    """A size with its unit (`64MiB`), or a plain number, in bytes, at least 1."""
    match = _SIZE.fullmatch(str(value).strip()) if isinstance(value, str | int | float) else None
    size = round(float(match[1]) * _BYTES[match[2] or "B"]) if match and not isinstance(value, bool) else 0
    if size < 1:
        raise BadValueError(
            f"must be a size above zero (B, KiB, MiB, GiB, TiB; plain = bytes), not {value!r}"
        )
    return size


def one_of(enum: type[EnumT]) -> Read:
    """The reader of one of the enum's values."""

    def read(value: Any) -> EnumT:
        try:
            return enum(value)
        except ValueError:
            choices = ", ".join(str(member.value) for member in enum)
            raise BadValueError(f"must be one of {choices}, not {value!r}") from None

    return read


def names(at_least: int, at_most: int = 1_000) -> Read:
    """The reader of a list of distinct field names; a single name is a list of one."""

    def read(value: Any) -> tuple[str, ...]:
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list) or not all(isinstance(item, str) and item for item in items):
            raise BadValueError(f"must be a list of field names, not {value!r}")
        if len(items) < at_least:
            raise BadValueError(f"needs at least {at_least} field name")
        if len(items) > at_most:
            raise BadValueError(f"names {len(items)} fields; at most {at_most} may be named")
        if len(set(items)) != len(items):
            raise BadValueError(f"names a field twice: {', '.join(items)}")
        return tuple(items)

    return read


def topic_names(value: Any) -> tuple[str, ...]:
    """A list of distinct Kafka topic names."""
    topics = names(at_least=1)(value)
    for topic in topics:
        if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
            raise BadValueError(
                f"{topic!r} is no Kafka topic name (letters, digits, '.', '_', '-'; at most 249)"
            )
    return tuple(topics)


def topic_prefix(value: Any) -> str:
    """A name from which topic names can be made by adding a suffix."""
    if not isinstance(value, str) or not _TOPIC_PREFIX.fullmatch(value) or value in (".", ".."):
        raise BadValueError(
            f"must be usable in topic names (letters, digits, '.', '_', '-'; at most 200), not {value!r}"
        )
    return value


def host_and_port(value: Any) -> tuple[str, int]:
    """Host and port of `127.0.0.1:7411`, `[::1]:7411` or `name:7411`; port 0 means a free one."""
    match = (
        re.fullmatch(r"(?:\[([0-9a-fA-F:.]+)\]|([^\s:\[\]/]+)):(\d{1,5})", value)
        if isinstance(value, str)
        else None
    )
    if not match or int(match[3]) > 65_535:
        raise BadValueError(f"must be host:port, not {value!r}")
    return match[1] or match[2], int(match[3])


def http_url(value: Any) -> str:
    """A URL `http://host:port` or `https://host:port`, without a path."""
    if not isinstance(value, str) or not re.fullmatch(r"https?://[^\s/@:]+(:\d+)?/?", value):
        raise BadValueError("must be http://host:port or https://host:port, without a path")
    return value


def variable_name(value: Any) -> str:
    """The name of an environment variable. The error does not show the value: it may be the secret itself."""
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
        raise BadValueError("must be the name of an environment variable, not its content")
    return value


def source_position(value: Any) -> str:
    """The field of a change event that has its position in the source's log: `source.lsn`, `ts_ms` …"""
    if not isinstance(value, str) or not _SOURCE_POSITION.fullmatch(value):
        raise BadValueError(
            "must be source.lsn (PostgreSQL), source.binlog (MySQL: file and position), source.scn (Oracle), "
            f"another number of the source block (source.ts_ms …), ts_ms, ts_us or ts_ns, not {value!r}"
        )
    return value


def registry_settings(value: Any) -> tuple[dict[str, str], int]:
    """The settings of the registry's client as text, and the time limit of one request in milliseconds.

    No error shows a value, since some are credentials.
    """
    if not isinstance(value, dict) or not isinstance(value.get("url"), str):
        raise BadValueError("must be a mapping with the registry's url: {url: https://host:8081}")
    given: dict[str, str] = {}
    for key, item in value.items():
        if key not in _REGISTRY_KEYS:
            raise BadValueError(f"unknown key {key}; known keys: {', '.join(sorted(_REGISTRY_KEYS))}")
        if not isinstance(item, str | int | float) or isinstance(item, bool):
            raise BadValueError(f"{key} must be a single value")
        given[key] = str(item)
    for url in given["url"].split(","):
        if not re.fullmatch(r"https?://[^\s/@]+(/[^\s@]*)?", url.strip()):
            raise BadValueError(
                "url must be http(s)://host:port, several separated by commas, without credentials: those "
                "have keys of their own (basic.auth.user.info, bearer.auth.token)"
            )
    timeout = given.pop("timeout", None)
    return given, _REGISTRY_TIMEOUT_MS if timeout is None else duration_ms(timeout)


def _resolve_local(folder: Path, value: str) -> Path:
    return (folder / Path(value).expanduser()).resolve()


def _absolute(folder: Path, value: str) -> Path:
    return Path(os.path.abspath(folder / Path(value).expanduser()))


def _resolve_path_or_uri(folder: Path, value: str) -> str:
    return value if _URI.match(value) else str(_resolve_local(folder, value))


def _resolve_existing_file(folder: Path, value: str) -> Path:
    path = _resolve_local(folder, value)
    if not path.is_file():
        raise BadValueError(f"there is no file {path} (relative paths start at the folder of this YAML file)")
    return path


linked_path: Final = PathReader(_absolute)
path_or_uri: Final = PathReader(_resolve_path_or_uri)
existing_file: Final = PathReader(_resolve_existing_file)
