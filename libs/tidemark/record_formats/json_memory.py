"""Estimates the memory that JSON records take at most once they are decoded, from a few characters.

Two values of a record are separated by a comma, an object begins with a brace and an array with a bracket.
So the numbers of these characters limit the number of values, and the table's columns say how much one
value takes. A null in an array or map counts extra: where the items are records, it has a place in each of
their columns.

1. The record's size alone is compared with the limit.
2. If that is above it, braces, brackets, commas and nulls are counted, also those in text.
3. If that is still above it, they are counted again without text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from tidemark.record_formats.decoded_memory import (
    SLOT,
    TEXT,
    filled_bytes,
    has_map,
    null_items,
    null_values,
    repeated_types,
)
from tidemark.record_formats.decoder import Int64Array

# Bytes of CPython's objects on 64 bits, with their places in lists; measured, then rounded up.
_OBJECT: Final = 64
_ARRAY: Final = 120
_MAP: Final = 136
_ENTRY: Final = 176
_SCALAR: Final = 104
_DECIMAL: Final = 232
_BYTES_OF_OBJECT: Final = 3
_BYTES_OF_SCALAR: Final = 2
_NULL: Final = b"null"
_BYTES_OF_NULL: Final = 5
_QUOTE, _COMMA, _BRACKET, _BRACE, _COLON, _N = b'",[{:n'
_CLOSED: Final = {_BRACKET: ord("]"), _BRACE: ord("}")}
_SPACE_MAX: Final = ord(" ")


class _Counted(NamedTuple):
    """The numbers of one record's values. ``scalars``: an upper limit, nulls included. ``null_items``:
    nulls in arrays. ``named_nulls``: nulls behind a name, in objects and maps.
    """

    objects: int
    arrays: int
    scalars: int
    null_items: int
    named_nulls: int


class JsonMemory:
    """Estimates for the records of one table."""

    def __init__(self, columns: pa.Schema) -> None:
        types = [column.type for column in columns]
        self._record = _OBJECT + sum(SLOT + filled_bytes(kind) for kind in types)
        repeated = [inner for kind in types for inner in repeated_types(kind)]
        self._repeats = bool(repeated)
        entry = _ENTRY if any(map(has_map, types)) else 0
        self._scalar = entry + max(map(_scalar, repeated), default=_SCALAR)
        # Commas separate containers as well as scalars. As a container never takes less, it may stand for a
        # scalar.
        self._array = max(entry + _ARRAY, self._scalar)
        self._object = max(entry + max(map(_object, repeated), default=0), self._scalar)
        self._null_item = _null([inner for kind in types for inner in null_items(kind)])
        # Nulls in an object have places that are counted with the object. Only a map may have any number of
        # them.
        self._named_null = _null([inner for kind in types for inner in null_values(kind)])

    def of(self, values: Sequence[bytes], most: int, learnt: int = 0) -> Int64Array:
        """The most bytes of memory that each value takes; counted without text where that is above ``most``.

        ``learnt``: the number of unknown fields for which every inner object has a place.
        """
        sizes = np.fromiter(map(len, values), np.int64, len(values))
        fixed: Int64Array = sizes * TEXT + self._record
        if not self._repeats:
            return fixed
        each_object = self._object + learnt * SLOT
        each_null = max(self._null_item, self._named_null)
        rate = max(
            (each_null + self._scalar) // _BYTES_OF_NULL + 1,
            (each_object + self._scalar) // _BYTES_OF_OBJECT + 1,
            (self._array + self._scalar) // _BYTES_OF_OBJECT + 1,
            self._scalar // _BYTES_OF_SCALAR + 1,
        )
        coarse = fixed + sizes * rate
        if int(coarse.sum()) <= most:
            return coarse
        counts = np.fromiter(
            (
                count
                for value in values
                for count in (value.count(b"{"), value.count(b"["), value.count(b","))
            ),
            np.int64,
            3 * len(values),
        ).reshape(-1, 3)
        # All braces are counted, also those of the record itself and of objects without a column.
        memory: Int64Array = (
            fixed + counts @ np.asarray([each_object, self._array, self._scalar]) + self._scalar
        )
        if each_null:
            nulls = np.fromiter((value.count(_NULL) for value in values), np.int64, len(values))
            memory += nulls * each_null
        for at in np.flatnonzero(memory > most):
            count = _counted(values[at])
            taken = count.objects * each_object + count.arrays * self._array + count.scalars * self._scalar
            taken += count.null_items * self._null_item + count.named_nulls * self._named_null
            memory[at] = min(int(memory[at]), int(fixed[at]) + taken)
        return memory


def _object(arrow: pa.DataType) -> int:
    if pa.types.is_struct(arrow):
        return _OBJECT + SLOT * int(arrow.num_fields) + filled_bytes(arrow)
    return _MAP + filled_bytes(arrow) if pa.types.is_map(arrow) else 0


def _scalar(arrow: pa.DataType) -> int:
    return _DECIMAL if pa.types.is_decimal(arrow) else _SCALAR


def _null(types: Sequence[pa.DataType]) -> int:
    """The bytes that a null of the largest of these types takes more than a scalar."""
    return max(0, SLOT + max(map(filled_bytes, types), default=0) - _SCALAR)


def _counted(value: bytes) -> _Counted:
    """Counts the values of one record; characters in text are left out."""
    # Escaped quotes are removed first; outside of text no valid record has a backslash. Then a byte is
    # outside of text if an even number of quotes is at or before it: in {"a":1} the quotes are at 1 and 3,
    # so { : 1 } and the closing quote are outside.
    content = np.frombuffer(value.replace(b"\\\\", b"").replace(b'\\"', b""), np.uint8)
    outside = np.cumsum(content == _QUOTE, dtype=np.uint8) & 1 == 0
    content = content[outside & (content > _SPACE_MAX)]
    empty = sum(
        int(np.count_nonzero((content[:-1] == opens) & (content[1:] == closes)))
        for opens, closes in _CLOSED.items()
    )
    objects, arrays, commas = (int(np.count_nonzero(content == byte)) for byte in (_BRACE, _BRACKET, _COMMA))
    # Outside of text only null has the letter n.
    nulls = int(np.count_nonzero(content == _N))
    named = int(np.count_nonzero((content[:-1] == _COLON) & (content[1:] == _N)))
    # A container that is not empty has one value more than commas, and is a value itself.
    return _Counted(objects, arrays, max(commas + 1 - empty, 0), nulls - named, named)
