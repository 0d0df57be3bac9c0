"""Records that a hostile, broken or careless producer may write, of many kinds, from a seeded generator.

The table is `tests.hostile_values.HOSTILE_SCHEMA`: id, region (partition), ts (ordering), name, amount, and a
column of every kind that has to be converted.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any, Final, NamedTuple

from tests.hostile_values import UNFIT, Columns, odd_columns, with_columns
from tests.raw_producer import RawRecord


class Hostile(NamedTuple):
    """``kind``: for counting. ``reasons``: what the dead letter may say; empty: there is none.

    ``row``: the id of the row that it becomes, None where it becomes none.
    """

    kind: str
    record: RawRecord
    reasons: frozenset[str]
    row: str | None = None


def row(key: Any, **fields: Any) -> dict[str, Any]:
    return {"id": key, "region": "eu", "ts": 5, "name": "n", "amount": 0.5, **fields}


def _json(fields: dict[str, Any], *without: str) -> bytes:
    return json.dumps({name: each for name, each in fields.items() if name not in without}).encode()


def _garbage(random: Random) -> bytes:
    return b"\xff" + random.randbytes(random.randrange(1, 300))


def _truncated(random: Random) -> bytes:
    whole = _json(row("cut", name="x" * random.randrange(200)))
    return whole[: random.randrange(1, len(whole))]


def _nested(random: Random) -> bytes:
    opening = random.choice([b"[", b'{"a":', b'[{"b":'])
    return b'{"id":"deep","region":"eu","ts":1,"name":' + opening * random.randrange(2_000, 20_000)


def _mutated(random: Random) -> bytes:
    """Not UTF-8 any more, wherever the byte lands."""
    whole = bytearray(_json(row("mutant", name="y" * 40)))
    whole[random.randrange(len(whole))] = random.choice([0xFF, 0xFE, 0xC0])
    return bytes(whole)


def _unfit(columns: Callable[[Random], Columns]) -> Callable[[Random], bytes]:
    return lambda random: with_columns(row("a"), columns(random))


_DATA_FILE: Final = "p/3f2a-0_1-0-1_20240101000000000.parquet"
_PARTITIONS: Final = (
    *("..", ".", "a/../b", "/etc", "//", "a//b", ".hoodie", ".hoodie/x", ".hoodie_partition_metadata"),
    *("nul\0", "bell\x07", "line\n", "\x7f", "\x9b2J", "back\\slash", "colon:", "r" * 256, "r/" * 600 + "r"),
    *("a%2Fb", "k=v", "\u2028", _DATA_FILE, "p/.f_20240101000000000.log.1_0-1-1", "X.ORC", "p.hfile"),
)
_WRONG_IDS: Final = (5, 1.5, True, ["a"], {"a": 1}, 10**40)
_WRONG_TS: Final = ("yesterday", 1.5, 2**63, -(2**63) - 1, 10**4_000, True, [1], {"t": 1}, "9" * 5_000)
_WRONG_AMOUNTS: Final = ("many", [0.5], {"x": 1}, True)
_MONSTROUS: Final = (
    b'{"x":1e99999999999999999999}',
    b'{"id":1e99999999999999999999}',
    b'{"x":-1E-99999999999999999999}',
    b'{"id":' + b"9" * 4_500 + b"}",
    b'{"x":[' + b"[" * 3_000 + b"}",
    b'{"id":{"id":{"id":1}}}',
    b'{"id":"\\ud800"}',
)
_NOT_JSON: Final = frozenset({"not-json", "wrong-shape", "mistyped-field"})
# A byte may also land in the name of a field, which the table then lacks: in that of `name` it does no harm.
_CHANGED: Final = _NOT_JSON | {"", "missing-key", "bad-partition", "null-ordering"}
_TYPED: Final = frozenset({"mistyped-field", "not-json"})
_BAD_VALUES: Final[dict[str, tuple[Callable[[Random], bytes | None], frozenset[str]]]] = {
    "garbage": (_garbage, _NOT_JSON),
    "empty": (lambda _: b"", _NOT_JSON),
    "truncated JSON": (_truncated, _NOT_JSON),
    "deep JSON": (_nested, _NOT_JSON),
    "JSON with a byte changed": (_mutated, _CHANGED),
    "no object": (lambda r: r.choice([b"[1]", b'"text"', b"null", b"7", b"true"]), _NOT_JSON),
    "NaN": (lambda _: b'{"id":"a","region":"eu","ts":1,"name":"n","amount":NaN}', _NOT_JSON),
    "no key": (lambda r: _json(row("a"), "id"), frozenset({"missing-key"})),
    "null key": (lambda r: _json(row(r.choice([None, ""]))), frozenset({"null-key"})),
    "key of another type": (lambda r: _json(row(r.choice(_WRONG_IDS))), _TYPED),
    "long key": (lambda r: _json(row("k" * r.randrange(8_200, 30_000))), frozenset({"key-too-long"})),
    "no partition": (lambda r: _json(row("a", region=None)), frozenset({"bad-partition"})),
    "hostile partition": (
        lambda r: _json(row("a", region=r.choice(_PARTITIONS))),
        frozenset({"bad-partition"}),
    ),
    "no ordering": (lambda r: _json(row("a", ts=None)), frozenset({"null-ordering"})),
    "hostile ordering": (lambda r: _json(row("a", ts=r.choice(_WRONG_TS))), _TYPED),
    "hostile number": (lambda r: _json(row("a", amount=r.choice(_WRONG_AMOUNTS))), _TYPED),
    "surrogate": (lambda _: b'{"id":"\\ud800","region":"eu","ts":1,"name":"n"}', _NOT_JSON),
    **{kind: (_unfit(columns), _TYPED) for kind, columns in UNFIT.items()},
}


def _bad(kind: str) -> Callable[[Random, object], Hostile]:
    made, reasons = _BAD_VALUES[kind]
    return lambda random, _: Hostile(kind, RawRecord(made(random), b"k", _headers(random)), reasons)


def _null_without_key(random: Random, _: object) -> Hostile:
    record = RawRecord(None, random.choice([None, b""]), _headers(random))
    return Hostile("null value without key", record, frozenset({"null-value-without-key"}))


def _null_with_bytes(random: Random, _: object) -> Hostile:
    record = RawRecord(None, b"\xff" + random.randbytes(20), _headers(random))
    return Hostile("null value, key no UTF-8", record, frozenset({"bad-key"}))


def _null_with_long_key(random: Random, _: object) -> Hostile:
    record = RawRecord(None, b"k" * random.randrange(8_200, 40_000), _headers(random))
    return Hostile("null value, long key", record, frozenset({"key-too-long"}))


def _monstrous_delete(random: Random, _: object) -> Hostile:
    record = RawRecord(None, random.choice(_MONSTROUS), _headers(random))
    return Hostile("monstrous number in a delete's key", record, frozenset({"", "bad-key"}))


def _odd_header(random: Random, good: Callable[[], str]) -> Hostile:
    """A good record."""
    key = good()
    record = RawRecord(_json(row(key)), random.randbytes(8), _headers(random, odd=True))
    return Hostile("good record, odd headers", record, frozenset(), key)


def _odd_fields(random: Random, good: Callable[[], str]) -> Hostile:
    """A good record."""
    key = good()
    odd = {"\0": 1, "x" * 500: [[]], "": {}, "name": "\x1b[31m\u202e\U0001f4a5" * random.randrange(9)}
    return Hostile("good record, odd fields", RawRecord(_json(row(key, **odd))), frozenset(), key)


def _odd_columns(random: Random, good: Callable[[], str]) -> Hostile:
    """A good record."""
    key = good()
    record = RawRecord(with_columns(row(key), odd_columns(random)))
    return Hostile("good record, odd values", record, frozenset(), key)


_HEADERS: Final[tuple[tuple[bytes, bytes | None], ...]] = (
    (b"tm-replays", b"-1"),
    (b"tm-replays", b"9" * 40),
    (b"tm-reason", b"\x1b[2J"),
    (b"tm-header-tm-header-x", b"y"),
    (b"tm-replayed", b"[1]"),
    (b"", b""),
    (b"null", None),
    (b"long", b"h" * 2_000),
)
_ODD_HEADERS: Final = (*_HEADERS, (b"\xff\xfe", b"v"), (b"\xc3\x28", None), (b"a\0b", b"\0"))


def _headers(random: Random, odd: bool = False) -> tuple[tuple[bytes, bytes | None], ...]:
    if not odd and random.random() < 0.7:
        return ()
    return tuple(random.choices(_ODD_HEADERS, k=random.randrange(1, 5)))


BAD: Final = (*map(_bad, _BAD_VALUES), _null_without_key, _null_with_bytes, _null_with_long_key)
ODD: Final = (_monstrous_delete, _odd_header, _odd_fields, _odd_columns)


def hostile_records(random: Random, count: int, good: Callable[[], str]) -> list[Hostile]:
    """So many bad ones, each kind as often as the others, with odd ones between; ``good`` gives new ids."""
    made = [BAD[number % len(BAD)](random, None) for number in range(count)]
    made += [random.choice(ODD)(random, good) for _ in range(count // 10)]
    random.shuffle(made)
    return made
