"""What a user writes for a value of an indexed column, as the text that a secondary index has for it.

| type | written | text in the index |
|---|---|---|
| string | as it is, "" among them | the same |
| int, long | decimal: `-7`, `007` | `-7`, `7` |
| date | ISO 8601: `2024-01-03` | days since 1970: `19725` |
| timestamp-micros | ISO 8601: `2024-01-03T04:05:06.5Z`; without an offset in UTC | microseconds since 1970 |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Final

import pyarrow as pa

from tidemark.hudi_format.errors import HudiFormatError

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,40}")
_FINER_THAN_MICROS: Final = re.compile(r"[.,][0-9]{7}")


class ValueFormError(HudiFormatError):
    """A text is no value of the column's type."""


def index_text(column: str, kind: pa.DataType, written: str) -> str:
    """The text in the index of the value that `written` says. `kind`: the column's type, one of
    `INDEXED_TYPES`. Raises ValueFormError.
    """
    form, text_of = _FORMS[kind]
    try:
        return text_of(written)
    except (ValueError, OverflowError):
        raise ValueFormError(
            f"{written[:80]!r} is no value of the column {column}, which is {form}"
        ) from None


def _whole(bits: int) -> Callable[[str], str]:
    def text_of(written: str) -> str:
        number = int(written) if _WHOLE.fullmatch(written) else None
        if number is None or not -(1 << bits - 1) <= number < 1 << bits - 1:
            raise ValueError
        return str(number)

    return text_of


def _days(written: str) -> str:
    return str((date.fromisoformat(written) - _EPOCH.date()).days)


def _micros(written: str) -> str:
    at = datetime.fromisoformat(written)
    if _FINER_THAN_MICROS.search(written):
        raise ValueError
    at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
    return str((at - _EPOCH) // timedelta(microseconds=1))


_FORMS: Final[Mapping[pa.DataType, tuple[str, Callable[[str], str]]]] = {
    pa.string(): ("text", str),
    pa.int32(): ("a whole number of 32 bits", _whole(32)),
    pa.int64(): ("a whole number of 64 bits", _whole(64)),
    pa.date32(): ("a date like 2024-01-03", _days),
    pa.timestamp("us", "UTC"): (
        "a time like 2024-01-03T04:05:06.789Z, to the microsecond; without an offset it is UTC",
        _micros,
    ),
}
