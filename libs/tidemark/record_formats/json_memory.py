"""How much memory JSON records take at most once they are decoded: braces, brackets, commas and nulls tell.

Between two scalars of a record stands a comma, an object begins with a brace and an array with a bracket:
whoever counts these knows how many values there are, and the columns say what one of them takes. A null in an
array or a map is a scalar that may stand for a record: it has a place in each of that one's columns. Those in
text count as well, until that decides: then text is left out.
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

# Of CPython's objects on 64 bits, with their places in lists; measured, then rounded up.
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
    """Of one record. ``scalars``: at most so many, with the nulls: those in arrays, and those behind a name,
    in objects and maps.
    """

    objects: int
    arrays: int
    scalars: int
    null_items: int
    named_nulls: int


class JsonMemory:
    """Of the records of one table."""

    def __init__(self, columns: pa.Schema) -> None:
        types = [each.type for each in columns]
        self._record = _OBJECT + sum(SLOT + filled_bytes(each) for each in types)
        repeated = [inner for each in types for inner in repeated_types(each)]
        self._repeats = bool(repeated)
        entry = _ENTRY if any(map(has_map, types)) else 0
        self._scalar = entry + max(map(_scalar, repeated), default=_SCALAR)
        # A container takes more than a scalar: so it may be counted in the place of one.
        self._array = max(entry + _ARRAY, self._scalar)
        self._object = max(entry + max(map(_object, repeated), default=0), self._scalar)
        self._null_item = _null([inner for each in types for inner in null_items(each)])
        # An object's own nulls are in the places that it is counted with: a map alone has more of them.
        self._named_null = _null([inner for each in types for inner in null_values(each)])

    def of(self, values: Sequence[bytes], most: int, learnt: int = 0) -> Int64Array:
        """Of each value, in bytes; exact where one takes more than ``most``. ``learnt``: unknown fields that
        every inner object has a place for.
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
        # Objects without a place in the columns, the record itself among them, are counted like others.
        memory: Int64Array = (
            fixed + counts @ np.asarray([each_object, self._array, self._scalar]) + self._scalar
        )
        if each_null:
            nulls = np.fromiter((value.count(_NULL) for value in values), np.int64, len(values))
            memory += nulls * each_null
        for at in np.flatnonzero(memory > most):
            found = _counted(values[at])
            taken = found.objects * each_object + found.arrays * self._array + found.scalars * self._scalar
            taken += found.null_items * self._null_item + found.named_nulls * self._named_null
            memory[at] = min(int(memory[at]), int(fixed[at]) + taken)
        return memory


def _object(arrow: pa.DataType) -> int:
    if pa.types.is_struct(arrow):
        return _OBJECT + SLOT * int(arrow.num_fields) + filled_bytes(arrow)
    return _MAP + filled_bytes(arrow) if pa.types.is_map(arrow) else 0


def _scalar(arrow: pa.DataType) -> int:
    return _DECIMAL if pa.types.is_decimal(arrow) else _SCALAR


def _null(types: Sequence[pa.DataType]) -> int:
    """What the null of the largest takes beyond what a scalar is counted with."""
    return max(0, SLOT + max(map(filled_bytes, types), default=0) - _SCALAR)


def _counted(value: bytes) -> _Counted:
    """Without what stands in text. Outside of text no valid record has a backslash."""
    content = np.frombuffer(value.replace(b"\\\\", b"").replace(b'\\"', b""), np.uint8)
    outside = np.cumsum(content == _QUOTE, dtype=np.uint8) & 1 == 0
    content = content[outside & (content > _SPACE_MAX)]
    empty = sum(
        int(np.count_nonzero((content[:-1] == opens) & (content[1:] == closes)))
        for opens, closes in _CLOSED.items()
    )
    objects, arrays, commas = (int(np.count_nonzero(content == each)) for each in (_BRACE, _BRACKET, _COMMA))
    # Outside of text an n is the first letter of a null.
    nulls = int(np.count_nonzero(content == _N))
    named = int(np.count_nonzero((content[:-1] == _COLON) & (content[1:] == _N)))
    # Each container that is not empty holds one value more than it has commas.
    return _Counted(objects, arrays, max(commas + 1 - empty, 0), nulls - named, named)
