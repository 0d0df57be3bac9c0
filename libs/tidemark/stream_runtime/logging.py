"""Logs to stderr, one line an event, as key=value or JSON, with the fields of the work at hand bound to it.

Use the standard library's loggers below `tidemark`; `bound` adds fields (table, epoch, attempt, instant,
term, lane …) to every line of the calls inside. Values of settings whose name sounds like a secret are never
written.
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
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, TextIO

from tidemark.stream_runtime.secret_names import names_a_secret

ROOT: Final = "tidemark"
_REDACTED: Final = "***"
# Not the names of our own settings, nor of files: what follows them is prose.
_SECRET_IN_TEXT: Final = re.compile(
    r"(?i)(?<![\w.\-/])((?!security\.token)[\w.\-]*(?:password|passwd|passphrase|(?<![a-z0-9])pwd|secret|token|credential|user\.info|api[_.\-]?key|access[_.\-]?key|private[_.\-]?key)[\w.\-]*[\"']?\s*[=:]\s*)(\"[^\"]*\"|'[^']*'|[^\s,;}]+)"
)
_USER_INFO: Final = re.compile(r"(\w+://)[^\s/@:]+:[^\s/@]+@")
_TOKEN: Final = re.compile(r"(?i)tdm_[0-9a-f]{16,}|(?<=bearer )[\w.\-+/=]{16,}|(?<=basic )[\w+/=]{16,}")
_PLAIN: Final = re.compile(r"[^\s=\"\\]+")
_NOT_SHOWN: Final = re.compile(r"[^\x20-\x7e]")
_PRIVATE_KEY: Final = re.compile(
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
_OWN_ATTRIBUTES: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

_NO_FIELDS: Final[Mapping[str, Any]] = MappingProxyType({})
_fields: contextvars.ContextVar[Mapping[str, Any]] = contextvars.ContextVar("fields", default=_NO_FIELDS)


class LogFormat(Enum):
    TEXT = "text"
    JSON = "json"


@contextmanager
def bound(**fields: Any) -> Iterator[None]:
    """Adds fields to every line logged inside, in this thread of control. None values are left out."""
    known = {name: value for name, value in fields.items() if value is not None}
    token = _fields.set({**_fields.get(), **known})
    try:
        yield
    finally:
        _fields.reset(token)


def redact_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings for showing: values of secret-sounding keys replaced."""
    return {key: _REDACTED if names_a_secret(key) else redact_text(value) for key, value in settings.items()}


def redact_text(text: str) -> str:
    """`password=x`, `api_key=x`, `scheme://user:x@`, `Bearer x` without the x; private keys (PEM) and our own
    tokens wherever they stand.
    """
    text = _PRIVATE_KEY.sub(_REDACTED, text)
    named = _SECRET_IN_TEXT.sub(rf"\1{_REDACTED}", _TOKEN.sub(_REDACTED, text))
    return _USER_INFO.sub(rf"\1{_REDACTED}@", named)


def configure_logging(
    service: str,
    log_format: LogFormat = LogFormat.TEXT,
    level: int = logging.INFO,
    stream: TextIO | None = None,
    table: str | None = None,
) -> None:
    """Sends everything below `tidemark` to `stream` (stderr), with the table on every line. Calling it again
    replaces the former call's effect.
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
        key: _REDACTED if names_a_secret(key) else redact_text(value) if isinstance(value, str) else value
        for key, value in fields.items()
    }


def _text(value: Any) -> str:
    """Quoted whenever a plain reader could take it for two things; always one line."""
    text = str(value)
    return text if text.isprintable() and _PLAIN.fullmatch(text) else one_line_json(text)


def one_line_json(document: Any) -> str:
    """JSON in which nothing is left that a terminal would obey or show as nothing: JSON itself escapes only
    what lies below U+0020.
    """
    text = json.dumps(document, default=str, ensure_ascii=False)
    return text if text.isprintable() else _NOT_SHOWN.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    return match.group() if match.group().isprintable() else json.dumps(match.group())[1:-1]
