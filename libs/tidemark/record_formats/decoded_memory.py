"""How much memory decoded records may take, whatever few bytes they have.

A reader makes an object of each value and a place in each column of it: `{},` are three bytes and hundreds in
memory. So each format tells, before it decodes, how much that takes at most (`RecordDecoder.memory`): of
elements that repeat, their number against the memory of one, by the table's columns. What takes more than
`MEMORY_MAX` is a dead letter; what takes more than `TOGETHER_MAX` together is decoded in parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from tidemark.record_formats.decoder import Int64Array

MEMORY_MAX: Final = 256 << 20
"""Of one record that has at most `limits.record_bytes` as it is by default."""
MEMORY_PER_BYTE: Final = 16
"""Of a record without elements that repeat, where `limits.record_bytes` is larger."""
TOGETHER_MAX: Final = 64 << 20
"""Of records that are decoded at a time; one that takes more is decoded alone."""
TEXT: Final = 8
"""Of each byte of text or of bytes: as an object (up to four bytes a character), and as a column."""
SYMBOL: Final = 2
"""Of each character of an enum's symbol, which all its values share: a column holds it for each of them, and
takes up to twice that while it grows.
"""
SLOT: Final = 8
"""A reference, in a list or an object."""


def memory_max(record_bytes_max: int) -> int:
    """What one record may take, in bytes."""
    return max(MEMORY_MAX, MEMORY_PER_BYTE * record_bytes_max)


def filled_bytes(arrow: pa.DataType) -> int:
    """What a column of this type takes for each value, a missing one, too, in bytes: its place in the list
    that it is made from, in the column, and in the columns below.
    """
    if pa.types.is_struct(arrow):
        return SLOT + 1 + sum(filled_bytes(arrow.field(i).type) for i in range(arrow.num_fields))
    if pa.types.is_boolean(arrow):
        return SLOT + 2
    if pa.types.is_primitive(arrow) or pa.types.is_decimal(arrow):
        return SLOT + 1 + int(arrow.bit_width) // 8
    return SLOT + 1 + 4


def repeated_types(arrow: pa.DataType) -> Iterator[pa.DataType]:
    """The types in a column that one row may hold any number of: items of arrays, values of maps, and what is
    in them.
    """
    if pa.types.is_map(arrow) or pa.types.is_list(arrow):
        yield from _with_inner(arrow.item_type if pa.types.is_map(arrow) else arrow.value_type)
    elif pa.types.is_struct(arrow):
        for i in range(arrow.num_fields):
            yield from repeated_types(arrow.field(i).type)


def null_items(arrow: pa.DataType) -> Iterator[pa.DataType]:
    """The types in a column whose values arrays may hold as null: each then takes its place in all columns
    below.
    """
    lists = filter(pa.types.is_list, _with_inner(arrow))
    return (each.value_type for each in lists if each.value_field.nullable)


def null_values(arrow: pa.DataType) -> Iterator[pa.DataType]:
    """As `null_items`, of maps."""
    maps = filter(pa.types.is_map, _with_inner(arrow))
    return (each.item_type for each in maps if each.item_field.nullable)


class ColumnMemory:
    """Of columns alone, without what their values were read from. ``item``: what one item of an array, or
    value of a map, takes at most.
    """

    def __init__(self, columns: pa.Schema) -> None:
        self._row = sum(filled_bytes(each.type) for each in columns)
        repeated = [inner for each in columns for inner in repeated_types(each.type)]
        self.item = max(map(filled_bytes, repeated), default=0)

    def of(self, values: Sequence[bytes]) -> Int64Array:
        """Of each value, in bytes, if an item may be one byte of it."""
        sizes = np.fromiter(map(len, values), np.int64, len(values))
        return self._row + sizes * (TEXT + self.item)


def has_map(arrow: pa.DataType) -> bool:
    """Whether the column holds maps."""
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
    """Ranges of records that take ``most`` together, or one each; ``memory`` of each record."""
    ends = np.cumsum(memory)
    first = 0
    while first < len(memory):
        before = int(ends[first - 1]) if first else 0
        after = max(int(np.searchsorted(ends, before + most, side="right")), first + 1)
        yield first, after
        first = after
