"""The logical type of a number or bytes in an input record, and how such values become Arrow columns.

Logical types are known by name: Avro's, and those of Kafka Connect and Debezium. The writer's logical type
decides how a value is read, and not the column's: milliseconds in a column of microseconds are multiplied
by 1000.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.hudi_format.avro_types import DECIMAL_PRECISION_MAX
from tidemark.hudi_format.exact_decimals import exact_decimals, exact_unscaled


class LogicalType(Enum):
    """A logical type. PLAIN: none, or one that no column type corresponds to."""

    PLAIN = "plain"
    DATE = "date"
    MILLIS = "milliseconds"
    MICROS = "microseconds"
    NANOS = "nanoseconds"
    DECIMAL = "decimal"
    TIME_OF_DAY = "time of day"


INSTANTS: Final = frozenset({LogicalType.MILLIS, LogicalType.MICROS, LogicalType.NANOS})
_BY_NAME: Final[Mapping[str, LogicalType]] = {
    "date": LogicalType.DATE,
    "timestamp-millis": LogicalType.MILLIS,
    "timestamp-micros": LogicalType.MICROS,
    "timestamp-nanos": LogicalType.NANOS,
    "local-timestamp-millis": LogicalType.MILLIS,
    "local-timestamp-micros": LogicalType.MICROS,
    "local-timestamp-nanos": LogicalType.NANOS,
    "time-millis": LogicalType.TIME_OF_DAY,
    "time-micros": LogicalType.TIME_OF_DAY,
    "decimal": LogicalType.DECIMAL,
    "org.apache.kafka.connect.data.Date": LogicalType.DATE,
    "org.apache.kafka.connect.data.Time": LogicalType.TIME_OF_DAY,
    "org.apache.kafka.connect.data.Timestamp": LogicalType.MILLIS,
    "org.apache.kafka.connect.data.Decimal": LogicalType.DECIMAL,
    "io.debezium.time.Date": LogicalType.DATE,
    "io.debezium.time.Time": LogicalType.TIME_OF_DAY,
    "io.debezium.time.MicroTime": LogicalType.TIME_OF_DAY,
    "io.debezium.time.NanoTime": LogicalType.TIME_OF_DAY,
    "io.debezium.time.Timestamp": LogicalType.MILLIS,
    "io.debezium.time.MicroTimestamp": LogicalType.MICROS,
    "io.debezium.time.NanoTimestamp": LogicalType.NANOS,
}
_NANOS_PER: Final = {LogicalType.MILLIS: 1_000_000, LogicalType.MICROS: 1_000, LogicalType.NANOS: 1}
_NANOS_PER_UNIT: Final = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}


def logical_type_of(*names: object) -> LogicalType:
    """The logical type of the first known name; PLAIN when none of the names is known."""
    for name in names:
        if isinstance(name, str) and name in _BY_NAME:
            return _BY_NAME[name]
    return LogicalType.PLAIN


def instants(values: Sequence[int | None], logical_type: LogicalType, arrow: pa.TimestampType) -> pa.Array:
    """Converts numbers since 1970 to timestamps. Plain numbers are in the column's own unit.

    Fractions finer than the column's unit are cut. Raises one of pyarrow's errors for a number out of range.
    """
    numbers = pa.array(values, pa.int64())
    given, kept = _NANOS_PER.get(logical_type, 0), _NANOS_PER_UNIT[arrow.unit]
    if given > kept:
        numbers = pc.multiply_checked(numbers, pa.scalar(given // kept, pa.int64()))
    elif 0 < given < kept:
        factor = pa.scalar(kept // given, pa.int64())
        # Towards the past, before 1970 as well: divide cuts towards zero.
        lower = pc.less(pc.subtract(numbers, pc.multiply(pc.divide(numbers, factor), factor)), 0)
        numbers = pc.subtract(pc.divide(numbers, factor), lower.cast(pa.int64()))
    return numbers.view(arrow)


def decimals(values: Sequence[bytes | None], scale: int, arrow: pa.Decimal128Type) -> pa.Array:
    """Big-endian two's complement numbers of this scale. Raises ValueError for what the column cannot hold
    exactly.
    """
    numbers = [None if value is None else int.from_bytes(value, "big", signed=True) for value in values]
    return exact_unscaled(numbers, scale, arrow)


def decimal_texts(values: Sequence[str | None], arrow: pa.Decimal128Type) -> pa.Array:
    """Converts numbers written as text. Raises ValueError for a value that the column cannot hold exactly."""
    try:
        numbers = [None if value is None else Decimal(value) for value in values]
    except InvalidOperation as error:
        raise ValueError(f"a text is no number: {error}") from None
    return exact_decimals(numbers, arrow)


def whole_decimals(values: Sequence[int | None], arrow: pa.Decimal128Type) -> pa.Array:
    """Converts whole numbers to decimals. Raises ValueError for a value that the column cannot hold."""
    return exact_unscaled(values, 0, arrow)


def scale_in(parameters: Any) -> int | None:
    """The scale in a type's parameters (a number, or text in Kafka Connect's); None: it has no valid one."""
    try:
        scale = int(parameters)
    except (TypeError, ValueError, OverflowError):
        return None
    return scale if 0 <= scale <= DECIMAL_PRECISION_MAX else None
