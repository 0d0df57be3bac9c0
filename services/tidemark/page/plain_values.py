"""Values of rows as JSON that a browser can show without losing a digit, cut at a limit."""

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
# Above it a browser's numbers have gaps.
_INTEGER_MAX: Final = 2**53


def user_columns(row: Mapping[str, Any]) -> list[list[Any]]:
    """[name, value] of the columns that are the user's own, in their order."""
    names = [name for name in row if name not in META_COLUMNS]
    return [[name, plain(row[name])] for name in names[:COLUMNS_MAX]]


def plain(value: Any) -> Any:
    """null, true, false, a number that JSON and browsers keep, or text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) <= _INTEGER_MAX else str(value)
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    return cut(_text(value))


def cut(text: str) -> str:
    """The text, or its beginning and how long it is."""
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
