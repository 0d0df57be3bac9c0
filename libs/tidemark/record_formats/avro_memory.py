"""Limits the memory that values of a writer's Avro type take, per byte of the record.

fastavro makes an object of each value, however few bytes it has. Example: an array of records, each of
which holds 30 records without bytes of their own and one boolean, takes 6 kB of memory per byte. A record
of a megabyte could end the process. Three limits prevent that:

1. A type is refused if its values may take more than `MEMORY_PER_BYTE_MAX` bytes of memory per byte.
2. Only so many records are read at a time that all of them together stay within
   `decoded_memory.TOGETHER_MAX`.
3. A record whose bytes could take more than `decoded_memory.memory_max` is read value by value
   (`CountedBytes`), and refused once it has too many values.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Final

from tidemark.record_formats.avro_schema import AvroSchemaError, AvroType
from tidemark.record_formats.decoded_memory import SYMBOL

MEMORY_PER_BYTE_MAX: Final = 1_024
"""About the memory of three nested records that have one byte together."""
_RATES: Final = (64, 80, 96, 128, 160, 192, 256, 320, 384, 512, 640, 768, MEMORY_PER_BYTE_MAX)
_RATES_WITH_COLUMNS: Final = (*_RATES, *(1 << exponent for exponent in range(11, 21)))
_RECORD_EXTRA_MAX: Final = 64 << 10
"""Bytes of memory that a record may take beyond that rate: a few hundred fields without
bytes of their own.
"""
# Sizes of CPython's objects on 64 bits, and of their places in a dictionary or list.
_DICT: Final = 184
_ENTRY: Final = 104
_LIST: Final = 56
_SLOT: Final = 8
_SCALAR: Final = 56


class TooManyValuesError(Exception):
    """A record has more values than may be read."""


class CountedBytes:
    """The bytes of a record, as a file, from which at most ``values_max`` values can be read; then it raises
    TooManyValuesError.

    Each `read` counts as one value; a text is two, its length and its bytes. fastavro reads a number byte
    by byte: the bytes behind the first are not counted, unless the type has ``single_bytes``
    (`has_single_bytes`), which cannot be told from them. Then each byte counts.
    """

    def __init__(self, content: bytes, values_max: int, single_bytes: bool) -> None:
        file = BytesIO(content)
        self.seek, self.tell = file.seek, file.tell
        # A function of its own for each object: it is called for every value, and a method that calls that
        # of a base class takes twice as long.
        self.read = _counted(file.read, values_max, not single_bytes)


def _counted(read: Callable[[int], bytes], values_max: int, joins: bool) -> Callable[[int], bytes]:
    left, goes_on = values_max, False

    def counted(size: int, /) -> bytes:
        nonlocal left, goes_on
        content = read(size)
        if not goes_on:
            left -= 1
            if left < 0:
                raise TooManyValuesError
        # The highest bit of a number's byte says that another byte follows.
        goes_on = joins and size == 1 and content >= b"\x80"
        return content

    return counted


def has_single_bytes(avro: AvroType) -> bool:
    """Whether the type contains values of one byte of any content, which may look like the byte of a longer
    number: booleans (every byte but 0 is read as true) and fixed values of size 1.
    """
    if avro.kind == "boolean" or (avro.kind == "fixed" and avro.size == 1):
        return True
    inner = (*(avro.fields or {}).values(), *avro.branches, *([avro.item] if avro.item else ()))
    return any(map(has_single_bytes, inner))


def memory_per_byte(avro: AvroType, item_bytes: int | None = None) -> int:
    """The most bytes of memory that a record of the type takes per byte, as one of the steps in `_RATES`.

    ``item_bytes``: memory of each item of an array or map in the columns; None: no columns are made. Raises
    AvroSchemaError when the objects alone may take more than `MEMORY_PER_BYTE_MAX` per byte.
    """
    rate = _first(_RATES, lambda step: _extra(avro, step) <= 0)
    if rate is None:
        _check_record(avro)
        rate = MEMORY_PER_BYTE_MAX
    if item_bytes is None:
        return rate
    # The columns' memory depends on the table's schema. A writer's type is never refused because of it.
    return _first(_RATES_WITH_COLUMNS, lambda step: _extra(avro, step, item_bytes) <= 0) or rate


def memory_per_value(avro: AvroType, item_bytes: int | None = None) -> int:
    """The most bytes of memory per value that is read, without the bytes of texts and fixed values
    themselves.

    As `memory_per_byte`, except that a fixed value counts as one value, however many bytes it has.
    """
    least = memory_per_byte(avro, item_bytes)
    rate = _first(_RATES_WITH_COLUMNS, lambda step: _extra(avro, step, item_bytes, by_value=True) <= 0)
    return max(rate or least, least)


def _first(rates: Sequence[int], is_enough: Callable[[int], bool]) -> int | None:
    """The lowest of these rates that is enough; None when the highest is not. What a type takes beyond a rate
    falls as the rate rises, so few have to be tried.
    """
    at = bisect_left(rates, True, key=is_enough)
    return rates[at] if at < len(rates) else None


def _check_record(avro: AvroType) -> None:
    extra = _extra(avro, MEMORY_PER_BYTE_MAX)
    if extra > _RECORD_EXTRA_MAX:
        raise AvroSchemaError(
            f"its records may take more than {MEMORY_PER_BYTE_MAX} bytes of memory for each of their bytes: "
            "it has records or nulls without bytes of their own, many in a record or in the items of an array"
        )


def _extra(avro: AvroType, rate: int, item_bytes: int | None = None, by_value: bool = False) -> float:
    """The most memory, in bytes, that one value takes beyond ``rate`` times its bytes (``by_value``: times
    the values that it is read as).

    At most 0: the rate is enough. Infinite: each further item of an array or map adds to it, without limit.
    """
    kind = avro.kind
    if kind == "null":
        return 0
    if kind == "union":
        return max(_extra(branch, rate, item_bytes, by_value) for branch in avro.branches) - rate
    if kind == "record":
        fields = (avro.fields or {}).values()
        return _DICT + sum(_ENTRY + _extra(field, rate, item_bytes, by_value) for field in fields)
    if avro.item is not None:
        place = (item_bytes or 0) + (_SLOT if kind == "array" else _ENTRY + _SCALAR - rate)
        return math.inf if place + _extra(avro.item, rate, item_bytes, by_value) > 0 else _LIST - rate
    if kind == "fixed" and not by_value:
        return _SCALAR + avro.size * (1 - rate)
    if kind == "enum":
        symbol = SYMBOL * max(map(len, avro.symbols), default=0)
        return (0 if item_bytes is None else symbol) - rate
    return (0 if kind == "boolean" else _SCALAR) - rate
