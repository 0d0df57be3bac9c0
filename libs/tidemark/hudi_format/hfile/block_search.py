"""Finds the block of a key by the first keys of the blocks, in files sorted in either of two orders.

The format's order is that of the UTF-8 bytes, and this library writes it. Hudi 1.2.0 on Spark sorts keys as
Java strings, that is by UTF-16 units, both in log blocks and in compacted base files (seen in
tests/golden/record_index/mor_global). The two orders differ only where a character above U+FFFF is compared
with one from U+E000 to U+FFFF. When they lead to different blocks, neither block alone proves that the key is
absent, and the answer is AMBIGUOUS_BLOCK.

Hudi itself fails on such keys: its reader seeks by UTF-8 bytes among keys that it sorted as Java strings.
Asked for both kinds of characters at once in one shard, Hudi 1.2.0 did not find all keys in a table that
Spark had written, and failed with "backward seekTo" on a table that we had written.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.hudi_format.columnar import BinaryColumn
from tidemark.hudi_format.hfile.word_search import WordSearch

AMBIGUOUS_BLOCK: Final = -2
# UTF-8 characters from U+E000 on (and a few below it) begin with this byte or a higher one: only keys with
# such a byte can sort differently in the two orders.
_FIRST_DOUBTFUL_BYTE: Final = 0xEE


class BlockSearch:
    """Searches among the first keys (UTF-8) of a file's blocks."""

    def __init__(self, first_keys: list[bytes]) -> None:
        self._first_keys = first_keys
        self._doubtful = any(map(sorts_differently, first_keys))
        self._words = None if self._doubtful else WordSearch(first_keys)
        self._first_keys_utf16: list[bytes] | None = None

    def locate(self, keys: pa.Array) -> npt.NDArray[np.int64]:
        """The block number of each key; -1 for a key before all blocks; AMBIGUOUS_BLOCK where the orders
        differ.
        """
        by_utf8, by_utf16 = self.candidates(keys)
        return np.where(by_utf8 == by_utf16, by_utf8, AMBIGUOUS_BLOCK)

    def candidates(self, keys: pa.Array) -> npt.NDArray[np.int64]:
        """A (2, n) array: the block number of each key under UTF-8 order and under UTF-16 order."""
        column = BinaryColumn.from_arrow(keys)
        if self._words is not None and not (column.data >= _FIRST_DOUBTFUL_BYTE).any():
            found = self._words.right(column) - 1
            return np.stack([found, found])
        wanted = keys.cast(pa.binary()).to_pylist()
        return np.stack([_last_at_most(self._first_keys, wanted), _last_at_most(*self._utf16(wanted))])

    def _utf16(self, wanted: list[bytes]) -> tuple[list[bytes], list[bytes]]:
        if self._first_keys_utf16 is None:
            self._first_keys_utf16 = [_utf16(key) for key in self._first_keys]
        return self._first_keys_utf16, [_utf16(key) for key in wanted]


def sorts_differently(key: bytes) -> bool:
    """Whether this key can have another place among other keys by UTF-16 than by UTF-8."""
    return max(key, default=0) >= _FIRST_DOUBTFUL_BYTE


def _utf16(key: bytes) -> bytes:
    return key.decode("utf-8", "surrogatepass").encode("utf-16-be", "surrogatepass")


def _last_at_most(ordered: list[bytes], wanted: list[bytes]) -> npt.NDArray[np.int64]:
    """For each wanted key the position of the last of ``ordered`` that is at most it, -1 where none is."""
    return np.fromiter((bisect_right(ordered, key) - 1 for key in wanted), np.int64, len(wanted))
