"""The lowest tier: looks keys up in the record index's base files, by whole blocks.

A lookup stores only some of the blocks that it read in RocksDB, so that no lookup waits for all of them.
The others stay decoded in memory, and later lookups store them; the blocks used least recently are dropped
first. When `state.disk` has no room for more blocks, they are only kept in memory: lookups are slower, but
answers are the same.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from itertools import chain
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.index_assigner.domain.locations import NO_LOCATION, Int32Array
from tidemark.index_assigner.index.shards import BlockEntries, OpenShard, ShardStore

# Share of the entries read that one lookup stores. A smaller one makes that lookup faster, but blocks for
# which memory has no room are read again by later lookups.
_TAKEN_OVER_SHARE: Final = 1 / 4
# Memory of the dictionaries here.
_BYTES_PER_BLOCK: Final = 200

_Block = tuple[str, int]  # base file (name and mark), number


class TakeOver:
    """How many entries one lookup may still store in RocksDB: ``entries_min``, or a quarter of those it
    read.
    """

    def __init__(self, entries_min: int) -> None:
        self._min = entries_min
        self._read = self._taken = 0

    def read(self, entries: int) -> None:
        """Counts entries that were read from files."""
        self._read += entries

    def try_take(self, entries: int) -> bool:
        """Counts a block's entries as stored and returns True; returns False, and counts nothing, once the
        lookup has stored all that it may.
        """
        if self._taken >= max(self._min, self._read * _TAKEN_OVER_SHARE):
            return False
        self._taken += entries
        return True


class MetadataTableReader:
    """Looks up keys for which RocksDB has no entry, with a cache of decoded blocks."""

    def __init__(self, store: ShardStore, cache_bytes_max: int) -> None:
        self._store = store
        self._bytes_max = cache_bytes_max
        self._bytes = 0
        # Blocks that were decoded together are kept together, under the first one's number.
        self._kept: OrderedDict[_Block, BlockEntries] = OrderedDict()
        self._first_of: dict[_Block, _Block] = {}

    @property
    def nbytes(self) -> int:
        """Memory held by decoded blocks, in bytes; at most the limit."""
        return self._bytes

    def locate(self, shard: OpenShard, keys: pa.StringArray, take_over: TakeOver | None) -> Int32Array:
        """The location of each key in the base file, NO_LOCATION where it has none.

        ``take_over``: None where no block may be stored. Raises FileMissingError when the base file was
        cleaned away.
        """
        located = np.full(len(keys), NO_LOCATION, np.int32)
        base = shard.snapshot.base
        if base is None:
            return located
        name = f"{shard.snapshot.base_name} {shard.snapshot.base_mark}"
        candidates = base.candidate_blocks(keys)
        wanted = np.unique(candidates[candidates >= 0])
        numbers = wanted[~shard.covered[wanted]].tolist()
        firsts = {self._first_of[name, block] for block in numbers if (name, block) in self._first_of}
        unread = [block for block in numbers if (name, block) not in self._first_of]
        kept = [self._kept[first] for first in sorted(firsts)]
        for blocks in chain(kept, self._read(shard, unread, take_over)):
            _match(blocks, keys, located)
            first = (name, blocks.numbers[0])
            if take_over is not None and take_over.try_take(len(blocks)):
                self._store.take_over_blocks(shard, blocks)
                self._forget(first)
            else:
                self._keep(first, blocks)
        return located

    def _read(
        self, shard: OpenShard, numbers: list[int], take_over: TakeOver | None
    ) -> Iterator[BlockEntries]:
        for blocks in self._store.read_blocks(shard, numbers):
            if take_over is not None:
                take_over.read(len(blocks))
            yield blocks

    def _keep(self, first: _Block, blocks: BlockEntries) -> None:
        if first not in self._kept:
            self._kept[first] = blocks
            self._first_of.update(((first[0], number), first) for number in blocks.numbers)
            self._bytes += _nbytes(blocks)
        self._kept.move_to_end(first)
        while self._bytes > self._bytes_max and self._kept:
            self._forget(next(iter(self._kept)))

    def _forget(self, first: _Block) -> None:
        blocks = self._kept.pop(first, None)
        if blocks is not None:
            self._bytes -= _nbytes(blocks)
            for number in blocks.numbers:
                del self._first_of[first[0], number]


def _match(blocks: BlockEntries, keys: pa.StringArray, located: Int32Array) -> None:
    # For each entry of the block its position among the keys, -1 where it is not asked for: entries a, b, c
    # and keys c, a give [1, -1, 0], so entry 0 answers key 1, and entry 2 answers key 0.
    at = pc.fill_null(pc.index_in(blocks.keys, value_set=keys), -1).to_numpy(zero_copy_only=False)
    hits = np.flatnonzero(at >= 0)
    located[at[hits]] = blocks.locations[hits]


def _nbytes(blocks: BlockEntries) -> int:
    return blocks.nbytes + len(blocks.numbers) * _BYTES_PER_BLOCK
