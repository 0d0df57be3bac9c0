"""Record keys of null-value deletes: the Kafka key is the record key, as text or as JSON of the key fields.

A JSON object is taken as the key fields when it has all of them (Debezium's {"schema", "payload"} wrapper is
removed first). Any other bytes are the record key itself, as UTF-8 text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.hudi_format.exact_decimals import exact_decimals
from tidemark.hudi_format.keys import KeyColumns, KeyGenerator, KeyOrWhyNot, KeyProblem

_WRAPPER: Final = {"schema", "payload"}
_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1


class _BadKeyError(Exception):
    """The JSON value of a key field does not fit its column; the text becomes the row's reason."""


def keys_from_text(keys: pa.Array | Sequence[bytes | None], generator: KeyGenerator) -> KeyColumns:
    """The record keys of Kafka keys (a binary array, or bytes), or per row the reason why it has none.

    A bad row never raises.
    """
    raw = keys if isinstance(keys, pa.Array) else pa.array(keys, pa.binary())
    try:
        texts = raw.cast(pa.string())
        if not pc.any(pc.starts_with(pc.utf8_ltrim_whitespace(texts), "{")).as_py():
            return generator.checked_keys(texts)
    except pa.ArrowInvalid:
        pass  # A key is not UTF-8: reading the keys one by one finds out which.
    return _one_by_one(raw.to_pylist(), generator)


def _one_by_one(keys: list[bytes | None], generator: KeyGenerator) -> KeyColumns:
    texts: list[str | None] = [None] * len(keys)
    refused: dict[int, KeyOrWhyNot] = {}
    parsed: list[tuple[int, list[Any]]] = []
    for position, key in enumerate(keys):
        try:
            fields = _key_fields(key, generator) if key else None
            if fields is not None:
                parsed.append((position, fields))
            else:
                texts[position] = key.decode() if key else None
        except UnicodeDecodeError:
            refused[position] = _unreadable("the Kafka key is neither UTF-8 text nor JSON")
        except _BadKeyError as error:
            refused[position] = _unreadable(str(error))
    refused |= _from_fields(parsed, generator)
    rows = generator.checked_keys(pa.array(texts, pa.string())).rows()
    return KeyColumns.of_rows([refused.get(position, row) for position, row in enumerate(rows)])


def _unreadable(error: str) -> KeyOrWhyNot:
    return None, error, KeyProblem.UNREADABLE


def _from_fields(parsed: list[tuple[int, list[Any]]], generator: KeyGenerator) -> dict[int, KeyOrWhyNot]:
    if not parsed:
        return {}
    columns = [
        pa.array([fields[i] for _, fields in parsed], generator.schema.field(name).type)
        for i, name in enumerate(generator.record_key_fields)
    ]
    made = generator.keys_of_columns(columns).rows()
    return {position: row for (position, _), row in zip(parsed, made, strict=True)}


def _key_fields(key: bytes, generator: KeyGenerator) -> list[Any] | None:
    """The values of the key fields in their columns' types; None when the key is plain text."""
    if not key.lstrip().startswith(b"{"):
        return None
    try:
        document = json.loads(key, parse_float=_number)
    except (ValueError, RecursionError):
        return None
    if isinstance(document, dict) and set(document) == _WRAPPER and isinstance(document["payload"], dict):
        document = document["payload"]
    values = []
    for name in generator.record_key_fields:
        is_there, value = _look_up(document, name)
        if not is_there:
            return None
        values.append(_converted(value, name, generator.schema.field(name).type))
    return values


def _number(text: str) -> Decimal:
    """The number as Decimal. Where a Decimal cannot have the exponent: NaN, which fits no column."""
    try:
        return Decimal(text)
    except InvalidOperation:
        return Decimal("NaN")


def _look_up(document: Any, name: str) -> tuple[bool, Any]:
    for part in name.split("."):
        if not isinstance(document, dict) or part not in document:
            return False, None
        document = document[part]
    return True, document


def _converted(value: Any, name: str, arrow: pa.DataType) -> Any:
    if value is None:
        return None
    convert = next((function for test, function in _CONVERSIONS if test(arrow)), None)
    converted = convert(value, arrow) if convert else None
    if converted is None:
        raise _BadKeyError(f"key field {name}: {str(value)[:80]!r} is no {arrow}")
    return converted


def _text(value: Any, _: pa.DataType) -> str | None:
    return (
        value if isinstance(value, str) and not any("\ud800" <= char <= "\udfff" for char in value) else None
    )


def _whole(value: Any, arrow: pa.DataType) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    low, high = (_LONG_MIN, _LONG_MAX) if arrow.bit_width == 64 else (-(2**31), 2**31 - 1)
    return value if low <= value <= high else None


def _boolean(value: Any, _: pa.DataType) -> bool | None:
    return value if isinstance(value, bool) else None


def _date(value: Any, arrow: pa.DataType) -> Any:
    if isinstance(value, str):
        try:
            return date.fromisoformat(value)
        except ValueError:
            return None
    return _whole(value, arrow)


def _decimal(value: Any, arrow: pa.DataType) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, (str, int, Decimal)):
        return None
    try:
        column = exact_decimals([Decimal(value)], arrow)
    except (InvalidOperation, ValueError):
        return None
    made: Decimal = column[0].as_py()
    return made


_CONVERSIONS: Final[list[tuple[Callable[[pa.DataType], bool], Callable[[Any, pa.DataType], Any]]]] = [
    (pa.types.is_string, _text),
    (pa.types.is_integer, _whole),
    (pa.types.is_timestamp, _whole),
    (pa.types.is_boolean, _boolean),
    (pa.types.is_date, _date),
    (pa.types.is_decimal, _decimal),
]
