"""How much memory the values of a writer's Avro type may take for each of their bytes.

A reader makes an object of each value, whatever few bytes it has: an array of records that hold 30 records
each, and one boolean at the end, is 6 kB of memory for every byte. So one record of a megabyte could end its
reader. A type is served when its values take at most `MEMORY_PER_BYTE_MAX` for each of their bytes, and
records are read so few at a time that all of them together have their limit.
"""

from __future__ import annotations

import math
from typing import Final

from index_assigner.formats.avro_schema import AvroSchemaError, AvroType

MEMORY_PER_BYTE_MAX: Final = 1_024
"""Three records in each other, with one byte in all."""
HUNGRY_FROM: Final = 512
"""Records of types that take more than so much for a byte have a limit of their own."""
HUNGRY_BYTES_MAX: Final = 512 << 10
_RATES: Final = (64, 128, 256, HUNGRY_FROM, MEMORY_PER_BYTE_MAX)
_RECORD_EXTRA_MAX: Final = 64 << 10
"""What a record may take beyond its bytes: a few hundred fields without bytes of their own."""
# Of CPython's objects on 64 bits, and of their places in a dictionary or list.
_DICT: Final = 184
_ENTRY: Final = 104
_LIST: Final = 56
_SLOT: Final = 8
_SCALAR: Final = 56


def memory_per_byte(avro: AvroType) -> int:
    """So many bytes of memory at most for each byte of a record. Raises `AvroSchemaError` when that has no
    limit that is served.
    """
    for rate in _RATES:
        if _extra(avro, rate) <= 0:
            return rate
    extra = _extra(avro, MEMORY_PER_BYTE_MAX)
    if extra > _RECORD_EXTRA_MAX:
        raise AvroSchemaError(
            f"its records may take more than {MEMORY_PER_BYTE_MAX} bytes of memory for each of their bytes: "
            "it has records or nulls without bytes of their own, many in a record or in the items of an array"
        )
    return MEMORY_PER_BYTE_MAX


def _extra(avro: AvroType, rate: int) -> float:
    """The most memory that one value takes beyond ``rate`` for each of its bytes; infinite where more of its
    bytes are more of that.
    """
    kind = avro.kind
    if kind == "null":
        return 0
    if kind == "union":
        return max(_extra(each, rate) for each in avro.branches) - rate
    if kind == "record":
        fields = (avro.fields or {}).values()
        return _DICT + sum(_ENTRY + _extra(each, rate) for each in fields)
    if avro.item is not None:
        each = _SLOT if kind == "array" else _ENTRY + _SCALAR - rate
        return math.inf if each + _extra(avro.item, rate) > 0 else _LIST - rate
    if kind == "fixed":
        return _SCALAR + avro.size * (1 - rate)
    return (0 if kind in ("boolean", "enum") else _SCALAR) - rate
