"""After a commit: its entries go from memory to RocksDB, each shard's in one batch with its new stamp.

First RocksDB shows them, then memory forgets them. A lane that was opened with a snapshot that shows the
commit and later ones keeps what it has; only tombstones are written then.
"""

from __future__ import annotations

import numpy as np

from tidemark.hudi_format.model import ShardId
from tidemark.index_assigner.domain.reduce import BoolArray
from tidemark.index_assigner.index.held_lane import HeldLane
from tidemark.index_assigner.index.hot_cache import HOT, HotCache
from tidemark.index_assigner.index.limits import IndexLimits
from tidemark.index_assigner.index.rocks import Puts, RocksTier
from tidemark.index_assigner.index.rocks_layout import ENTRY, EXACT, HAS_ORDERING, TOMBSTONE
from tidemark.index_assigner.index.shards import OpenShard, ShardStore
from tidemark.index_assigner.index.tombstones import TombstoneStore
from tidemark.index_assigner.index.uncommitted import SlotArray


class Promotion:
    """See the module; also keeps the RocksDB folder to `state.disk`."""

    def __init__(
        self,
        rocks: RocksTier,
        store: ShardStore,
        hot: HotCache,
        tombstones: TombstoneStore,
        limits: IndexLimits,
    ) -> None:
        self._rocks, self._store, self._hot = rocks, store, hot
        self._tombstones, self._limits = tombstones, limits

    def promote(self, held: HeldLane, through: int, completion: str | None) -> None:
        """One lane's part. `completion` None: an epoch without rows, the stamps stay."""
        entries, shown = held.entries, held.shown.times
        passed = completion in shown and max(shown) > str(completion)
        end, position = entries.through(through)
        keys, rows = entries.newest_below(end)
        order = np.argsort(rows["shard"], kind="stable")
        of_shard = rows["shard"][order]
        for number, shard in held.shards.items():
            first, last = np.searchsorted(of_shard, [number, number + 1]).tolist()
            members = order[first:last]
            found = [keys[each] for each in members.tolist()]
            self._promote_shard(shard, found, rows[members], completion, passed)
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
        self._hot.put([keys[each] for each in kept.tolist()], hot)
        self._hot.remove(keys[each] for each in np.flatnonzero(~present).tolist())

    def _tombstone_puts(self, keys: list[bytes], rows: SlotArray) -> Puts:
        dead = np.flatnonzero((rows["location"] < 0) & rows["has_ordering"])
        if not dead.size:
            return []
        tombstones = np.zeros(len(dead), TOMBSTONE)
        tombstones["ordering"] = rows["ordering"][dead]
        tombstones["expires_ms"] = rows["expires_ms"][dead]
        tombstones["location"] = rows["deleted_from"][dead]
        return [self._tombstones.merged([keys[each] for each in dead.tolist()], tombstones)]

    def fits(self) -> bool:
        """Whether the folder is within `state.disk`."""
        return self._rocks.disk_bytes() <= self._limits.disk_bytes

    def drop_foreign_shards(self, held: set[ShardId]) -> bool:
        """Drops shards that are not open here until the folder fits; False when it still does not."""
        if self.fits():
            return True
        for number in self._store.stored_shards():
            if number not in held:
                self._store.drop(number)
                if self.fits():
                    return True
        return False
