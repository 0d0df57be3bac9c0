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
from collections.abc import Sequence
from itertools import takewhile
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.hudi_format.columnar import BinaryColumn

AMBIGUOUS_BLOCK: Final = -2
# UTF-8 characters from U+E000 on (and a few below it) begin with this byte or a higher one: only keys with
# such a byte can sort differently in the two orders.
_FIRST_DOUBTFUL_BYTE: Final = 0xEE
_WORD: Final = 8

Int64Array = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint64]


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


class WordSearch:
    """Searches among byte strings that ascend, as Python compares them, for a whole column of keys.

    Sorted keys begin alike, so their common prefix is compared first, and the eight bytes behind it decide
    among them as one number. Where these eight are equal to some of the strings', the bytes that follow are
    compared key by key.

    Example: among "order-10", "order-25" and "order-31" the common prefix is "order-". "order-27" has it, and
    its "27" is above "25" and below "31", so it belongs behind the second string. "orange" is below the
    prefix, so it belongs before all of them.
    """

    def __init__(self, strings: Sequence[bytes]) -> None:
        self._strings = strings
        self._prefix = _common_prefix(strings[0], strings[-1]) if strings else b""
        rest = [string[len(self._prefix) :][:_WORD].ljust(_WORD, b"\0") for string in strings]
        self._words = np.frombuffer(b"".join(rest), ">u8").astype(np.uint64)

    def right(self, keys: BinaryColumn) -> Int64Array:
        """How many strings are at most the key, for each key."""
        # Eight bytes more, so that a whole word can be read at every byte of the keys.
        data = np.concatenate([keys.data, np.zeros(_WORD, np.uint8)])
        starts, lengths = keys.offsets[:-1], keys.lengths()
        order = self._against_prefix(data, starts, lengths)
        found = np.where(order < 0, 0, len(self._strings)).astype(np.int64)
        within = np.flatnonzero(order == 0)
        skipped = len(self._prefix)
        words = _words(data, starts[within] + skipped, lengths[within] - skipped)
        # Of the strings' words 10, 25, 25, 31 the word 25 is equal to those from 1 to 3, and 27 to none: from
        # 3 to 3.
        first = np.searchsorted(self._words, words, side="left")
        end = np.searchsorted(self._words, words, side="right")
        found[within] = end
        # Equal words decide nothing: a string may go on behind them, and zeros stand for missing bytes.
        for at in np.flatnonzero(first < end).tolist():
            position = within[at]
            key = data[starts[position] : starts[position] + lengths[position]].tobytes()
            found[position] = bisect_right(self._strings, key, int(first[at]), int(end[at]))
        return found

    def _against_prefix(
        self, data: npt.NDArray[np.uint8], starts: Int64Array, lengths: Int64Array
    ) -> Int64Array:
        """-1, 0 or 1 for each key: below all that begin with the prefix, one of them, or above them."""
        order = np.zeros(len(starts), np.int64)
        for begin in range(0, len(self._prefix), _WORD):
            part = self._prefix[begin : begin + _WORD]
            wanted = np.uint64(int.from_bytes(part.ljust(_WORD, b"\0"), "big"))
            words = _words(data, starts + begin, np.minimum(lengths - begin, len(part)))
            order = np.where(order == 0, (words > wanted).astype(np.int64) - (words < wanted), order)
        # A shorter key is below, also where the prefix goes on with zeros.
        return np.where((order == 0) & (lengths < len(self._prefix)), -1, order)


def _common_prefix(first: bytes, last: bytes) -> bytes:
    """What both begin with; among sorted strings all others begin so, too."""
    return first[: sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False)))]


def _words(data: npt.NDArray[np.uint8], starts: Int64Array, lengths: Int64Array) -> _Words:
    """The first eight bytes of each string as a number, zeros where it is shorter. ``data`` has eight bytes
    behind its last string.
    """
    # A view whose elements overlap: "abcdefghi" has the words "abcdefgh" and "bcdefghi". Nothing is copied.
    at_every_byte: npt.NDArray[np.uint64] = np.ndarray(
        (max(len(data) - _WORD + 1, 0),), ">u8", data, strides=(1,)
    )
    missing = ((_WORD - np.clip(lengths, 0, _WORD)) * 8).astype(np.uint64)
    inside = np.where(lengths > 0, starts, 0)
    words = at_every_byte[inside].astype(np.uint64)
    # A shift by all 64 bits leaves the number as it is, so a string without bytes is zero by itself.
    return np.where(missing < 64, words >> missing << missing, np.uint64(0))
