"""Splits record index values into location and insert instant without parsing each of them.

A value holds a location and the instant of the key's insert (METADATA_TABLE.md, section 6.1). A grown table
has few locations and many pairs of both, so a value is parsed once for each location, not for each pair. The
instant lies right before the last three bytes: its branch (02), six bytes of a varint (the length of any time
in milliseconds from July 1970 to September 2039), then the encoding of the file id and two nulls. The bytes
before those six, and the encoding, determine the location.

Example: `… 02 00 | 02 | c0 d1 9a b2 f0 63 | 00 00 00`: location, branch, instant, encoding and two nulls.
Other values are left to the parser: deletes, values without an instant or with one of another length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.hudi_format.columnar import BinaryColumn, gather_rows

Int64Array = npt.NDArray[np.int64]

_INSTANT_BYTES: Final = 6
_ENCODING_AT: Final = 3
_TAIL_BYTES: Final = _INSTANT_BYTES + _ENCODING_AT
_ENCODING_BYTES: Final = (0, 2)
"""Zigzag of encoding 0 (UUID) and of encoding 1 (text)."""

LocationKey = tuple[bytes, int]
"""The bytes of a value before its insert instant, and the encoding of its file id."""


@dataclass(frozen=True, slots=True)
class PlainValues:
    """The values that are split, and those that are left.

    ``rows``: positions of the split ones. ``which[i]``: the number in ``keys`` of the location of
    ``rows[i]``. ``instant_ms[i]``: its insert instant in milliseconds. ``others``: positions of the rest.
    """

    rows: Int64Array
    which: Int64Array
    keys: list[LocationKey]
    instant_ms: Int64Array
    others: Int64Array


def split_plain(values: pa.BinaryArray) -> PlainValues:
    """Splits the values that end as the module's docstring says. Their first bytes are not looked at: whoever
    parses a key has to find that it ends exactly before an insert instant.
    """
    column = BinaryColumn.from_arrow(values)
    plain = _ends_plainly(column)
    rows, others = np.flatnonzero(plain), np.flatnonzero(~plain)
    ends = column.offsets[1:][rows]
    fronts = gather_rows(column.data, column.offsets[:-1][rows], ends - _TAIL_BYTES).dictionary_encode()
    # A key is a front and an encoding: fronts 0, 1 with encodings 0, 1 are the keys 0 and 3 of four.
    encodings = column.data[ends - _ENCODING_AT] >> 1
    pairs = fronts.indices.to_numpy().astype(np.int64) * len(_ENCODING_BYTES) + encodings
    there = np.zeros(len(fronts.dictionary) * len(_ENCODING_BYTES), np.bool_)
    there[pairs] = True
    distinct = np.flatnonzero(there)
    texts = fronts.dictionary.to_numpy(zero_copy_only=False)
    keys = [(texts[pair >> 1], pair & 1) for pair in distinct.tolist()]
    which = (np.cumsum(there) - 1)[pairs]
    return PlainValues(rows, which, keys, _instants(column.data, ends), others)


def _ends_plainly(column: BinaryColumn) -> npt.NDArray[np.bool_]:
    data, ends = column.data, column.offsets[1:]
    plain: npt.NDArray[np.bool_] = column.lengths() > _TAIL_BYTES
    at = ends[plain]
    kept = (
        (data[at - 1] == 0)
        & (data[at - 2] == 0)
        & np.isin(data[at - _ENCODING_AT], _ENCODING_BYTES)
        & (data[at - _ENCODING_AT - 1] < 0x80)
        & (data[at - _TAIL_BYTES - 1] == 2)
    )
    for back in range(_ENCODING_AT + 2, _TAIL_BYTES + 1):
        kept &= data[at - back] >= 0x80
    plain[plain] = kept
    return plain


def _instants(data: npt.NDArray[Any], ends: Int64Array) -> Int64Array:
    """The six bytes before the last three as a zigzag varint, least significant group first."""
    rest = np.zeros(len(ends), np.int64)
    for back in range(_ENCODING_AT + 1, _TAIL_BYTES + 1):
        rest = rest << 7 | (data[ends - back] & 0x7F)
    instants: Int64Array = (rest >> 1) ^ -(rest & 1)
    return instants
