"""Values of every kind of column that fit none, or only just: numbers with exponents without end, days and
instants beyond all calendars, lists, maps and nested records of such.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

from tests.input_model import SCHEMA

Columns = Mapping[str, str]
"""JSON texts by column."""


def _optional(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "default": None}


def _decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


_INSTANT: Final = {"type": "long", "logicalType": "timestamp-micros"}
HOSTILE_SCHEMA: Final[Mapping[str, Any]] = {
    **SCHEMA,
    "fields": [
        *SCHEMA["fields"],
        _optional("price", _decimal(10, 2)),
        _optional("prices", {"type": "array", "items": ["null", _decimal(12, 3)]}),
        _optional("sums", {"type": "map", "values": _decimal(20, 4)}),
        _optional("day", {"type": "int", "logicalType": "date"}),
        _optional("at", _INSTANT),
        _optional(
            "rec",
            {
                "type": "record",
                "name": "rec",
                "fields": [_optional("d", _decimal(38, 10)), _optional("at", _INSTANT)],
            },
        ),
    ],
}
"""`tests.input_model.SCHEMA` and a column of every kind that has to be converted."""

_DIGITS: Final = ("1", "5", "-7", "1.5", "123456789012345678901234567890", "9" * 38, "-" + "8" * 400)
KNOWN: Final = (
    *("123456789012345678901234567890e-414", "1e-9999999", "5e-41", "5e-656", "1e-39", "1e400000000"),
    *("0.0000000000001", "123456789012345678901234567890123456789", "1e29", "-1e-999999999999999999"),
)
_NO_NUMBERS: Final = ('"NaN"', '"-sNaN"', '"Infinity"', '""', '"0x10"', '"1,5"', '"--1"', "true", "[]", "{}")
_NO_DAYS: Final = (
    *('"2024-02-30"', '"24-1-1"', '"2024-02-29T00:00:00"', '"' + "9" * 5_000 + '"'),
    *("2147483648", "-2147483649", "1.5", "1e400000000", "true", "[1]"),
)
_NO_INSTANTS: Final = (
    *('"soon"', '"2024-13-01T00:00:00Z"', '"2024-02-29T25:00:00Z"', '""', '"' + "9" * 5_000 + '"'),
    *("9223372036854775808", "-9223372036854775809", "1.5", "1e-400000000", "true", "{}"),
)


def unfit_number(random: Random) -> str:
    """A JSON value that fits none of the table's decimals; exponents of either sign up to 10^18."""
    kind = random.randrange(10)
    if kind < 2:
        return random.choice(_NO_NUMBERS)
    if kind < 4:
        text = random.choice(KNOWN)
    else:
        power = random.choice((-1, 1)) * 10 ** random.randrange(2, 19) + random.randrange(-2, 3)
        text = f"{random.choice(_DIGITS)}{random.choice('eE')}{power}"
    return f'"{text}"' if random.random() < 0.5 else text


def _price(random: Random) -> Columns:
    return {"price": unfit_number(random)}


def _prices(random: Random) -> Columns:
    found = unfit_number(random)
    before, behind = (",".join(["1.5"] * random.randrange(4)) for _ in range(2))
    items = ",".join(each for each in (before, found, behind) if each)
    return {"prices": random.choice([f"[{items}]", f"[{items}]", '{"a":1}', "7"])}


def _sums(random: Random) -> Columns:
    found = unfit_number(random)
    return {"sums": random.choice([f'{{"a":1,"":{found}}}', f'[["a",{found}]]', '{"a":{"b":1}}'])}


def _rec(random: Random) -> Columns:
    inner = random.choice([f'"d":{unfit_number(random)}', f'"at":{random.choice(_NO_INSTANTS)},"d":1'])
    return {"rec": f"{{{inner}}}", "price": "1"}


def _mixed(random: Random) -> Columns:
    return {**_price(random), **_prices(random), **_sums(random), **_rec(random)}


UNFIT: Final[Mapping[str, Callable[[Random], Columns]]] = {
    "hostile decimal": _price,
    "hostile list of decimals": _prices,
    "hostile map of decimals": _sums,
    "hostile nested record": _rec,
    "hostile day": lambda random: {"day": random.choice(_NO_DAYS)},
    "hostile instant": lambda random: {"at": random.choice(_NO_INSTANTS)},
    "hostile columns": _mixed,
}
"""By kind; at least one of the values does not fit its column."""

_ODD: Final[Mapping[str, tuple[str, ...]]] = {
    "price": ("0e-9999999", '"0e-9999999"', "-0", "0E999999999", "1.5" + "0" * 500, '"99999999.99"', "1E+7"),
    "prices": ("[]", "[null]", "[0e-414,1e8,-1.125]", "[" + ",".join(["1.5"] * 2_000) + "]"),
    "sums": ("{}", '{"":1E15,"a":0e-400}', '{"a":1,"a":2}'),
    "day": ("2147483647", "-2147483648", '"0001-01-01"', '"9999-12-31"', "0"),
    "at": ("9223372036854775807", "-9223372036854775808", '"9999-12-31T23:59:59.999999999Z"', "-1"),
    "rec": ("{}", '{"d":"1234567890123456789012345678.0123456789","at":null}', '{"d":0e9999999,"x":1}'),
}


def odd_columns(random: Random) -> Columns:
    """Values that fit."""
    return {name: random.choice(texts) for name, texts in _ODD.items() if random.random() < 0.5}


def with_columns(fields: Mapping[str, Any], columns: Columns) -> bytes:
    """A record with these fields as JSON, and the columns as they are written."""
    parts = [f"{json.dumps(name)}:{json.dumps(value)}" for name, value in fields.items()]
    parts += [f"{json.dumps(name)}:{text}" for name, text in columns.items()]
    return f"{{{','.join(parts)}}}".encode()
