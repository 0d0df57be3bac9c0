"""Moves the entries of a committed epoch from memory to RocksDB.

1. Each shard's entries are written in one batch with the shard's new stamp.
2. Memory forgets them.

If the lane was opened with a snapshot that shows this commit and later ones, RocksDB has newer entries
already: then only tombstones are written.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidemark.hudi_format.model import ShardId
from tidemark.index_assigner.domain.reduce import BoolArray
from tidemark.index_assigner.index.held_lane import HeldLane
from tidemark.index_assigner.index.hot_cache import HOT, HotCache
from tidemark.index_assigner.index.limits import IndexLimits
from tidemark.index_assigner.index.open_shard import OpenShard
from tidemark.index_assigner.index.rocks import Puts, RocksTier
from tidemark.index_assigner.index.rocks_layout import ENTRY, TOMBSTONE
from tidemark.index_assigner.index.run_tier import RunTier
from tidemark.index_assigner.index.shard_records import stored_shards
from tidemark.index_assigner.index.shards import ShardStore
from tidemark.index_assigner.index.tombstones import TombstoneStore
from tidemark.index_assigner.index.uncommitted import SlotArray
from tidemark.index_assigner.runs.entries import EXACT, HAS_ORDERING


class Promotion:
    """Promotes lanes, and keeps the cache folder to `state.disk`."""

    def __init__(
        self,
        rocks: RocksTier,
        store: ShardStore,
        hot: HotCache,
        tombstones: TombstoneStore,
        runs: RunTier,
        limits: IndexLimits,
    ) -> None:
        self._rocks, self._store, self._hot = rocks, store, hot
        self._tombstones, self._runs, self._limits = tombstones, runs, limits

    def promote(self, held: HeldLane, through: int, completion: str | None) -> None:
        """Promotes one lane's entries up to ledger offset ``through``.

        ``completion``: of the epoch's data commit; None for an epoch without rows, which changes no stamp.
        """
        entries, shown = held.entries, held.shown.times
        passed = completion in shown and max(shown) > str(completion)
        end, position = entries.through(through)
        keys, rows = entries.newest_below(end)
        # Sorted by shard, each shard's entries are one range, found by binary search: shards [4, 2, 4] have
        # the order [1, 0, 2]; shard 4 is the range [1, 3) of it, the entries 0 and 2.
        order = np.argsort(rows["shard"], kind="stable")
        of_shard = rows["shard"][order]
        for number, shard in held.shards.items():
            first, last = np.searchsorted(of_shard, [number, number + 1]).tolist()
            members = order[first:last]
            shard_keys = keys.take(pa.array(members)).to_pylist()
            self._promote_shard(shard, shard_keys, rows[members], completion, passed)
        if position is not None:
            self._rocks.write([self._tombstones.position_put(held.number, position)])
        entries.discard_through(through)

    def _promote_shard(
        self, shard: OpenShard, keys: list[bytes], rows: SlotArray, completion: str | None, passed: bool
    ) -> None:
        extra = self._tombstone_puts(keys, rows)
        if passed:
            self._hot.remove(keys)
            if extra:
                self._rocks.write(extra)
            return
        if not keys and shard.stamp == (completion or shard.stamp):
            return
        present = rows["location"] >= 0
        values = np.zeros(len(rows), ENTRY)
        values["location"] = rows["location"]
        values["ordering"] = np.where(present, rows["ordering"], 0)
        flags = HAS_ORDERING * rows["has_ordering"] + EXACT * (rows["has_ordering"] & rows["exact"])
        values["flags"] = np.where(present, flags, 0)
        self._store.promote(shard, keys, values, completion or shard.stamp, extra)
        self._to_hot(keys, rows, present)

    def _to_hot(self, keys: list[bytes], rows: SlotArray, present: BoolArray) -> None:
        kept = np.flatnonzero(present)
        hot = np.empty(len(kept), HOT)
        for name in HOT.names or ():
            hot[name] = rows[name][kept]
        self._hot.put([keys[position] for position in kept.tolist()], hot)
        self._hot.remove(keys[position] for position in np.flatnonzero(~present).tolist())

    def _tombstone_puts(self, keys: list[bytes], rows: SlotArray) -> Puts:
        dead = np.flatnonzero((rows["location"] < 0) & rows["has_ordering"])
        if not dead.size:
            return []
        tombstones = np.zeros(len(dead), TOMBSTONE)
        tombstones["ordering"] = rows["ordering"][dead]
        tombstones["expires_ms"] = rows["expires_ms"][dead]
        tombstones["location"] = rows["deleted_from"][dead]
        return [self._tombstones.merged([keys[position] for position in dead.tolist()], tombstones)]

    def fits(self) -> bool:
        """Whether RocksDB and the run files are within `state.disk`."""
        return self._rocks.disk_bytes() + self._runs.disk_bytes <= self._limits.disk_bytes

    def make_room(self, held: set[ShardId]) -> bool:
        """Deletes run files, those used least lately first, then shards that are not open here, until all
        fits; returns False when it still does not.
        """
        while not self.fits():
            if not self._runs.evict():
                return self._drop_foreign_shards(held)
        return True

    def _drop_foreign_shards(self, held: set[ShardId]) -> bool:
        for number in stored_shards(self._rocks):
            if number not in held:
                self._store.drop(number)
                if self.fits():
                    return True
        return False
