"""Awkward data: every column type with and without nulls; keys and partition values that break naive code."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

# A struct in a struct, lists and maps with null elements, both kinds of timestamp, both sizes of decimal.
TYPED_COLUMNS: Final = [
    pa.field("a_string", pa.string()),
    pa.field("an_int", pa.int32()),
    pa.field("a_long", pa.int64()),
    pa.field("a_float", pa.float32()),
    pa.field("a_double", pa.float64()),
    pa.field("a_boolean", pa.bool_()),
    pa.field("some_bytes", pa.binary()),
    pa.field("a_date", pa.date32()),
    pa.field("a_moment", pa.timestamp("us", tz="UTC")),
    pa.field("a_local_time", pa.timestamp("us")),
    pa.field("a_price", pa.decimal128(10, 2)),
    pa.field("a_large_decimal", pa.decimal128(38, 10)),
    pa.field("tags", pa.list_(pa.string())),
    pa.field("counts", pa.map_(pa.string(), pa.int64())),
    pa.field("place", pa.struct([("city", pa.string()), ("point", pa.struct([("x", pa.float64())]))])),
    pa.field("parts", pa.list_(pa.struct([("name", pa.string()), ("size", pa.int32())]))),
]
SCHEMA: Final = pa.schema(
    [pa.field("id", pa.string()), pa.field("region", pa.string()), pa.field("ts", pa.int64()), *TYPED_COLUMNS]
)

KEYS: Final = [
    "plain",
    "k" * 300,
    "emoji \U0001f600\U0001f1e9\U0001f1ea",
    "astral \U00010000\U0010ffff",
    "private \ue000\uffff",
    "naïve 日本語 עברית",
    "slash/question?colon:dollar$back\\slash",
    'quote\'s and "more"',
    "percent%2F%zz",
    "comma,brace{}[]=#",
    " spaces around ",
    "tab\tand\nnewline",
    "under_score-and-dash.dot",
    "\x01control",
    # Those that look empty: blank, invisible, a word for nothing, Hudi's own placeholders in composite keys.
    " ",
    "\u200b",
    "null",
    "__null__",
    "__empty__",
]

# Values that Hudi keeps as they are (no URL encoding).
PLAIN_PARTITIONS: Final = ["p0", "with space", "ünïcode-日本", "under_score.v1", "~tilde+plus"]
# Values that need `hoodie.datasource.write.partitionpath.urlencode`.
ENCODED_PARTITIONS: Final = [*PLAIN_PARTITIONS, "a/b", "c:d=e%2F", "q?#*", "back\\slash", "{brace}"]


def full_row(key: str, region: str, ts: int) -> dict[str, Any]:
    """A row without nulls; its values depend on key and ts, so that no old version passes for a new one."""
    return {
        "id": key,
        "region": region,
        "ts": ts,
        "a_string": f"{key} at {ts} \U0001f600",
        "an_int": -(2**31) + ts,
        "a_long": 2**63 - 1 - ts,
        "a_float": 0.5 + ts,
        "a_double": 1e300 / (ts + 1),
        "a_boolean": ts % 2 == 0,
        "some_bytes": b"\x00\xff" + key.encode(),
        "a_date": date(1969, 12, 31) if ts % 2 else date(2040, 2, 29),
        "a_moment": datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        "a_local_time": datetime(2026, 3, 29, 2, 30, 0, ts, tzinfo=UTC).replace(tzinfo=None),
        "a_price": Decimal(f"-{ts}.07"),
        "a_large_decimal": Decimal("1234567890123456789012345678.0123456789"),
        "tags": ["", key, f"v{ts}"],
        "counts": [("one", ts), ("zwei", -ts)],
        "place": {"city": f"city {ts}", "point": {"x": ts / 3}},
        "parts": [{"name": "p", "size": ts}, {"name": None, "size": None}],
    }


def null_row(key: str, region: str, ts: int) -> dict[str, Any]:
    """A row in which every column that may be null is null."""
    return {**dict.fromkeys(SCHEMA.names), "id": key, "region": region, "ts": ts}


def hollow_row(key: str, region: str, ts: int) -> dict[str, Any]:
    """A row with empty and half-empty nested values."""
    row = null_row(key, region, ts)
    place = {"city": None, "point": {"x": None}}
    return {**row, "a_string": "", "some_bytes": b"", "tags": [], "counts": [("gone", None)], "place": place}


def row(number: int, key: str, region: str, ts: int) -> dict[str, Any]:
    """One of the three kinds in turn."""
    return (full_row, null_row, hollow_row)[number % 3](key, region, ts)


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    """The rows with the zoo's schema."""
    return pa.Table.from_pylist(rows, schema=SCHEMA)
