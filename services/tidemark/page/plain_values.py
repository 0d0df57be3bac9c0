"""Turns values of rows into JSON that a browser shows without losing digits; long texts are cut."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from math import isfinite
from typing import Any, Final

from tidemark.hudi_format.schema import META_COLUMNS

TEXT_MAX: Final = 400
COLUMNS_MAX: Final = 300
# Browsers keep numbers as doubles, which cannot represent every integer above this.
_INTEGER_MAX: Final = 2**53


def user_columns(row: Mapping[str, Any]) -> list[list[Any]]:
    """[name, value] of the row's columns in their order, without Hudi's own."""
    names = [name for name in row if name not in META_COLUMNS]
    return [[name, plain(row[name])] for name in names[:COLUMNS_MAX]]


def plain(value: Any) -> Any:
    """The value as null, true, false, a number that browsers represent exactly, or text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) <= _INTEGER_MAX else str(value)
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    return cut(_text(value))


def cut(text: str) -> str:
    """The text; a longer one than `TEXT_MAX` is cut, with its length added."""
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}… ({len(text)} characters)"


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return f"0x{value[:TEXT_MAX].hex()}"
    if isinstance(value, datetime):
        return value.isoformat(sep=" ")
    if isinstance(value, date | Decimal):
        return str(value)
    return json.dumps(value, default=_text, ensure_ascii=False)
