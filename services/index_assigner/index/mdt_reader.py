"""The lowest tier: blocks of the record index base files, taken over into RocksDB or kept in memory.

Where `state.disk` has no room for more blocks they are answered from a cache of decoded blocks, the least
recently used given up first: slower, never wrong.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hudi_format.metadata_table import RecordIndexEntries
from index_assigner.domain.locations import NO_LOCATION, Int32Array
from index_assigner.domain.reduce import Int64Array
from index_assigner.index.shards import OpenShard, ShardStore


class MdtReader:
    """Answers for keys that RocksDB has no entry for."""

    def __init__(self, store: ShardStore, cache_bytes_max: int) -> None:
        self._store = store
        self._bytes_max = cache_bytes_max
        self._bytes = 0
        self._blocks: OrderedDict[tuple[str, int], RecordIndexEntries] = OrderedDict()

    @property
    def nbytes(self) -> int:
        """Memory held by decoded blocks; at most the limit."""
        return self._bytes

    def locate(self, shard: OpenShard, keys: pa.StringArray, has_room: bool) -> Int32Array:
        """The location of each key by the base file, NO_LOCATION where it is absent.

        ``has_room``: blocks may be stored. Raises FileMissingError when the base file was cleaned away.
        """
        located = np.full(len(keys), NO_LOCATION, np.int32)
        base = shard.snapshot.base
        if base is None:
            return located
        candidates = base.candidate_blocks(keys)
        wanted = np.unique(candidates[candidates >= 0])
        wanted = wanted[~shard.covered[wanted]]
        if not wanted.size:
            return located
        if has_room:
            for entries in self._store.take_blocks(shard, wanted.tolist()):
                self._match(entries, keys, located)
        else:
            for number in wanted.tolist():
                self._match(self._cached(shard, number), keys, located)
        return located

    def _match(self, entries: RecordIndexEntries, keys: pa.StringArray, located: Int32Array) -> None:
        at: Int64Array = np.asarray(pc.fill_null(pc.index_in(entries.keys, value_set=keys), -1)).astype(
            np.int64
        )
        found = np.flatnonzero(at >= 0)
        if found.size:
            located[at[found]] = self._store.local_ids(entries.take(found))

    def _cached(self, shard: OpenShard, number: int) -> RecordIndexEntries:
        name = (shard.snapshot.base_name or "", number)
        held = self._blocks.get(name)
        if held is not None:
            self._blocks.move_to_end(name)
            return held
        [entries] = self._store.read_blocks(shard, [number])
        self._blocks[name] = entries
        self._bytes += entries.nbytes
        while self._bytes > self._bytes_max and self._blocks:
            _, dropped = self._blocks.popitem(last=False)
            self._bytes -= dropped.nbytes
        return entries
