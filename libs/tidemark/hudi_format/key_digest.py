"""The digest of a set of record keys: their number and the sum of their hashes.

Two different sets have the same digest with a probability of about 2**-64. A digest can be updated by keys
that come and go, without reading the others, and those of disjoint sets add up. It protects against
accidents, and not against somebody who searches for collisions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.hudi_format.columnar import BinaryColumn

Hashes: TypeAlias = npt.NDArray[np.uint64]
Digest: TypeAlias = tuple[int, int]
"""Number of keys, sum of their hashes modulo 2**64."""

EMPTY: Final[Digest] = (0, 0)
DIGESTS_KEY: Final = "tidemark.digests"
"""In the extra metadata of a compaction's commit: what it says of the keys that it wrote (`digests_text`)."""
MODULUS: Final = 2**64
_FACTOR: Final = 0x5851F42D4C957F2D
_INVERSE: Final = pow(_FACTOR, -1, 2**64)
_LENGTH_FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)
_CHUNK_BYTES: Final = 1 << 16


def key_digest(keys: pa.Array | pa.ChunkedArray) -> Digest:
    """The digest of these keys; none occurs twice."""
    return len(keys), int(key_hashes(keys).sum(dtype=np.uint64))


def added(first: Digest, second: Digest) -> Digest:
    """The digest of both sets together, which have no key in common."""
    return first[0] + second[0], (first[1] + second[1]) % MODULUS


def digests_text(digests: Mapping[str, Digest]) -> str:
    """File id -> digest as JSON: the value of `DIGESTS_KEY`."""
    return json.dumps({file_id: list(digest) for file_id, digest in sorted(digests.items())})


def parse_digests(text: str) -> dict[str, Digest]:
    """The inverse of `digests_text`; empty for a text that is none: other versions may write others."""
    try:
        return {file_id: (int(count), int(total)) for file_id, (count, total) in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def key_hashes(keys: pa.Array | pa.ChunkedArray) -> Hashes:
    """A 64-bit hash of each key's UTF-8 bytes: a polynomial of the bytes, which is then mixed.

    The polynomials of all keys come from one running sum, as in `record_index_hash`. They are mixed because
    a sum of polynomials is the same for the keys {a1, b2} and {a2, b1}.
    """
    # Keys are hashed in chunks of about 64 KiB, so that the tables of powers stay small.
    column = BinaryColumn.from_keys(keys)
    offsets = column.offsets
    hashes = np.empty(len(column), np.uint64)
    first = 0
    while first < len(column):
        last = int(np.searchsorted(offsets, offsets[first] + _CHUNK_BYTES, side="right")) - 1
        last = max(last, first + 1)
        begin, end = int(offsets[first]), int(offsets[last])
        hashes[first:last] = _polynomials(column.data[begin:end], offsets[first : last + 1] - begin)
        first = last
    return _mixed(hashes + column.lengths().astype(np.uint64) * _LENGTH_FACTOR)


def _polynomials(data: npt.NDArray[Any], bounds: npt.NDArray[np.int64]) -> Hashes:
    """Per key the sum of (byte + 1) * factor**(distance from the key's end), modulo 2**64.

    ``bounds``: where each key begins in ``data``, and where the last one ends. Byte i of the data is
    weighted with factor**-i, and one running sum is made of all; the difference of the sum at a key's end
    and begin, times factor**(end - 1), is the key's polynomial. Example: keys "ab" and "c" have the bounds
    [0, 2, 3]. The difference for "ab" is a' + b'/f, times f**1: a'f + b', where x' is byte + 1 and f the
    factor.
    """
    size = max(_CHUNK_BYTES, 1 << int(data.size).bit_length())
    running = np.zeros(data.size + 1, np.uint64)
    weighted = (data.astype(np.uint64) + np.uint64(1)) * _powers(_INVERSE, size)[: data.size]
    np.cumsum(weighted, dtype=np.uint64, out=running[1:])
    ends = bounds[1:]
    # An empty key has a zero difference, whatever power (index -1 or any other) is picked for it.
    hashes: Hashes = (running[ends] - running[bounds[:-1]]) * _powers(_FACTOR, size)[ends - 1]
    return hashes


def _mixed(values: Hashes) -> Hashes:
    """The finaliser of SplitMix64: every bit of the input influences every bit of the output."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Hashes = values ^ (values >> np.uint64(31))
    return mixed


@lru_cache(maxsize=8)
def _powers(base: int, size: int) -> Hashes:
    factors = np.full(size, base, dtype=np.uint64)
    factors[0] = 1
    table: Hashes = np.cumprod(factors, dtype=np.uint64)
    return table
