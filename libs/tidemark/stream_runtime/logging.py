"""Logs to stderr: one line per event, as key=value pairs or JSON.

Modules log with the standard library's loggers below `tidemark`. `bound` adds fields (epoch, attempt,
instant, term, lane …) to every line that the calls inside it log. A field whose name sounds like a secret is
written without its value, and texts are searched for secrets (`tidemark.redaction`).
"""

from __future__ import annotations

import contextvars
import json
import logging
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final, TextIO

from tidemark.config.log_format import LogFormat
from tidemark.redaction import REDACTED, names_a_secret, redact_text

ROOT: Final = "tidemark"
_PLAIN: Final = re.compile(r"[^\s=\"\\]+")
_NOT_SHOWN: Final = re.compile(r"[^\x20-\x7e]")
_OWN_ATTRIBUTES: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

_NO_FIELDS: Final[Mapping[str, Any]] = MappingProxyType({})
_fields: contextvars.ContextVar[Mapping[str, Any]] = contextvars.ContextVar("fields", default=_NO_FIELDS)


@contextmanager
def bound(**fields: Any) -> Iterator[None]:
    """Adds fields to every line that this thread (or asyncio task) logs inside. None values are left out."""
    known = {name: value for name, value in fields.items() if value is not None}
    token = _fields.set({**_fields.get(), **known})
    try:
        yield
    finally:
        _fields.reset(token)


def configure_logging(
    service: str,
    log_format: LogFormat = LogFormat.TEXT,
    level: int = logging.INFO,
    stream: TextIO | None = None,
    table: str | None = None,
) -> None:
    """Sends all lines of the loggers below `tidemark` to `stream` (default: stderr). `service` and `table`
    are on every line. A second call replaces the settings of the first.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_Formatter(service, log_format, table))
    root = logging.getLogger(ROOT)
    root.handlers = [handler]
    root.setLevel(level)
    root.propagate = False


class _Formatter(logging.Formatter):
    def __init__(self, service: str, log_format: LogFormat, table: str | None) -> None:
        super().__init__()
        self._always = {"service": service} if table is None else {"service": service, "table": table}
        self._format = log_format

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            **self._always,
            "logger": record.name,
            "message": redact_text(record.getMessage()),
            **_safe(_fields.get()),
            **_safe({key: value for key, value in vars(record).items() if key not in _OWN_ATTRIBUTES}),
        }
        if record.exc_info:
            line["error"] = redact_text(self.formatException(record.exc_info))
        if self._format is LogFormat.JSON:
            return one_line_json(line)
        return " ".join(f"{key}={_text(value)}" for key, value in line.items())


def _safe(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: REDACTED if names_a_secret(key) else redact_text(value) if isinstance(value, str) else value
        for key, value in fields.items()
    }


def _text(value: Any) -> str:
    """The value on one line: as it is, or in JSON's quotes if a reader of key=value pairs could misread it
    (it is empty, or has white space, `=`, a quote, a backslash or an unprintable character).
    """
    text = str(value)
    return text if text.isprintable() and _PLAIN.fullmatch(text) else one_line_json(text)


def one_line_json(document: Any) -> str:
    """JSON on one line, with all unprintable characters escaped. JSON itself escapes only those below U+0020;
    others (U+009B, U+202E …) would still control a terminal, or be invisible there.
    """
    text = json.dumps(document, default=str, ensure_ascii=False)
    return text if text.isprintable() else _NOT_SHOWN.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    return match.group() if match.group().isprintable() else json.dumps(match.group())[1:-1]
