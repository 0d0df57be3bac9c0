"""Computes which record index file group (shard) a record key belongs to.

Hudi hashes a key with Java's String.hashCode: h = 31 h + c over the UTF-16 code units c, in 32-bit
wraparound arithmetic. Because 31 is odd it has an inverse modulo 2**32, so the hashes of a whole column are
differences of one running sum: with S[i] = sum of c[j] * 31**-j for j < i, the hash of the units [s, e) is
(S[e] - S[s]) * 31**(e-1). No Python loop over keys is needed, whatever their lengths.

Example with two keys "ab" and "c", units 97, 98, 99: S is 0, 97, 97 + 98/31, 97 + 98/31 + 99/31**2.
"ab" is (S[2] - S[0]) * 31 = 97 * 31 + 98 = 3105, "c" is (S[3] - S[2]) * 31**2 = 99.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.hudi_format.columnar import BinaryColumn

_INVERSE_OF_31 = pow(31, -1, 2**32)
_CHUNK_UNITS = 1 << 16  # keeps the power tables and the running sum inside the processor's cache


def java_hash(keys: pa.Array | pa.ChunkedArray | Sequence[str]) -> npt.NDArray[np.int32]:
    """Java's String.hashCode of each key (UTF-8 Arrow strings or Python strings): int32, one per key.

    Raises ValueError for a null key.
    """
    column = BinaryColumn.from_keys(keys)
    units, offsets = _utf16_units(column)
    hashes = np.empty(len(column), dtype=np.uint32)
    first = 0
    while first < len(column):
        # The last key that ends within this chunk of units: offsets 0, 4, 9 and chunks of 5 units give key 0
        # alone (its end, 4, is the last offset up to 5), then key 1.
        last = int(np.searchsorted(offsets, offsets[first] + _CHUNK_UNITS, side="right")) - 1
        last = max(last, first + 1)
        begin, end = int(offsets[first]), int(offsets[last])
        hashes[first:last] = _hash_chunk(units[begin:end], offsets[first : last + 1] - begin)
        first = last
    return hashes.view(np.int32)


def record_index_shard(
    keys: pa.Array | pa.ChunkedArray | Sequence[str], num_shards: int
) -> npt.NDArray[np.int32]:
    """The shard number in [0, num_shards) of each key: |(|hash|) rem num_shards|, as in Hudi 1.2.0.

    Java's |MIN_INT| stays MIN_INT, and its remainder is negative until the outer absolute value; with 64-bit
    numbers that is simply 2**31 mod num_shards. The shard count never changes: take it from the metadata
    table, not from the configuration. Raises ValueError for a null key, or fewer than one shard.
    """
    if num_shards < 1:
        raise ValueError(f"num_shards must be at least 1, not {num_shards}")
    magnitude = np.abs(java_hash(keys).astype(np.int64))
    return (magnitude % num_shards).astype(np.int32)


def _utf16_units(column: BinaryColumn) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """The column's UTF-16 code units, and the bounds of each key in them (one more than keys)."""
    data = column.data
    if not data.size or int(data.max()) < 0x80:
        # ASCII bytes have the values of their UTF-16 units.
        return data, column.offsets
    units = np.frombuffer(data.tobytes().decode("utf-8").encode("utf-16-le"), dtype="<u2")
    # A character's first byte stands for its one unit, or two from U+10000 on (first byte 0xF0 and above),
    # and its other bytes for none. Keys "é" and "a" are bytes C3 A9 61 with 1, 0, 1 units, so the running sum
    # is 0, 1, 1, 2 and the byte bounds 0, 2, 3 become the unit bounds 0, 1, 2.
    units_per_byte = ((data & 0xC0) != 0x80).astype(np.int8) + (data >= 0xF0)
    running = np.zeros(data.size + 1, dtype=np.int64)
    np.cumsum(units_per_byte, dtype=np.int64, out=running[1:])
    return units, running[column.offsets]


def _hash_chunk(units: npt.NDArray[Any], bounds: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    """The hashes of the keys [bounds[i], bounds[i + 1]) in ``units``, by the formula in the module's
    docstring.
    """
    size = max(_CHUNK_UNITS, 1 << int(units.size).bit_length())
    inverse_powers, powers = _power_table(_INVERSE_OF_31, size), _power_table(31, size)
    # One running sum serves all keys: of the keys "ab" and "c" it is 0, a, a + b/31, a + b/31 + c/31², and
    # the difference of "ab", a + b/31, times 31 is its hash 31a + b. All modulo 2**32, where 31 has an
    # inverse.
    running = np.zeros(units.size + 1, dtype=np.uint32)
    np.cumsum(units.astype(np.uint32) * inverse_powers[: units.size], dtype=np.uint32, out=running[1:])
    ends = bounds[1:]
    # An empty key has the difference 0, so it does not matter which power (index -1 or any other) it gets.
    difference: npt.NDArray[np.uint32] = running[ends] - running[bounds[:-1]]
    hashes: npt.NDArray[np.uint32] = difference * powers[ends - 1]
    return hashes


@lru_cache(maxsize=8)
def _power_table(base: int, size: int) -> npt.NDArray[np.uint32]:
    """base**0 .. base**(size-1) modulo 2**32."""
    factors = np.full(size, base, dtype=np.uint32)
    factors[0] = 1
    table: npt.NDArray[np.uint32] = np.cumprod(factors, dtype=np.uint32)
    return table
