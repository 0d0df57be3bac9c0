"""How much memory the values of a writer's Avro type may take for each of their bytes.

A reader makes an object of each value, whatever few bytes it has: an array of records that hold 30 records
each, and one boolean at the end, is 6 kB of memory for every byte. So one record of a megabyte could end its
reader. A type is served when its values take at most `MEMORY_PER_BYTE_MAX` for each of their bytes, and
records are read so few at a time that all of them together have their limit. A record whose bytes could take
more than `decoded_memory.MEMORY_MAX` is read value by value (`CountedBytes`), as far as they fit.
"""

from __future__ import annotations

import math
from io import BytesIO
from typing import Final

from tidemark.record_formats.avro_schema import AvroSchemaError, AvroType
from tidemark.record_formats.decoded_memory import SYMBOL

MEMORY_PER_BYTE_MAX: Final = 1_024
"""Three records in each other, with one byte in all."""
_RATES: Final = (64, 80, 96, 128, 160, 192, 256, 320, 384, 512, 640, 768, MEMORY_PER_BYTE_MAX)
_RATES_WITH_COLUMNS: Final = (*_RATES, *(1 << exponent for exponent in range(11, 21)))
_RECORD_EXTRA_MAX: Final = 64 << 10
"""What a record may take beyond its bytes: a few hundred fields without bytes of their own."""
# Of CPython's objects on 64 bits, and of their places in a dictionary or list.
_DICT: Final = 184
_ENTRY: Final = 104
_LIST: Final = 56
_SLOT: Final = 8
_SCALAR: Final = 56


class TooManyValuesError(Exception):
    """A record holds more values than its reader may make."""


class CountedBytes(BytesIO):
    """Bytes of a record, of which a reader takes so many values at most; then TooManyValuesError is raised.

    Each read is one; a text is two, its length and its bytes. The further bytes of a number belong to it,
    unless the type has ``single_bytes`` (`has_single_bytes`): then each of them counts.
    """

    def __init__(self, content: bytes, values_max: int, single_bytes: bool) -> None:
        super().__init__(content)
        self._left = values_max
        self._joins = not single_bytes
        self._goes_on = False

    def read(self, size: int | None = -1, /) -> bytes:
        found = super().read(size)
        if not self._goes_on:
            self._left -= 1
            if self._left < 0:
                raise TooManyValuesError
        self._goes_on = self._joins and size == 1 and found >= b"\x80"
        return found


def has_single_bytes(avro: AvroType) -> bool:
    """Whether values of the type are read as one byte of any content: booleans (other bytes than 0 and 1 are
    taken as true) and fixed ones of one byte. They look like bytes of a number that goes on.
    """
    if avro.kind == "boolean" or (avro.kind == "fixed" and avro.size == 1):
        return True
    inner = (*(avro.fields or {}).values(), *avro.branches, *([avro.item] if avro.item else ()))
    return any(map(has_single_bytes, inner))


def memory_per_byte(avro: AvroType, item_bytes: int | None = None) -> int:
    """So many bytes of memory at most for each byte of a record. ``item_bytes``: what each item of an array
    or a map takes in the columns; None: there are none. Raises `AvroSchemaError` when that has no limit that
    is served.
    """
    for rate in _RATES:
        if _extra(avro, rate) <= 0:
            break
    else:
        _check_record(avro)
        rate = MEMORY_PER_BYTE_MAX
    if item_bytes is None:
        return rate
    # What the columns take is the table's affair: no type of a writer's is refused for it.
    return next((each for each in _RATES_WITH_COLUMNS if _extra(avro, each, item_bytes) <= 0), rate)


def memory_per_value(avro: AvroType, item_bytes: int | None = None) -> int:
    """So many bytes of memory at most for each value that is read, beside the bytes of texts and of fixed
    ones: as `memory_per_byte`, with a fixed one as one value, however many bytes it has.
    """
    least = memory_per_byte(avro, item_bytes)
    rates = (each for each in _RATES_WITH_COLUMNS if _extra(avro, each, item_bytes, by_value=True) <= 0)
    return max(next(rates, least), least)


def _check_record(avro: AvroType) -> None:
    extra = _extra(avro, MEMORY_PER_BYTE_MAX)
    if extra > _RECORD_EXTRA_MAX:
        raise AvroSchemaError(
            f"its records may take more than {MEMORY_PER_BYTE_MAX} bytes of memory for each of their bytes: "
            "it has records or nulls without bytes of their own, many in a record or in the items of an array"
        )


def _extra(avro: AvroType, rate: int, item_bytes: int | None = None, by_value: bool = False) -> float:
    """The most memory that one value takes beyond ``rate`` for each of its bytes, or of the values that it
    is read as; infinite where more of these are more of that.
    """
    kind = avro.kind
    if kind == "null":
        return 0
    if kind == "union":
        return max(_extra(each, rate, item_bytes, by_value) for each in avro.branches) - rate
    if kind == "record":
        fields = (avro.fields or {}).values()
        return _DICT + sum(_ENTRY + _extra(each, rate, item_bytes, by_value) for each in fields)
    if avro.item is not None:
        each = (item_bytes or 0) + (_SLOT if kind == "array" else _ENTRY + _SCALAR - rate)
        return math.inf if each + _extra(avro.item, rate, item_bytes, by_value) > 0 else _LIST - rate
    if kind == "fixed" and not by_value:
        return _SCALAR + avro.size * (1 - rate)
    if kind == "enum":
        symbol = SYMBOL * max(map(len, avro.symbols), default=0)
        return (0 if item_bytes is None else symbol) - rate
    return (0 if kind == "boolean" else _SCALAR) - rate
