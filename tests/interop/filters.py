"""Seeded rows and filters on every type of column that can have column stats: what Hudi's data skipping is
judged by.

Rows come in clusters, so that files have ranges of their own; among them are nulls, NaN, both zeros,
extremes, long texts and texts outside the BMP. Filters take most of their literals from the rows, so that
most find some.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

# What Hudi 1.2.0 gets wrong on its own tables, too: rows are lost.
LIKE_PREFIX: Final = "apache/hudi#18791"
NOT_A_NUMBER: Final = "METADATA_TABLE.md, section 10.3: a filter for NaN"

Row = dict[str, Any]


@dataclass(frozen=True)
class Column:
    """A column of the judged table. `near(random, cluster)` draws a value; `extremes` are further ones."""

    arrow: pa.DataType
    literal: Callable[[Any], str]
    near: Callable[[random.Random, int], Any]
    extremes: Sequence[Any] = ()


@dataclass(frozen=True)
class Filter:
    """A condition of Spark SQL. `faults`: what Hudi is known to get wrong in it, by `column`: rows of some
    files may be missing then. Such a condition stands alone, so that it excuses no row that another one would
    lose. `prefix`: of a LIKE.
    """

    sql: str
    faults: frozenset[str] = field(default_factory=frozenset)
    column: str = ""
    prefix: str = ""


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _floating(kind: str) -> Callable[[float], str]:
    def literal(value: float) -> str:
        return f"{kind}('{value!r}')" if math.isfinite(value) else f"{kind}('{_NAMES[str(value)]}')"

    return literal


def _local(moment: datetime) -> datetime:
    return moment.replace(tzinfo=None)


_NAMES: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_DAY: Final = date(2024, 1, 1)
_MOMENT: Final = datetime(2024, 1, 1, 12, 0, 0, 123_456, UTC)
_WHOLE_MOMENT: Final = _MOMENT.replace(microsecond=123_000)
_WORDS: Final = (
    "",
    "a",
    "oslo",
    "oslo\U0001f600",
    "oslo\uff5e",
    "na\u00efve",
    "o'clock\\",
    "z\U0010ffff",
    "x" * 300,
)
_SINGLE_MAX: Final = 3.4028234663852886e38

COLUMNS: Final[dict[str, Column]] = {
    "i": Column(
        pa.int32(), str, lambda random, at: at * 1_000 + random.randrange(900), (0, -(2**31) + 1, 2**31 - 1)
    ),
    "l": Column(
        pa.int64(),
        lambda value: f"{value}L",
        lambda random, at: at * 10**15 + random.randrange(9**15),
        (0, -(2**63) + 1, 2**63 - 1),
    ),
    "f": Column(
        pa.float32(),
        _floating("float"),
        lambda random, at: at + random.randrange(4) / 4,
        (0.0, -0.0, math.nan, math.inf, -math.inf, _SINGLE_MAX),
    ),
    "d": Column(
        pa.float64(),
        _floating("double"),
        lambda random, at: at + random.random(),
        (0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, 1e300),
    ),
    "b": Column(pa.bool_(), lambda value: str(value).lower(), lambda random, at: at % 2 == 0),
    "s": Column(
        pa.string(),
        _text,
        lambda random, at: f"{'abcdefgh'[at % 8]}{random.choice(_WORDS)}",
        (*_WORDS, "\uff5e", "\U0001f600", "\U0010ffff" * 70, "x" * 299 + "y"),
    ),
    "day": Column(
        pa.date32(),
        lambda value: f"date'{value.isoformat()}'",
        lambda random, at: _DAY + timedelta(days=at * 100 + random.randrange(90)),
        (date(1969, 12, 31), date(1583, 1, 2), date(9999, 12, 30)),
    ),
    "ts": Column(
        pa.timestamp("us", "UTC"),
        lambda value: f"timestamp'{value.replace(tzinfo=None).isoformat(sep=' ')}'",
        lambda random, at: _MOMENT + timedelta(days=at * 100, microseconds=random.randrange(10**12)),
        (datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), datetime(1900, 1, 2, tzinfo=UTC)),
    ),
    "local": Column(
        pa.timestamp("us"),
        lambda value: f"timestamp_ntz'{value.isoformat(sep=' ')}'",
        lambda random, at: _local(_MOMENT + timedelta(days=at * 100, microseconds=random.randrange(10**12))),
        (_local(datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)), _local(datetime(2200, 1, 2, tzinfo=UTC))),
    ),
    "price": Column(
        pa.decimal128(10, 2),
        lambda value: f"cast('{value}' as decimal(10,2))",
        lambda random, at: Decimal(at * 10_000 + random.randrange(9_000)) / 100,
        (Decimal("0.00"), Decimal("-99999999.99"), Decimal("99999999.99"), Decimal("-1.28")),
    ),
    "big": Column(
        pa.decimal128(30, 10),
        lambda value: f"cast('{value:f}' as decimal(30,10))",
        lambda random, at: Decimal(at) * Decimal("12345678901.2345678901") + random.randrange(100),
        (Decimal("0E-10"), Decimal("-12345678901234567890.0123456789")),
    ),
    "none": Column(pa.string(), _text, lambda random, at: None, ("x",)),
}  # fmt: skip
# Spark has no such type: a table that it makes has microseconds, and to one of ours it writes milliseconds.
MILLIS: Final = Column(
    pa.timestamp("ms", "UTC"),
    lambda value: f"timestamp'{value.replace(tzinfo=None).isoformat(sep=' ')}'",
    lambda random, at: _WHOLE_MOMENT + timedelta(days=at * 100, milliseconds=random.randrange(10**9)),
    (datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC), datetime(1900, 1, 2, tzinfo=UTC)),
)
# Beside the columns that filters are drawn for, one of bytes: a filter on it fails where it has stats.
SCHEMA: Final = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("region", pa.string()),
        pa.field("seq", pa.int64()),
        *(pa.field(name, each.arrow) for name, each in COLUMNS.items()),
        pa.field("raw", pa.binary()),
    ]
)
_NULLS, _EXTREMES = 0.1, 0.1


def is_plain(value: Any) -> bool:
    """Whether Hudi takes the range of a base file with such a value from the Parquet footer rightly."""
    return not (isinstance(value, float) and math.isnan(value))


class Zoo:
    """Draws rows and filters. `allowed`: which values rows may have. `columns`: which there are."""

    def __init__(
        self,
        seed: int,
        allowed: Callable[[Any], bool] = lambda value: True,
        columns: Mapping[str, Column] = COLUMNS,
    ) -> None:
        self._random, self._allowed, self._columns = random.Random(seed), allowed, columns
        self._seen: dict[str, list[Any]] = {name: [] for name in columns}

    def see(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Literals of filters are taken from these rows, too."""
        for row in rows:
            for name, values in self._seen.items():
                if row[name] is not None:
                    values.append(row[name])

    def rows(self, keys: Sequence[str], region: str, cluster: int, seq: int = 1) -> list[Row]:
        """A row for each key, with values near the cluster's."""
        drawn = [{name: self._value(name, cluster) for name in self._columns} for _ in keys]
        return [
            {"id": key, "region": region, "seq": seq, **values, "raw": bytes([255 - cluster, 1])}
            for key, values in zip(keys, drawn, strict=True)
        ]

    def _value(self, name: str, cluster: int) -> Any:
        column, draw = self._columns[name], self._random.random()
        # In some clusters a column is all null, in others without a null.
        if draw < _NULLS * (cluster % 3) or (cluster + len(name)) % 7 == 6:
            return None
        value = column.near(self._random, cluster)
        others = [each for each in column.extremes if self._allowed(each)]
        if others and 1 - draw < _EXTREMES * (cluster % 2) and name != "none":
            value = self._random.choice(others)
        if value is not None:
            self._seen[name].append(value)
        return value

    def filter(self, depth: int = 2) -> Filter:
        """A condition on one to four columns."""
        how = self._random.randrange(10) if depth else 0
        if how < 6:
            return self._atom(self._random.choice(list(self._columns)))
        first = self.filter(depth - 1)
        if how == 6:
            return first if first.faults else Filter(f"NOT ({first.sql})")
        second = self.filter(depth - 1)
        word = "AND" if how < 9 else "OR"
        faulty = (each for each in (first, second) if each.faults)
        return next(faulty, Filter(f"({first.sql}) {word} ({second.sql})"))

    def _atom(self, name: str) -> Filter:
        operators = ["=", "<", "<=", ">", ">=", "<>", "<=>", "IN", "IS NULL", "IS NOT NULL", "BETWEEN"]
        if self._columns[name].arrow == pa.string():
            operators.append("LIKE")
        operator = self._random.choice(operators)
        if operator in ("IS NULL", "IS NOT NULL"):
            return Filter(f"{name} {operator}")
        if operator == "LIKE":
            return self._like(name)
        count = {"IN": self._random.randrange(1, 4), "BETWEEN": 2}.get(operator, 1)
        values = [self._literal_value(name) for _ in range(count)]
        if operator == "IN":
            values = [each for each in values if _asks_for_nan(each)] or values
        texts = [self._columns[name].literal(value) for value in values]
        faults = frozenset({NOT_A_NUMBER}) if any(_asks_for_nan(value) for value in values) else frozenset()
        if operator == "IN":
            return Filter(f"{name} IN ({', '.join(texts)})", faults, name)
        if operator == "BETWEEN":
            return Filter(f"{name} BETWEEN {texts[0]} AND {texts[1]}", faults, name)
        return Filter(f"{name} {operator} {texts[0]}", faults, name)

    def _like(self, name: str) -> Filter:
        prefix = str(self._literal_value(name))[: self._random.randrange(1, 8)]
        escaped = prefix.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        return Filter(f"{name} LIKE {_text(escaped + '%')}", frozenset({LIKE_PREFIX}), name, prefix)

    def _literal_value(self, name: str) -> Any:
        column = self._columns[name]
        known = self._seen[name]
        if known and (not column.extremes or self._random.random() < 0.75):
            return self._random.choice(known)
        return self._random.choice(column.extremes or [True, False])


def _asks_for_nan(value: Any) -> bool:
    """A range with a NaN ends with +Infinity: a filter may only find the row with NaN by what is above it."""
    return isinstance(value, float) and (math.isnan(value) or value == math.inf)
