"""Limits of the memory that decoded records take, however few bytes they have.

A decoder makes an object of each value, and a place for it in each column: the three bytes `{},` take
hundreds of bytes of memory. So each format estimates before it decodes how much memory a record takes at
most (`RecordDecoder.memory`): for elements that repeat, their number times the memory of one, given the
table's columns.

* A record that takes more than `memory_max` becomes a dead letter.
* Records that together take more than `TOGETHER_MAX` are decoded in parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from tidemark.record_formats.decoder import Int64Array

MEMORY_MAX: Final = 256 << 20
"""Bytes of memory for one record, with `limits.record_bytes` at its default or below."""
MEMORY_PER_BYTE: Final = 16
"""Bytes of memory for each byte of a record, where a larger `limits.record_bytes` makes that more."""
TOGETHER_MAX: Final = 64 << 20
"""Bytes of memory for records that are decoded at a time; one that takes more is decoded alone."""
TEXT: Final = 8
"""Bytes of memory per byte of a text or binary value: as an object (up to four bytes a character), and in a
column.
"""
SYMBOL: Final = 2
"""Bytes of memory per character of an enum's symbol. All values share the object, but a column has a copy
for each value, and takes up to twice that while it grows.
"""
SLOT: Final = 8
"""Bytes of a reference, in a list or an object."""


def memory_max(record_bytes_max: int) -> int:
    """The memory that one record may take, in bytes."""
    return max(MEMORY_MAX, MEMORY_PER_BYTE * record_bytes_max)


def filled_bytes(arrow: pa.DataType) -> int:
    """The bytes that a column of this type takes per value, also for a missing one.

    They are its place in the Python list from which the column is made, in the column, and in the columns
    below.
    """
    if pa.types.is_struct(arrow):
        return SLOT + 1 + sum(filled_bytes(arrow.field(i).type) for i in range(arrow.num_fields))
    if pa.types.is_boolean(arrow):
        return SLOT + 2
    if pa.types.is_primitive(arrow) or pa.types.is_decimal(arrow):
        return SLOT + 1 + int(arrow.bit_width) // 8
    return SLOT + 1 + 4


def repeated_types(arrow: pa.DataType) -> Iterator[pa.DataType]:
    """The types of which one row may hold any number: items of arrays, values of maps, and all types in
    them.
    """
    if pa.types.is_map(arrow) or pa.types.is_list(arrow):
        yield from _with_inner(arrow.item_type if pa.types.is_map(arrow) else arrow.value_type)
    elif pa.types.is_struct(arrow):
        for i in range(arrow.num_fields):
            yield from repeated_types(arrow.field(i).type)


def null_items(arrow: pa.DataType) -> Iterator[pa.DataType]:
    """The item types of arrays whose items may be null. A null item takes a place in all columns below,
    too.
    """
    lists = filter(pa.types.is_list, _with_inner(arrow))
    return (kind.value_type for kind in lists if kind.value_field.nullable)


def null_values(arrow: pa.DataType) -> Iterator[pa.DataType]:
    """The value types of maps whose values may be null. A null value takes a place in all columns below,
    too.
    """
    maps = filter(pa.types.is_map, _with_inner(arrow))
    return (kind.item_type for kind in maps if kind.item_field.nullable)


class ColumnMemory:
    """The memory of columns alone, without the objects from which they are made.

    ``item``: the most bytes that one item of an array, or value of a map, takes.
    """

    def __init__(self, columns: pa.Schema) -> None:
        self._row = sum(filled_bytes(field.type) for field in columns)
        repeated = [inner for field in columns for inner in repeated_types(field.type)]
        self.item = max(map(filled_bytes, repeated), default=0)

    def of(self, values: Sequence[bytes]) -> Int64Array:
        """The most bytes that each value takes, if an item may have as little as one byte."""
        sizes = np.fromiter(map(len, values), np.int64, len(values))
        return self._row + sizes * (TEXT + self.item)


def has_map(arrow: pa.DataType) -> bool:
    """Whether the type is a map, or contains one."""
    return any(map(pa.types.is_map, _with_inner(arrow)))


def _with_inner(arrow: pa.DataType) -> Iterator[pa.DataType]:
    yield arrow
    if pa.types.is_map(arrow):
        yield from _with_inner(arrow.item_type)
    elif pa.types.is_list(arrow):
        yield from _with_inner(arrow.value_type)
    elif pa.types.is_struct(arrow):
        for i in range(arrow.num_fields):
            yield from _with_inner(arrow.field(i).type)


def parts_within(memory: Int64Array, most: int) -> Iterator[tuple[int, int]]:
    """Yields half-open ranges of records that together take at most ``most``, or one larger record.

    ``memory``: of each record, in bytes.
    """
    # Each range is one binary search in the running sum: with most = 5, memory 3, 2, 4 has the ends 3, 5,
    # 9. The first range ends before the first end above 0 + 5: (0, 2).
    ends = np.cumsum(memory)
    first = 0
    while first < len(memory):
        before = int(ends[first - 1]) if first else 0
        after = max(int(np.searchsorted(ends, before + most, side="right")), first + 1)
        yield first, after
        first = after
