"""Which key ranges of the record index are worth their place on the disk, when not all have one.

A shard's keys are divided into ranges of some thousand neighbouring ones, and it is counted how many of the
keys that look-ups ask for lie in each. Counts only decide what is copied into run files and what leaves them;
no answer depends on them. So they need not be exact: a block that reaches over a bound counts for one range.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.hudi_format.hfile.block_search import BlockSearch
from tidemark.hudi_format.model import ShardId
from tidemark.index_assigner.domain.reduce import BoolArray, Int64Array

_BLOCKS_PER_RANGE: Final = 32
# A range takes another one's place when it is used more than twice as much, and by more keys than chance
# gives: with uniform keys nothing ever moves.
_TIMES_AS_MUCH: Final = 2
_MORE_KEYS: Final = 32

FloatArray = npt.NDArray[np.float64]


class KeyRanges:
    """The ranges of one shard. ``uses``: keys that were asked of each, older ones counted less."""

    def __init__(self, first_keys: Sequence[bytes]) -> None:
        """``first_keys``: of the blocks of one base file, at least one."""
        self.blocks = len(first_keys)
        bounds = list(first_keys[::_BLOCKS_PER_RANGE])
        self._search = BlockSearch(bounds)
        self.uses: FloatArray = np.zeros(len(bounds))

    def __len__(self) -> int:
        return len(self.uses)

    def of(self, keys: pa.Array) -> Int64Array:
        """The range of each key."""
        ranges: Int64Array = np.maximum(self._search.candidates(keys)[0], 0)
        return ranges

    def used(self, ranges: Int64Array) -> None:
        """Counts a key of each of these ranges."""
        self.uses += np.bincount(ranges, minlength=len(self))


@dataclass(frozen=True, slots=True)
class RangeTable:
    """n ranges of several shards, one a row. ``sizes``: bytes that each takes, or would take, in a run file.
    ``held``: whether it is in one.
    """

    shards: Int64Array
    ranges: Int64Array
    uses: FloatArray
    sizes: FloatArray
    held: BoolArray

    @classmethod
    def of(cls, parts: Iterable[tuple[ShardId, FloatArray, FloatArray, BoolArray]]) -> RangeTable:
        """The table of these shards: number, and uses, sizes, held of their ranges in order."""
        nothing = np.empty(0)
        numbers = nothing.astype(np.int64)
        columns = [(numbers, numbers, nothing, nothing, nothing.astype(np.bool_))]
        for number, uses, sizes, held in parts:
            columns.append((np.full(len(uses), number), np.arange(len(uses)), uses.copy(), sizes, held))
        return cls(*map(np.concatenate, zip(*columns, strict=True)))

    def worth_a_place(self, room: float) -> BoolArray:
        """The ranges that should be in run files which may take so many bytes: those that are used most."""
        order = np.argsort(-self._value(), kind="stable")
        worth = np.zeros(len(order), np.bool_)
        worth[order[np.cumsum(self.sizes[order]) <= room]] = True
        return worth

    def least_used(self, among: BoolArray, size: float) -> Int64Array:
        """The rows, least used first, of held ranges ``among`` which take ``size`` bytes together, or all."""
        rows = np.flatnonzero(among & self.held)
        rows = rows[np.argsort(self._value()[rows], kind="stable")]
        count = int(np.searchsorted(np.cumsum(self.sizes[rows]), size)) + 1
        return rows[:count]

    def _value(self) -> FloatArray:
        """Uses for each byte; a range that is in a file counts for more than another."""
        uses = np.where(self.held, self.uses * _TIMES_AS_MUCH + _MORE_KEYS, self.uses)
        value: FloatArray = uses / np.maximum(self.sizes, 1)
        return value
