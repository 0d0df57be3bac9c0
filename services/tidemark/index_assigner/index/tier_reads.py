"""Asks the tiers: one method per tier, which answers what that tier knows of the keys still open."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pyarrow as pa

from tidemark.hudi_format.model import ShardId
from tidemark.index_assigner.domain.locations import NO_LOCATION, Int32Array
from tidemark.index_assigner.domain.reduce import Int64Array
from tidemark.index_assigner.index.answer_columns import AnswerColumns
from tidemark.index_assigner.index.hot_cache import HOT, HotCache
from tidemark.index_assigner.index.open_shard import OpenShard
from tidemark.index_assigner.index.ports import Tier
from tidemark.index_assigner.index.rocks import RocksTier
from tidemark.index_assigner.index.rocks_layout import ENTRY, unpack
from tidemark.index_assigner.index.rocks_locations import StoredLocations
from tidemark.index_assigner.index.run_tier import RunTier
from tidemark.index_assigner.index.shards import ShardStore
from tidemark.index_assigner.index.slice_values import SliceValues
from tidemark.index_assigner.index.tombstones import TombstoneStore
from tidemark.index_assigner.index.uncommitted import LaneEntries
from tidemark.index_assigner.runs.entries import EXACT, HAS_ORDERING
from tidemark.stream_runtime.clock import Clock


class TierReads:
    """Reads of all tiers. Present keys that RocksDB or the metadata table answers go to the hot cache; a run
    answers as fast as that.
    """

    def __init__(
        self,
        rocks: RocksTier,
        stored: StoredLocations,
        store: ShardStore,
        hot: HotCache,
        runs: RunTier,
        tombstones: TombstoneStore,
        slices: SliceValues,
        clock: Clock,
        tier_read: Callable[[str, float], None],
    ) -> None:
        """``tier_read`` is called after each read with the tier's name and the seconds it took."""
        self._rocks, self._stored, self._store, self._hot = rocks, stored, store, hot
        self._runs, self._tombstones, self._slices = runs, tombstones, slices
        self._clock = clock
        self._tier_read = tier_read
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def seconds(self) -> dict[str, float]:
        """Seconds spent in each tier, by the name of the stat."""
        return {f"{name}_seconds": spent for name, spent in self._seconds.items()}

    def uncommitted(self, entries: LaneEntries, keys: list[bytes], columns: AnswerColumns) -> None:
        """Answers from the lane's entries in memory. A deleted key is absent there, and has its tombstone."""
        started = self._clock.monotonic_s()
        slots = entries.find(keys)
        known = slots >= 0
        rows = entries.rows(slots[known])
        at = columns.close(
            known,
            Tier.UNCOMMITTED,
            rows["location"],
            rows["ordering"],
            rows["has_ordering"],
            rows["exact"] & rows["has_ordering"],
        )
        columns.deleted_from[at] = np.where(rows["location"] < 0, rows["deleted_from"], -1)
        self._spent("uncommitted", started)

    def hot(self, keys: list[bytes], columns: AnswerColumns) -> None:
        """Answers from the hot cache."""
        if not columns.open.size:
            return
        started = self._clock.monotonic_s()
        known, rows = self._hot.get(columns.open_keys(keys))
        columns.close(
            known, Tier.HOT, rows["location"], rows["ordering"], rows["has_ordering"], rows["exact"]
        )
        self._spent("hot", started)

    def rocksdb(
        self, held: Mapping[ShardId, OpenShard], keys: list[bytes], shards: Int32Array, columns: AnswerColumns
    ) -> None:
        """Answers from RocksDB, where an entry may also say that the key is absent.

        A stored ordering value is exact only if the entry was written in the shard's present generation.
        """
        if not columns.open.size:
            return
        started = self._clock.monotonic_s()
        values = self._rocks.get_many(columns.open_keys(keys))
        present, stored = unpack(values, ENTRY)
        known = np.zeros(len(values), np.bool_)
        known[present] = True
        of_shard = shards[columns.open[present]]
        # A small array indexed by shard instead of a lookup per key: with generation 2 of shard 0 and 7 of
        # shard 3 it is [2, 0, 0, 7], and the keys of shards [3, 0] get [7, 2].
        generations = np.zeros(int(of_shard.max(initial=0)) + 1, np.uint32)
        for number in np.unique(of_shard).tolist():
            generations[number] = held[number].generation
        exact = ((stored["flags"] & EXACT) > 0) & (stored["generation"] == generations[of_shard])
        at = columns.close(
            known,
            Tier.ROCKSDB,
            self._stored.to_local(stored["location"]),
            stored["ordering"],
            (stored["flags"] & HAS_ORDERING) > 0,
            exact,
        )
        self._to_hot(at, keys, shards, columns)
        self._spent("rocksdb", started)

    def changes(
        self,
        held: Mapping[ShardId, OpenShard],
        keys: pa.StringArray,
        shards: Int32Array,
        columns: AnswerColumns,
    ) -> None:
        """Answers from change runs, present or absent. Keys that have no entry there stay open."""
        if not columns.open.size:
            return
        started = self._clock.monotonic_s()
        count = len(columns.open)
        known, exact = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
        located = np.full(count, NO_LOCATION, np.int32)
        ordering, flags = np.zeros(count, np.int64), np.zeros(count, np.uint8)
        for number, members in _by_shard(shards[columns.open]):
            found = self._runs.changes.find(number, keys.take(pa.array(columns.open[members])))
            if found is not None:
                known[members], located[members] = found.known, found.locations
                ordering[members], flags[members] = found.ordering, found.flags
                exact[members] = self._runs.changes.generation(number) == held[number].generation
        has_ordering, exact = flags & HAS_ORDERING > 0, exact & (flags & EXACT > 0)
        at = columns.close(
            known, Tier.RUN, located[known], ordering[known], has_ordering[known], exact[known]
        )
        columns.tier[at[located[known] < 0]] = Tier.NONE
        self._spent("run", started)

    def runs(
        self,
        held: Mapping[ShardId, OpenShard],
        keys: pa.StringArray,
        shards: Int32Array,
        columns: AnswerColumns,
    ) -> None:
        """Answers from run files, present or absent. Keys of shards without one stay open, unless they are
        worth waiting for it, and those in ranges that the run lacks.
        """
        if not columns.open.size:
            self._runs.load_first(())
            return
        started = self._clock.monotonic_s()
        located = np.full(len(columns.open), NO_LOCATION, np.int32)
        known = np.zeros(len(columns.open), np.bool_)
        asked = [
            (number, members, keys.take(pa.array(columns.open[members])))
            for number, members in _by_shard(shards[columns.open])
        ]
        answers = {number: self._runs.find(number, wanted) for number, _, wanted in asked}
        lacking = [(held[number], wanted) for number, _, wanted in asked if answers[number] is None]
        if self._runs.load_first(lacking):
            answers |= {shard.number: self._runs.find(shard.number, wanted) for shard, wanted in lacking}
        for number, members, _ in asked:
            if (found := answers[number]) is not None:
                known[members], located[members] = found.known, found.locations
        present = located[known] >= 0
        none = np.zeros(len(present), np.bool_)
        at = columns.close(known, Tier.RUN, located[known], np.zeros(len(present), np.int64), none, none)
        columns.tier[at[~present]] = Tier.NONE
        self._spent("run", started)

    def mdt(
        self,
        held: Mapping[ShardId, OpenShard],
        composite: list[bytes],
        keys: pa.StringArray,
        shards: Int32Array,
        columns: AnswerColumns,
    ) -> None:
        """Answers from blocks of the record index's base files. Keys that are not there stay open: absent."""
        if not columns.open.size:
            return
        started = self._clock.monotonic_s()
        located = np.full(len(columns.open), NO_LOCATION, np.int32)
        for number, members in _by_shard(shards[columns.open]):
            # Reading a shard's blocks takes long: a load that ends meanwhile is followed by the next one.
            self._runs.poll()
            wanted = keys.take(pa.array(columns.open[members]))
            located[members] = self._store.find_in_base(held[number], wanted)
        known = located >= 0
        count = int(known.sum())
        none = np.zeros(count, np.bool_)
        at = columns.close(known, Tier.MDT, located[known], np.zeros(count, np.int64), none, none)
        self._to_hot(at, composite, shards, columns)
        self._spent("mdt", started)

    def tombstones(self, composite: list[bytes], keys: pa.StringArray, columns: AnswerColumns) -> None:
        """Adds the tombstones of absent keys. An expired one counts while its slice still
        holds the delete.
        """
        absent = columns.absent()
        known, rows = self._tombstones.get([composite[position] for position in absent.tolist()])
        expired = np.flatnonzero(known & (rows["expires_ms"] <= self._clock.now_ms()))
        if expired.size:
            ended = rows[expired]
            held = self._slices.reach(
                keys.take(pa.array(absent[expired])),
                np.ascontiguousarray(ended["location"]),
                ended["ordering"],
            )
            over = expired[~held]
            known[over] = False
            self._tombstones.remove(composite[position] for position in absent[over].tolist())
        columns.add_tombstones(absent[known], rows["ordering"][known], rows["location"][known])

    def _spent(self, tier: str, started_s: float) -> None:
        seconds = self._clock.monotonic_s() - started_s
        self._seconds[tier] += seconds
        self._tier_read(tier, seconds)

    def _to_hot(self, at: Int64Array, keys: list[bytes], shards: Int32Array, columns: AnswerColumns) -> None:
        at = at[columns.location[at] >= 0]
        rows = np.empty(len(at), HOT)
        rows["shard"] = shards[at]
        for name in ("location", "ordering", "has_ordering", "exact"):
            rows[name] = getattr(columns, name)[at]
        self._hot.put([keys[position] for position in at.tolist()], rows)


def _by_shard(shards: Int32Array) -> Iterator[tuple[ShardId, Int64Array]]:
    """Each shard, and the positions of its keys."""
    # Sorted by shard, the keys of each are one range: shards 5, 2, 5 have the order 1, 0, 2, in which shard 2
    # begins at 0 and shard 5 at 1.
    order = np.argsort(shards, kind="stable")
    numbers, begins = np.unique(shards[order], return_index=True)
    for number, members in zip(numbers.tolist(), np.split(order, begins[1:]), strict=False):
        yield ShardId(number), members
