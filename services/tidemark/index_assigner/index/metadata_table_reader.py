"""The lowest tier: keys are looked up in the record index's base files, by whole blocks.

Of the blocks that a lookup reads it takes some over into RocksDB; the rest stays decoded in memory, the least
recently used given up first, for the next lookups to take over: so no lookup waits for all of them. Where
`state.disk` has no room for more blocks they are only kept in memory: slower, never wrong.
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

# The smaller, the earlier the answer; but what memory cannot hold meanwhile is read again by later lookups.
_TAKEN_OVER_SHARE: Final = 1 / 4
# Of the dictionaries here.
_BYTES_PER_BLOCK: Final = 200

_Block = tuple[str, int]  # base file (name and mark), number


class TakeOver:
    """What one lookup may still take over into RocksDB: some entries, or more when it had to read many."""

    def __init__(self, entries_min: int) -> None:
        self._min = entries_min
        self._read = self._taken = 0

    def read(self, entries: int) -> None:
        """So many entries were read from files."""
        self._read += entries

    def take(self, entries: int) -> bool:
        """Whether so many more may be taken over; if so they count as taken."""
        if self._taken >= max(self._min, self._read * _TAKEN_OVER_SHARE):
            return False
        self._taken += entries
        return True


class MetadataTableReader:
    """Answers for keys that RocksDB has no entry for."""

    def __init__(self, store: ShardStore, cache_bytes_max: int) -> None:
        self._store = store
        self._bytes_max = cache_bytes_max
        self._bytes = 0
        # Blocks that were decoded together stay together, under the first of them.
        self._kept: OrderedDict[_Block, BlockEntries] = OrderedDict()
        self._first_of: dict[_Block, _Block] = {}

    @property
    def nbytes(self) -> int:
        """Memory held by decoded blocks; at most the limit."""
        return self._bytes

    def locate(self, shard: OpenShard, keys: pa.StringArray, take_over: TakeOver | None) -> Int32Array:
        """The location of each key by the base file, NO_LOCATION where it is absent.

        ``take_over``: None where blocks may not be stored. Raises FileMissingError when the base file was
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
        firsts = {self._first_of[name, each] for each in numbers if (name, each) in self._first_of}
        unread = [each for each in numbers if (name, each) not in self._first_of]
        kept = [self._kept[first] for first in sorted(firsts)]
        for blocks in chain(kept, self._read(shard, unread, take_over)):
            _match(blocks, keys, located)
            first = (name, blocks.numbers[0])
            if take_over is not None and take_over.take(len(blocks)):
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
    at = pc.fill_null(pc.index_in(blocks.keys, value_set=keys), -1).to_numpy(zero_copy_only=False)
    found = np.flatnonzero(at >= 0)
    located[at[found]] = blocks.locations[found]


def _nbytes(blocks: BlockEntries) -> int:
    return blocks.nbytes + len(blocks.numbers) * _BYTES_PER_BLOCK
