"""The range of each column's values in the rows of one file: what the column stats say of it
(METADATA_TABLE.md, section 10.3).

Ranges come from the rows in memory and never from a Parquet footer, which leaves bounds out where they are
long and which Hudi misreads where there is a NaN. A range may be wider than the values, and never narrower,
in the order in which Spark compares them:

    strings     by their UTF-8 bytes. A bound of more than 64 characters is cut: the minimum to its first 64,
                the maximum likewise, with the last character raised
    floats      NaN is above +Infinity, and -0.0 equals 0.0. With a NaN the maximum is +Infinity, because
                Hudi loses rows by a maximum of NaN, and the minimum is finite; a minimum of zero is -0.0
                and a maximum of zero is 0.0
    the rest    as numbers

Columns of bytes have no range: a filter on one that has fails in Hudi 1.2.0.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import IntEnum
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.hudi_format.avro_types import SchemaError

BOUND_CHARS_MAX: Final = 64
StatValue: TypeAlias = "bool | int | float | str | bytes"
_CODE_POINT_MAX: Final = 0x10FFFF
_SURROGATES: Final = range(0xD800, 0xE000)
_FINITE_MAX: Final[dict[pa.DataType, float]] = {
    pa.float32(): 3.4028234663852886e38,
    pa.float64(): sys.float_info.max,
}


class ValueType(IntEnum):
    """The ordinals of Hudi's `ValueType`."""

    V1 = 0
    NULL = 1
    BOOLEAN = 2
    INT = 3
    LONG = 4
    FLOAT = 5
    DOUBLE = 6
    STRING = 7
    BYTES = 8
    FIXED = 9
    DECIMAL = 10
    UUID = 11
    DATE = 12
    TIME_MILLIS = 13
    TIME_MICROS = 14
    TIMESTAMP_MILLIS = 15
    TIMESTAMP_MICROS = 16
    TIMESTAMP_NANOS = 17
    LOCAL_TIMESTAMP_MILLIS = 18
    LOCAL_TIMESTAMP_MICROS = 19
    LOCAL_TIMESTAMP_NANOS = 20


@dataclass(frozen=True, slots=True)
class StatType:
    """The type of a range's bounds. `info` is "precision,scale" of a decimal, and None for other types."""

    kind: ValueType
    info: str | None = None


@dataclass(frozen=True, slots=True)
class ColumnRange:
    """The values of one column in one file: `low` to `high`, both None where all values are null, and where
    there are no rows.

    `values` counts the rows, those with a null among them; `nulls` counts the nulls. The bounds are a bool,
    an int (also of a date, in days, and of a timestamp, in its unit), a float, a str, or of a decimal the
    unscaled number as `decimal_bytes` writes it.
    """

    column: str
    type: StatType
    low: StatValue | None
    high: StatValue | None
    values: int
    nulls: int


_TYPES: Final[dict[pa.DataType, StatType]] = {
    pa.bool_(): StatType(ValueType.BOOLEAN),
    pa.int32(): StatType(ValueType.INT),
    pa.int64(): StatType(ValueType.LONG),
    pa.float32(): StatType(ValueType.FLOAT),
    pa.float64(): StatType(ValueType.DOUBLE),
    pa.string(): StatType(ValueType.STRING),
    pa.date32(): StatType(ValueType.DATE),
    pa.timestamp("ms", "UTC"): StatType(ValueType.TIMESTAMP_MILLIS),
    pa.timestamp("us", "UTC"): StatType(ValueType.TIMESTAMP_MICROS),
    pa.timestamp("us"): StatType(ValueType.LOCAL_TIMESTAMP_MICROS),
}


def has_ranges(arrow: pa.DataType) -> bool:
    """Whether columns of this type of a table's schema can have ranges."""
    return arrow in _TYPES or pa.types.is_decimal128(arrow)


def stat_type(arrow: pa.DataType, column: str) -> StatType:
    """The type of the bounds of a column. Raises `SchemaError` for one that can have no ranges."""
    if pa.types.is_decimal128(arrow):
        return StatType(ValueType.DECIMAL, f"{arrow.precision},{arrow.scale}")
    found = _TYPES.get(arrow)
    if found is None:
        raise SchemaError(f"column {column}: {arrow} can have no column stats")
    return found


def column_ranges(rows: pa.Table, columns: Sequence[str]) -> list[ColumnRange]:
    """The range of each of these columns in all rows of one file.

    Empty, so that no reader leaves the file out, where a column has a string above which there is none of 64
    characters. A file has ranges of all columns or of none: Hudi takes a column without a range, beside one
    with, for a column that the file lacks. Of a file without rows each column has a range of no values and no
    bounds, so readers leave it out whatever they search. Hudi writes the same of a log file of deletes alone.
    Raises `SchemaError` for a column that is not there, or whose type can have no ranges.
    """
    return cut_ranges(whole_ranges(rows, columns))


def whole_ranges(rows: pa.Table, columns: Sequence[str]) -> list[ColumnRange]:
    """`column_ranges` with bounds of any length; never empty. Raises as that."""
    # Arrow makes the list of names anew whenever it is asked.
    names = rows.column_names
    known = set(names)
    for name in columns:
        if name not in known:
            raise SchemaError(f"column {name}: the rows have no such column; they have {names}")
    return [_range(name, rows.column(name)) for name in columns]


def cut_ranges(ranges: Sequence[ColumnRange]) -> list[ColumnRange]:
    """The ranges of one file with long bounds cut; empty where one of them has no upper bound then."""
    cut = []
    for found in ranges:
        if isinstance(found.low, str) and isinstance(found.high, str):
            high = upper_bound(found.high)
            if high is None:
                return []
            found = replace(found, low=found.low[:BOUND_CHARS_MAX], high=high)
        cut.append(found)
    return cut


def united(first: ColumnRange, second: ColumnRange, kind: StatType | None = None) -> ColumnRange:
    """The range of two lots of rows together. `kind`: of which type it is, by default that of `second`."""
    kind = kind or second.type
    lows, highs = _present(first.low, second.low), _present(first.high, second.high)
    return ColumnRange(
        second.column,
        kind,
        min(lows, key=lambda value: sort_key(value, kind), default=None),
        max(highs, key=lambda value: sort_key(value, kind), default=None),
        first.values + second.values,
        first.nulls + second.nulls,
    )


def sort_key(value: Any, kind: StatType) -> Any:
    """What puts bounds into the order in which Spark compares them."""
    if kind.kind is ValueType.DECIMAL:
        return int.from_bytes(value, "big", signed=True)
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, float):
        # NaN is above all others, and not equal to itself.
        return (value != value, 0.0 if value != value else value)
    return value


def _present(*values: StatValue | None) -> list[StatValue]:
    return [value for value in values if value is not None]


def _range(name: str, column: pa.ChunkedArray) -> ColumnRange:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = stat_type(column.type, name)
    count, nulls = len(column), column.null_count
    low, high = (None, None) if nulls == count else _bounds(column, kind)
    return ColumnRange(name, kind, low, high, count, nulls)


def _bounds(column: pa.ChunkedArray, kind: StatType) -> tuple[StatValue, StatValue]:
    if kind.kind in (ValueType.FLOAT, ValueType.DOUBLE):
        return _float_bounds(column)
    found = pc.min_max(column)
    low, high = found["min"], found["max"]
    if kind.kind is ValueType.DECIMAL:
        scale = column.type.scale
        return decimal_bytes(_unscaled(low.as_py(), scale)), decimal_bytes(_unscaled(high.as_py(), scale))
    if kind.kind in (ValueType.STRING, ValueType.BOOLEAN):
        return low.as_py(), high.as_py()
    return _number(low), _number(high)


def _number(scalar: pa.Scalar[Any]) -> int:
    """The number that Arrow stores for a date or timestamp; an int is its own."""
    number: int = scalar.value if hasattr(scalar, "value") else scalar.as_py()
    return number


def _float_bounds(column: pa.ChunkedArray) -> tuple[float, float]:
    is_nan = pc.is_nan(column)
    has_nan = bool(pc.any(is_nan).as_py())
    numbers = column.filter(pc.invert(is_nan)) if has_nan else column
    found = pc.min_max(numbers)
    low, high = found["min"].as_py(), math.inf if has_nan else found["max"].as_py()
    if has_nan and (low is None or low == math.inf):
        # With one value as both bounds, a filter for all but that value would leave the file out.
        low = _FINITE_MAX[column.type]
    return (low or -0.0), (high or 0.0)


def upper_bound(text: str) -> str | None:
    """A text of at most `BOUND_CHARS_MAX` characters that is not below `text`; None where there is none."""
    if len(text) <= BOUND_CHARS_MAX:
        return text
    for end in range(BOUND_CHARS_MAX, 0, -1):
        last = ord(text[end - 1])
        if last < _CODE_POINT_MAX:
            raised = last + 1
            return text[: end - 1] + chr(_SURROGATES.stop if raised in _SURROGATES else raised)
    return None


def decimal_bytes(unscaled: int) -> bytes:
    """The number as Java's `BigInteger.toByteArray` gives it: two's complement, big-endian, as short as
    possible.
    """
    bits = (unscaled if unscaled >= 0 else ~unscaled).bit_length()
    return unscaled.to_bytes(bits // 8 + 1, "big", signed=True)


def _unscaled(value: Decimal, scale: int) -> int:
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    number: int = int("".join(map(str, digits))) * 10 ** (exponent + scale)
    return -number if sign else number
