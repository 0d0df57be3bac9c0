"""One method per tier: each answers what it knows of the keys that are still open."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from tidemark.hudi_format.model import ShardId
from tidemark.index_assigner.domain.locations import Int32Array
from tidemark.index_assigner.domain.reduce import Int64Array
from tidemark.index_assigner.index.answer_columns import AnswerColumns
from tidemark.index_assigner.index.hot_cache import HOT, HotCache
from tidemark.index_assigner.index.limits import IndexLimits
from tidemark.index_assigner.index.metadata_table_reader import MetadataTableReader, TakeOver
from tidemark.index_assigner.index.ports import Tier
from tidemark.index_assigner.index.rocks import RocksTier
from tidemark.index_assigner.index.rocks_layout import ENTRY, EXACT, HAS_ORDERING, unpack
from tidemark.index_assigner.index.rocks_locations import StoredLocations
from tidemark.index_assigner.index.shards import OpenShard, ShardStore
from tidemark.index_assigner.index.slice_values import SliceValues
from tidemark.index_assigner.index.tombstones import TombstoneStore
from tidemark.index_assigner.index.uncommitted import LaneEntries
from tidemark.stream_runtime.clock import Clock


class TierReads:
    """See the module. Answers of lower tiers about present keys go to the hot cache."""

    def __init__(
        self,
        rocks: RocksTier,
        stored: StoredLocations,
        store: ShardStore,
        hot: HotCache,
        mdt: MetadataTableReader,
        tombstones: TombstoneStore,
        slices: SliceValues,
        limits: IndexLimits,
        clock: Clock,
        tier_read: Callable[[str, float], None],
    ) -> None:
        """``tier_read`` is told each look: which tier, how many seconds."""
        self._rocks, self._stored, self._store, self._hot = rocks, stored, store, hot
        self._mdt, self._tombstones, self._slices = mdt, tombstones, slices
        self._limits, self._clock = limits, clock
        self._tier_read = tier_read
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def seconds(self) -> dict[str, float]:
        """Time spent in each tier."""
        return {f"{name}_seconds": spent for name, spent in self._seconds.items()}

    def uncommitted(self, entries: LaneEntries, keys: list[bytes], columns: AnswerColumns) -> None:
        """The lane's entries in memory; deleted keys are absent here, with their tombstone."""
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
        """Committed locations that were used lately."""
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
        """Committed locations on local disk; ABSENT is an entry, too."""
        if not columns.open.size:
            return
        started = self._clock.monotonic_s()
        values = self._rocks.get_many(columns.open_keys(keys))
        present, found = unpack(values, ENTRY)
        known = np.zeros(len(values), np.bool_)
        known[present] = True
        of_shard = shards[columns.open[present]]
        generations = np.zeros(int(of_shard.max(initial=0)) + 1, np.uint32)
        for number in np.unique(of_shard).tolist():
            generations[number] = held[number].generation
        exact = ((found["flags"] & EXACT) > 0) & (found["generation"] == generations[of_shard])
        at = columns.close(
            known,
            Tier.ROCKSDB,
            self._stored.to_local(found["location"]),
            found["ordering"],
            (found["flags"] & HAS_ORDERING) > 0,
            exact,
        )
        self._to_hot(at, keys, shards, columns)
        self._spent("rocksdb", started)

    def mdt(
        self,
        held: Mapping[ShardId, OpenShard],
        composite: list[bytes],
        keys: pa.StringArray,
        shards: Int32Array,
        columns: AnswerColumns,
        held_shards: set[ShardId],
    ) -> None:
        """The record index's base files, by blocks. What is found nowhere stays open: absent."""
        if not columns.open.size:
            return
        started = self._clock.monotonic_s()
        located = np.full(len(columns.open), -1, np.int32)
        take_over = TakeOver(self._limits.taken_over_min)
        of_shard = shards[columns.open]
        for number in np.unique(of_shard).tolist():
            members = np.flatnonzero(of_shard == number)
            wanted = keys.take(pa.array(columns.open[members]))
            has_room = self._rocks.disk_bytes() < self._limits.disk_for_blocks
            located[members] = self._mdt.locate(held[number], wanted, take_over if has_room else None)
        known = located >= 0
        count = int(known.sum())
        none = np.zeros(count, np.bool_)
        at = columns.close(known, Tier.MDT, located[known], np.zeros(count, np.int64), none, none)
        self._to_hot(at, composite, shards, columns)
        self._spent("mdt", started)

    def tombstones(self, composite: list[bytes], keys: pa.StringArray, columns: AnswerColumns) -> None:
        """Ordering values of absent keys. Expired ones count as long as a slice still holds the delete."""
        absent = columns.absent()
        known, rows = self._tombstones.get([composite[each] for each in absent.tolist()])
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
            self._tombstones.remove(composite[each] for each in absent[over].tolist())
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
        self._hot.put([keys[each] for each in at.tolist()], rows)
