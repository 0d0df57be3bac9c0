"""Hudi's SIMPLE bloom filter of a base file's record keys, as base64 text for the Parquet footer.

Spark writers with the BLOOM index fail on a base file without one (FORMAT.md, sections 4.3 and 4.4).
Layout, big-endian: int -1, int number of hashes, byte 1 (murmur), int number of bits, then the bits; bit
i in byte i >> 3 under 1 << (i & 7).
"""

from __future__ import annotations

import base64
import math
import struct
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.hudi_format.columnar import BinaryColumn

_MULTIPLIER: Final = np.uint32(0x5BD1E995)
_ROTATION: Final = np.uint32(24)
_HEADER: Final = struct.Struct(">iibi")
_BYTES_PER_CHUNK_MAX: Final = 8 << 20
_LN2: Final = math.log(2)


@dataclass(frozen=True, slots=True)
class BloomSpec:
    """The target error rate (Hudi's default 1e-9 takes 43 bits a key), and the least number of keys to
    size for.
    """

    error_rate: float = 1e-9
    keys_min: int = 64

    def bits(self, keys: int) -> int:
        """The size of the filter in bits, for `keys` keys."""
        return math.ceil(max(keys, self.keys_min) * -math.log(self.error_rate) / _LN2**2)

    def hashes(self, keys: int) -> int:
        """The number of hash functions for `keys` keys."""
        return math.ceil(_LN2 * self.bits(keys) / max(keys, self.keys_min))


class BloomFilter:
    """A filter that is made for a number of keys, which come in parts. It takes 43 bits a key at Hudi's error
    rate.
    """

    def __init__(self, keys: int, spec: BloomSpec) -> None:
        self._bits, self._hashes = spec.bits(keys), spec.hashes(keys)
        self._body = np.zeros((self._bits + 7) // 8, np.uint8)

    def add(self, keys: pa.Array | pa.ChunkedArray) -> None:
        """Adds keys (no nulls)."""
        for chunk in _chunks_of_equal_length(BinaryColumn.from_arrow(keys)):
            for positions in _positions(chunk, self._bits, self._hashes):
                flags = np.left_shift(1, positions & 7).astype(np.uint8)
                np.bitwise_or.at(self._body, positions >> 3, flags)

    def text(self) -> str:
        """The filter for the footer entry `org.apache.hudi.bloomfilter`."""
        header = _HEADER.pack(-1, self._hashes, 1, self._bits)
        return base64.b64encode(header + self._body.tobytes()).decode()


def bloom_filter_text(keys: pa.Array | pa.ChunkedArray, spec: BloomSpec) -> str:
    """The filter of `keys` (no nulls), as text for the footer entry `org.apache.hudi.bloomfilter`."""
    bloom = BloomFilter(len(keys), spec)
    bloom.add(keys)
    return bloom.text()


def _positions(chunk: npt.NDArray[np.uint8], bits: int, hashes: int) -> list[npt.NDArray[np.int64]]:
    """Per hash function the bit position of each key. The hash of one round is the seed of the next round."""
    words, tail = _mixed_words(chunk)
    seed = np.zeros(len(chunk), dtype=np.uint32)
    positions = []
    for _ in range(hashes):
        seed = _murmur(words, tail, chunk.shape[1], seed)
        # Java's abs(int % bits) takes the dividend's sign into the remainder: it equals abs(int) mod bits.
        positions.append(np.abs(seed.view(np.int32).astype(np.int64)) % bits)
    return positions


def _mixed_words(
    chunk: npt.NDArray[np.uint8],
) -> tuple[list[npt.NDArray[np.uint32]], npt.NDArray[np.uint32] | None]:
    """The part of Murmur2 that does not depend on the seed: the mixed 4-byte words of each key, and its tail
    bytes as one word (None: no tail).
    """
    length = chunk.shape[1]
    words = []
    for start in range(0, length & ~3, 4):
        word = np.ascontiguousarray(chunk[:, start : start + 4]).view("<u4").reshape(-1) * _MULTIPLIER
        words.append((word ^ (word >> _ROTATION)) * _MULTIPLIER)
    if not length & 3:
        return words, None
    tail = np.zeros(len(chunk), dtype=np.uint32)
    for position in range(length & ~3, length):
        # Hadoop's Murmur2 puts the last byte lowest (other versions put the first byte there) and takes bytes
        # as signed: a byte above 0x7f flips all higher bits as well.
        signed = chunk[:, position].view(np.int8).astype(np.int32).view(np.uint32)
        tail ^= signed << np.uint32(8 * (length - 1 - position))
    return words, tail


def _murmur(
    words: list[npt.NDArray[np.uint32]],
    tail: npt.NDArray[np.uint32] | None,
    length: int,
    seed: npt.NDArray[np.uint32],
) -> npt.NDArray[np.uint32]:
    state = seed ^ np.uint32(length)
    for word in words:
        state *= _MULTIPLIER
        state ^= word
    if tail is not None:
        state ^= tail
        state *= _MULTIPLIER
    state ^= state >> np.uint32(13)
    state *= _MULTIPLIER
    state ^= state >> np.uint32(15)
    return state


def _rows_of_equal_length(column: BinaryColumn) -> list[npt.NDArray[np.int64]]:
    """Row numbers, grouped by the keys' length: lengths 3, 1, 3 give [1] and [0, 2]."""
    lengths = column.lengths()
    order = np.argsort(lengths, kind="stable")
    ends = np.flatnonzero(np.diff(lengths[order])) + 1
    chunks = []
    for rows in np.split(order, ends):
        width = max(int(lengths[rows[0]]), 1) if len(rows) else 1
        step = max(_BYTES_PER_CHUNK_MAX // width, 1)
        chunks += [rows[start : start + step] for start in range(0, len(rows), step)]
    return chunks


def _chunks_of_equal_length(column: BinaryColumn) -> list[npt.NDArray[np.uint8]]:
    """The keys as byte matrices of at most 8 MiB, each with keys of one length.

    With equal lengths every hash step works on whole columns. "ab" and "cd" at offsets 0 and 2 are gathered
    by the index matrix [[0, 1], [2, 3]].
    """
    lengths = column.lengths()
    return [
        column.data[column.offsets[rows][:, None] + np.arange(lengths[rows[0]])]
        for rows in _rows_of_equal_length(column)
    ]
