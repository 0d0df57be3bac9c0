"""Twenty ways in which a record is malformed, each with the reason of the dead letter that it becomes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from tests.input_model import DELETE_FIELD, Row

KeyAndValue = tuple[bytes | None, bytes | None]
LONG: Final = 9_000
"""Longer than a record key may be (`limits.key_bytes`: 8 KiB)."""


def _with(**changed: Any) -> Callable[[Row], KeyAndValue]:
    return lambda row: (row["id"].encode(), json.dumps({**row, **changed}).encode())


def _without(*names: str) -> Callable[[Row], KeyAndValue]:
    return lambda row: (
        row["id"].encode(),
        json.dumps({name: value for name, value in row.items() if name not in names}).encode(),
    )


def _is(value: bytes) -> Callable[[Row], KeyAndValue]:
    return lambda row: (row["id"].encode(), value)


def _cut_off(row: Row) -> KeyAndValue:
    whole = json.dumps(row).encode()
    return row["id"].encode(), whole[: len(whole) // 2]


def _null_with_key(key: bytes | None) -> Callable[[Row], KeyAndValue]:
    return lambda _: (key, None)


WAYS: Final[tuple[tuple[str, Callable[[Row], KeyAndValue]], ...]] = (
    ("not-json", _is(b"not json")),
    ("not-json", _is(b"")),
    ("not-json", _cut_off),
    ("not-json", _is(b"\xff\xfe\x00")),
    ("wrong-shape", _is(b"[1, 2]")),
    ("wrong-shape", _is(b'"text"')),
    ("wrong-shape", _is(b"null")),
    ("missing-key", _without("id")),
    ("null-key", _with(id=None)),
    ("null-key", _with(id="")),
    ("mistyped-field", _with(id=5)),
    ("mistyped-field", _with(ts="yesterday")),
    ("mistyped-field", _with(ts=2**63)),
    ("mistyped-field", _with(amount={"of": "another", DELETE_FIELD: 1})),
    ("null-ordering", _without("ts")),
    ("bad-partition", _without("region")),
    ("bad-partition", _with(region="../outside")),
    ("key-too-long", _with(id="k" * LONG)),
    ("null-value-without-key", _null_with_key(None)),
    ("bad-key", _null_with_key(b"\xff\xfe")),
)
