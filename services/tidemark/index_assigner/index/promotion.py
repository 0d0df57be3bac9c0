"""Moves the entries of a committed epoch from memory to RocksDB.

1. Each shard's entries are written in one batch with the shard's new stamp, if they fit into one
   (`RocksTier.write_in_parts`). They get into it a part at a time.
2. Memory forgets them.

If the lane was opened with a snapshot that shows this commit and later ones, RocksDB has newer entries
already: then only tombstones are written.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tidemark.hudi_format.model import ShardId
from tidemark.index_assigner.domain.locations import Int32Array
from tidemark.index_assigner.domain.reduce import Int64Array
from tidemark.index_assigner.index.held_lane import HeldLane
from tidemark.index_assigner.index.hot_cache import HOT, HotCache
from tidemark.index_assigner.index.open_shard import OpenShard
from tidemark.index_assigner.index.rocks import Put, RocksTier
from tidemark.index_assigner.index.rocks_layout import ENTRY, TOMBSTONE, EntryArray
from tidemark.index_assigner.index.run_tier import RunTier
from tidemark.index_assigner.index.shard_records import stored_shards
from tidemark.index_assigner.index.shards import ShardStore
from tidemark.index_assigner.index.tombstones import TombstoneStore
from tidemark.index_assigner.index.uncommitted import LaneEntries, SlotArray
from tidemark.index_assigner.runs.entries import EXACT, HAS_ORDERING

_log = logging.getLogger("tidemark.assigner")
# Entries are Python objects for so long as these are written: all at once would take 200 bytes each.
_AT_ONCE: Final = 1 << 14
_KEY_BYTES_AT_ONCE: Final = 1 << 21


class Promotion:
    """Promotes lanes, and keeps the cache folder to `state.disk` and to what the disk has."""

    def __init__(
        self,
        rocks: RocksTier,
        store: ShardStore,
        hot: HotCache,
        tombstones: TombstoneStore,
        runs: RunTier,
    ) -> None:
        self._rocks, self._store, self._hot = rocks, store, hot
        self._tombstones, self._runs = tombstones, runs

    def promote(self, held: HeldLane, through: int, completion: str | None) -> None:
        """Promotes one lane's entries up to ledger offset ``through``.

        ``completion``: of the epoch's data commit; None for an epoch without rows, which changes no stamp.
        """
        entries, shown = held.entries, held.shown.times
        passed = completion in shown and max(shown) > str(completion)
        end, position = entries.through(through)
        slots = entries.newest_below(end)
        # Sorted by shard, each shard's entries are one range, found by binary search: shards [4, 2, 4] have
        # the order [1, 0, 2]; shard 4 is the range [1, 3) of it, the entries 0 and 2.
        of_shard = entries.shards(slots)
        order = np.argsort(of_shard, kind="stable")
        of_shard = of_shard[order]
        for number, shard in held.shards.items():
            first, last = np.searchsorted(of_shard, [number, number + 1]).tolist()
            self._promote_shard(shard, Chosen(entries, slots[order[first:last]]), completion, passed)
        self.note_position(held.number, position)
        entries.discard_through(through)

    def note_position(self, lane: int, position: int | None) -> None:
        """Stores up to where RocksDB has the lane's tombstones. None: there are no new ones."""
        if position is not None:
            self._rocks.write([self._tombstones.position_put(lane, position)])

    def _promote_shard(self, shard: OpenShard, chosen: Chosen, completion: str | None, passed: bool) -> None:
        tombstones = self._tombstone_puts(chosen.tombstones())
        if passed:
            for keys, _ in chosen.parts():
                self.forget_hot(keys)
            if len(chosen):
                self._rocks.write_in_parts(tombstones, [], [])
            return
        if not len(chosen) and shard.stamp == (completion or shard.stamp):
            return
        entries = ((keys, entry_values(rows)) for keys, rows in chosen.parts())
        self._store.promote(shard, entries, len(chosen), completion or shard.stamp, tombstones)
        for keys, rows in chosen.parts():
            self.to_hot(keys, rows)

    def write_tombstones(self, dead: Chosen) -> None:
        """Writes the tombstones of these deletes."""
        if len(dead):
            self._rocks.write_in_parts(self._tombstone_puts(dead), [], [])

    def forget_hot(self, keys: list[bytes]) -> None:
        """Takes these keys out of the hot cache."""
        self._hot.remove(keys)

    def to_hot(self, keys: list[bytes], rows: SlotArray, shards: Int32Array | None = None) -> None:
        """Puts present keys into the hot cache, and takes absent ones out. ``shards``: theirs, if rows do not
        name them.
        """
        present = rows["location"] >= 0
        kept = np.flatnonzero(present)
        hot = np.empty(len(kept), HOT)
        for name in HOT.names or ():
            hot[name] = rows[name][kept]
        if shards is not None:
            hot["shard"] = shards[kept]
        self._hot.put([keys[position] for position in kept.tolist()], hot)
        self._hot.remove(keys[position] for position in np.flatnonzero(~present).tolist())

    def _tombstone_puts(self, dead: Chosen) -> Iterator[Put]:
        for keys, rows in dead.parts():
            tombstones = np.zeros(len(rows), TOMBSTONE)
            tombstones["ordering"] = rows["ordering"]
            tombstones["expires_ms"] = rows["expires_ms"]
            tombstones["location"] = rows["deleted_from"]
            yield self._tombstones.merged(keys, tombstones)

    def fits(self) -> bool:
        """Whether RocksDB and the run files are within `state.disk`, and within what the disk has."""
        return self._fits(self._runs.disk.limit())

    def _fits(self, limit: int) -> bool:
        return self._runs.disk.over(limit) <= 0

    def make_room(self, held: set[ShardId], by_use: Sequence[ShardId] = ()) -> bool:
        """Deletes run files, those used least lately first, then shards that are not open here, in the order
        of ``by_use``, until all fits; returns False when it still does not.
        """
        limit = self._runs.disk.limit()
        return self._runs.make_room(limit) or self._drop_foreign_shards(held, limit, by_use)

    def say_too_large(self) -> None:
        """Logs that the cache folder exceeds `state.disk` with nothing in it that can leave."""
        disk = self._runs.disk
        _log.warning(
            "%s takes %d bytes, %d of them in RocksDB, limit %d, and nothing in it can leave: it holds "
            "changes that the metadata table has not compacted. Compact it, raise `state.disk`, or free "
            "space on the disk",
            self._rocks.path,
            disk.used,
            self._rocks.disk_bytes(),
            disk.limit(),
        )

    def _drop_foreign_shards(self, held: set[ShardId], limit: int, by_use: Sequence[ShardId]) -> bool:
        used = {number: at for at, number in enumerate(by_use)}
        for number in sorted(stored_shards(self._rocks), key=lambda number: used.get(number, -1)):
            if number not in held:
                self._store.drop(number)
                if self._fits(limit):
                    return True
        return False


@dataclass(frozen=True, slots=True)
class Chosen:
    """Entries of a lane in these ascending slots."""

    entries: LaneEntries
    slots: Int64Array

    def __len__(self) -> int:
        return len(self.slots)

    def parts(self) -> Iterator[tuple[list[bytes], SlotArray]]:
        """Keys and rows, some thousand at a time, and some MiB."""
        return self.entries.parts(self.slots, _AT_ONCE, _KEY_BYTES_AT_ONCE)

    def tombstones(self) -> Chosen:
        """Those of them that are deletes with an ordering value."""
        slots = [np.empty(0, np.int64)]
        for first in range(0, len(self.slots), _AT_ONCE):
            part = self.slots[first : first + _AT_ONCE]
            rows = self.entries.rows(part)
            slots.append(part[(rows["location"] < 0) & rows["has_ordering"]])
        return Chosen(self.entries, np.concatenate(slots))


def entry_values(rows: SlotArray) -> EntryArray:
    """What RocksDB keeps of the entries, with this process's location ids."""
    present = rows["location"] >= 0
    values = np.zeros(len(rows), ENTRY)
    values["location"] = rows["location"]
    values["ordering"] = np.where(present, rows["ordering"], 0)
    flags = HAS_ORDERING * rows["has_ordering"] + EXACT * (rows["has_ordering"] & rows["exact"])
    values["flags"] = np.where(present, flags, 0)
    return values
