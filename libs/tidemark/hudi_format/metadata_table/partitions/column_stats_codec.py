"""Records of the column stats: Avro HoodieMetadataRecord of type 3 (METADATA_TABLE.md, section 10.3).

A bound is a record of the union `minValue` or `maxValue`, which has a branch for each kind of number or text.
The column's type says which: dates and timestamps are bare numbers, decimals are bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from tidemark.hudi_format.column_ranges import ColumnRange, StatType, StatValue, ValueType, united
from tidemark.hudi_format.columnar import avro_string, zigzag_varint
from tidemark.hudi_format.errors import CorruptFileError, damage_in
from tidemark.hudi_format.metadata_table.record_schema import (
    META_FIELD_COUNT,
    RECORD_TYPE_COLUMN_STATS,
    decode_record,
)

_NULL: Final = b"\x00"
_PRESENT: Final = b"\x02"
# Five null meta fields, the empty key, the type, and null for the payloads before ColumnStatsMetadata.
_PREFIX: Final = (
    _NULL * META_FIELD_COUNT
    + avro_string("")
    + zigzag_varint(RECORD_TYPE_COLUMN_STATS)
    + _NULL * 2
    + _PRESENT
)
# recordIndexMetadata and SecondaryIndexMetadata.
_SUFFIX: Final = _NULL * 2


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """One record: the range of a column in the file `file_name` (of a log with the dot in front).

    `is_tight`: the record replaces older ones of its key. `is_deleted`: it says that there is none. `sizes`:
    bytes of the column in the file, compressed and not; nobody reads them.
    """

    file_name: str
    range: ColumnRange
    is_tight: bool = False
    is_deleted: bool = False
    sizes: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class _Wrapper:
    """A branch of the union of bounds: its number, the type that its values have in Python, its bytes."""

    branch: int
    kind: type
    encode: Callable[[Any], bytes]


_INT: Final = _Wrapper(2, int, zigzag_varint)
_LONG: Final = _Wrapper(3, int, zigzag_varint)
_BYTES: Final = _Wrapper(6, bytes, lambda value: zigzag_varint(len(value)) + value)
_STRING: Final = _Wrapper(7, str, avro_string)
_WRAPPERS: Final[dict[ValueType, _Wrapper]] = {
    ValueType.BOOLEAN: _Wrapper(1, bool, lambda value: bytes([value])),
    ValueType.INT: _INT,
    ValueType.LONG: _LONG,
    ValueType.FLOAT: _Wrapper(4, float, lambda value: struct.pack("<f", value)),
    ValueType.DOUBLE: _Wrapper(5, float, lambda value: struct.pack("<d", value)),
    ValueType.STRING: _STRING,
    ValueType.BYTES: _BYTES,
    ValueType.FIXED: _BYTES,
    ValueType.DECIMAL: _BYTES,
    ValueType.UUID: _STRING,
    ValueType.DATE: _INT,
    ValueType.TIME_MILLIS: _INT,
    ValueType.TIME_MICROS: _LONG,
    ValueType.TIMESTAMP_MILLIS: _LONG,
    ValueType.TIMESTAMP_MICROS: _LONG,
    ValueType.TIMESTAMP_NANOS: _LONG,
    ValueType.LOCAL_TIMESTAMP_MILLIS: _LONG,
    ValueType.LOCAL_TIMESTAMP_MICROS: _LONG,
    ValueType.LOCAL_TIMESTAMP_NANOS: _LONG,
}


def encode_stats(stats: ColumnStats) -> bytes:
    """The record's value."""
    found = stats.range
    info = found.type.info
    fields = (
        _name(stats.file_name), _name(found.column),
        _bound(found.low, found.type), _bound(found.high, found.type),
        _number(found.values), _number(found.nulls), _number(stats.sizes[0]), _number(stats.sizes[1]),
        bytes([stats.is_deleted]), bytes([stats.is_tight]),
        _number(found.type.kind), _NULL if info is None else _PRESENT + avro_string(info),
    )  # fmt: skip
    return _PREFIX + b"".join(fields) + _SUFFIX


# Columns of a file have its name and its counts, and files those of their columns.
@lru_cache(maxsize=1 << 10)
def _name(text: str) -> bytes:
    return _PRESENT + avro_string(text)


@lru_cache(maxsize=1 << 10)
def _number(number: int) -> bytes:
    return _PRESENT + zigzag_varint(number)


def _bound(value: StatValue | None, kind: StatType) -> bytes:
    if value is None:
        return _NULL
    wrapper = _WRAPPERS[kind.kind]
    return zigzag_varint(wrapper.branch) + wrapper.encode(value)


def decode_stats(value: bytes, schema: str, source: str) -> ColumnStats:
    """A record. `schema` is the one that it was written under ('' = ours), `source` what errors call its
    file. Raises CorruptFileError.
    """
    record = decode_record(value, schema, source)
    stats = record.get("ColumnStatsMetadata")
    if stats is None or record.get("type") != RECORD_TYPE_COLUMN_STATS:
        raise CorruptFileError(f"{source}: a record of the column stats is of type {record.get('type')}")
    with damage_in(source, f"a record of the column stats of {len(value)} bytes"):
        kind = _type(stats.get("valueType"))
        low, high = (_unwrapped(stats[name], kind) for name in ("minValue", "maxValue"))
        if (low is None) != (high is None):
            raise ValueError("one of its bounds is null, and the other is not")
        counts = [int(stats[name] or 0) for name in ("valueCount", "nullCount")]
        sizes = (int(stats["totalSize"] or 0), int(stats["totalUncompressedSize"] or 0))
        found = ColumnRange(str(stats["columnName"]), kind, low, high, *counts)
        return ColumnStats(
            str(stats["fileName"]), found, bool(stats["isTightBound"]), bool(stats["isDeleted"]), sizes
        )


def _type(info: Any) -> StatType:
    if info is None:
        raise ValueError("it has no valueType: it is of version 1, which tables of version 9 do not have")
    return StatType(ValueType(info["typeOrdinal"]), info["additionalInfo"])


def _unwrapped(wrapper: Any, kind: StatType) -> StatValue | None:
    if wrapper is None:
        return None
    wanted = _WRAPPERS.get(kind.kind)
    value: StatValue = wrapper["value"]
    if wanted is None or type(value) is not wanted.kind:
        raise ValueError(f"its bound {value!r} is of another type than {kind.kind.name}")
    return value


def merge_stats(older: ColumnStats, newer: ColumnStats, source: str) -> ColumnStats:
    """What two records of one key add up to: a tight one, and one beside a deleted one, counts alone; else
    the range is widened and the counts are added.

    Raises CorruptFileError for ranges of two types, by which Hudi's own readers fail; a type of NULL, which
    says nothing, takes the other one's.
    """
    if newer.is_tight or newer.is_deleted or older.is_deleted:
        return newer
    first, second = older.range, newer.range
    kinds = {found.type for found in (first, second) if found.type.kind is not ValueType.NULL}
    if len(kinds) > 1:
        raise CorruptFileError(
            f"{source}: column {second.column} of {newer.file_name} has ranges of the types "
            f"{first.type.kind.name} and {second.type.kind.name}"
        )
    kind = kinds.pop() if kinds else second.type
    merged = united(first, second, kind)
    sizes = (older.sizes[0] + newer.sizes[0], older.sizes[1] + newer.sizes[1])
    return replace(newer, range=merged, sizes=sizes)
