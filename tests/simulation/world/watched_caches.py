"""What the assigners' caches did in a world, seen at the product's own code: a setup that is meant to lead to
something is no proof that it did.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch
from weakref import WeakKeyDictionary

from tidemark.index_assigner.index.hot_cache import HotCache
from tidemark.index_assigner.index.open_shard import OpenShard
from tidemark.index_assigner.index.partitioned import PartitionedIndex
from tidemark.index_assigner.index.ports import Tier
from tidemark.index_assigner.index.run_tier import RunTier
from tidemark.index_assigner.index.tier_reads import TierReads


class WatchedCaches:
    """Counts in ``reached``."""

    def __init__(self, reached: Counter[str]) -> None:
        self._reached = reached
        self._evicted: WeakKeyDictionary[HotCache, set[bytes]] = WeakKeyDictionary()

    def patches(self) -> Iterator[AbstractContextManager[object]]:
        """In place while the world runs."""
        watched: tuple[tuple[type, str, Callable[..., Callable[..., Any]]], ...] = (
            (HotCache, "_evict", self._evict),
            (TierReads, "rocksdb", self._rocksdb),
            (RunTier, "find", self._find),
            (RunTier, "was_read", self._was_read),
            (PartitionedIndex, "_opened_units", self._opened_units),
        )
        for owner, name, watch in watched:
            yield patch.object(owner, name, watch(getattr(owner, name)))

    def _evict(self, real: Callable[[HotCache], None]) -> Callable[[HotCache], None]:
        def evict(cache: HotCache) -> None:
            before = set(cache._slots)
            real(cache)
            gone = before - cache._slots.keys()
            if gone:
                self._reached["hot eviction"] += 1
                self._evicted.setdefault(cache, set()).update(gone)

        return evict

    def _rocksdb(self, real: Callable[..., None]) -> Callable[..., None]:
        def rocksdb(
            reads: TierReads, held: Mapping[int, OpenShard], keys: list[bytes], shards: Any, columns: Any
        ) -> None:
            asked = columns.open
            real(reads, held, keys, shards, columns)
            evicted = self._evicted.get(reads._hot)
            if not evicted:
                return
            there = (columns.tier[asked] == Tier.ROCKSDB) & (columns.location[asked] >= 0)
            found = evicted.intersection(keys[each] for each in asked[there].tolist())
            if found:
                self._reached["RocksDB read after an eviction"] += 1
                evicted -= found

        return rocksdb

    def _find(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def find(runs: RunTier, number: int, keys: Any) -> Any:
            found = real(runs, number, keys)
            if found is not None:
                self._reached["answered by a run file"] += 1
            return found

        return find

    def _opened_units(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def opened_units(index: PartitionedIndex, *asked: Any) -> Any:
            before = set(index._open)
            numbers = real(index, *asked)
            if before - index._open.keys():
                self._reached["part of the index closed by least use"] += 1
            return numbers

        return opened_units

    def _was_read(self, real: Callable[..., None]) -> Callable[..., None]:
        def was_read(runs: RunTier, shard: OpenShard, keys: Any, blocks: int) -> None:
            if blocks and shard.snapshot.block_count > 1:
                self._reached["index base of several blocks"] += 1
                if blocks < shard.snapshot.block_count:
                    self._reached["index base read in part"] += 1
            real(runs, shard, keys, blocks)

        return was_read
