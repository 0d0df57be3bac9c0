"""The tiered index of one assigner process: uncommitted → hot cache → RocksDB → run files → metadata table.

This module asks the tiers one after the other, and opens, promotes and gives up lanes. What each tier
holds, and why the order is sound, is in ARCHITECTURE.md, "Assign" and "Cache tiers"; `shards` states
RocksDB's invariant.

Invariant of an open lane: its shards in RocksDB have all changes of the snapshot that they were brought to
and of the epochs promoted since. Every counted change after those is in the lane's memory.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

import pyarrow as pa

from tidemark.epoch_protocol.lanes import shards_of_lane
from tidemark.epoch_protocol.seen import Known
from tidemark.errors import ErrorKind, TidemarkError
from tidemark.hudi_format.errors import FileMissingError, TimelineConflictError
from tidemark.hudi_format.metadata_table import MetadataTableSnapshot
from tidemark.hudi_format.model import ShardId
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.hudi_format.storage.base import Storage
from tidemark.index_assigner.domain.locations import Int32Array, Locations
from tidemark.index_assigner.domain.reduce import BoolArray, Int64Array
from tidemark.index_assigner.index.answer_columns import AnswerColumns, tier_counts
from tidemark.index_assigner.index.cache_keys import CacheKeys, ShardKeys
from tidemark.index_assigner.index.change_tier import ChangesLostError
from tidemark.index_assigner.index.errors import (
    IndexMismatchError,
    IndexOutdatedError,
    IndexRebuiltError,
)
from tidemark.index_assigner.index.exact_values import exact_values, not_where_placed
from tidemark.index_assigner.index.foreign_deletes import ForeignDeletes
from tidemark.index_assigner.index.held_lane import HeldLane, HeldLanes
from tidemark.index_assigner.index.hot_cache import HotCache
from tidemark.index_assigner.index.lane_changes import LaneChanges
from tidemark.index_assigner.index.limits import IndexLimits
from tidemark.index_assigner.index.ports import LookupAnswer, WarmProgress
from tidemark.index_assigner.index.promotion import Promotion
from tidemark.index_assigner.index.replaced_groups import ReplacedGroups
from tidemark.index_assigner.index.rocks import RocksTier
from tidemark.index_assigner.index.rocks_layout import composite_keys
from tidemark.index_assigner.index.rocks_locations import StoredLocations
from tidemark.index_assigner.index.run_tier import RunTier
from tidemark.index_assigner.index.seen_commits import SeenCommits
from tidemark.index_assigner.index.shards import ShardStore
from tidemark.index_assigner.index.shown_timeline import ShownTimeline
from tidemark.index_assigner.index.slice_deletes import SliceDeletes
from tidemark.index_assigner.index.slice_values import OrderingParts, SliceValues
from tidemark.index_assigner.index.tier_reads import TierReads
from tidemark.index_assigner.index.tombstones import TombstoneStore, TombstoneSweep
from tidemark.index_assigner.runs.loading import Loads, SteppedLoads
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.ids import SystemIds

_log = logging.getLogger("tidemark.assigner")
RELOADS_MAX: Final = 4


class TieredIndex(LaneChanges):
    """`ports.KeyIndex` over all tiers. For one thread."""

    def __init__(
        self,
        storage: Storage,
        rocks: RocksTier,
        locations: Locations,
        num_shards: int,
        lanes: int,
        ordered: bool,
        limits: IndexLimits,
        ordering: OrderingParts,
        clock: Clock,
        tier_read: Callable[[str, float], None] = lambda tier, seconds: None,
        loads: Loads | None = None,
        keys: CacheKeys | None = None,
    ) -> None:
        """``loads``: carries out the loads of run files; by default a step with each lookup. ``keys``: how
        tombstones and notes are named; by default as the entries of a global index.
        """
        keys = keys or ShardKeys()
        self._storage, self._num_shards, self._lanes = storage, num_shards, lanes
        self._locations, self._ordered, self._clock = locations, ordered, clock
        stored = StoredLocations(rocks, locations)
        ids, loads = SystemIds(), loads or SteppedLoads()
        self._held, self._seen = HeldLanes(), SeenCommits()
        self._runs = RunTier(rocks, stored, locations, limits, loads, self._held.is_present, ids)
        self._rocks, self._limits = rocks, limits
        self._tombstones = TombstoneStore(rocks, stored, ordering.tombstone_ttl_ms)
        self._slices = SliceValues(
            storage, locations, ordering.schema, ordering.mode, ordering.field, limits.slice_values
        )
        self._deletes = SliceDeletes(storage, self._slices, ordering, limits.slice_deletes, clock)
        parts = rocks, locations, stored, self._tombstones, self._deletes, self._runs, ordering, clock, keys
        self._foreign = ForeignDeletes(*parts, limits.caught_up_deletes)
        self._store = ShardStore(rocks, locations, stored, self._foreign, self._runs, ids, limits)
        self._hot = HotCache(limits.hot_cache)
        tiers = self._store, self._hot, self._runs, self._tombstones, self._slices
        self._reads = TierReads(rocks, stored, *tiers, clock, tier_read)
        self._tier_read = tier_read
        self._promotion = Promotion(rocks, self._store, self._hot, self._tombstones, self._runs)
        self._sweep = TombstoneSweep(rocks, stored, self._tombstones, self._slices, clock, keys)
        self._replaced = ReplacedGroups(storage, locations)
        self._answered: Counter[str] = Counter()
        self._exact_seconds = 0.0
        self._epoch = 0

    # ------------------------------------------------------------------ lanes

    def open_lane(self, lane: int, snapshot: MetadataTableSnapshot, known: Known | None = None) -> None:
        """Brings the lane's shards to the snapshot, and forgets uncommitted entries of an earlier opening."""
        if known is not None:
            self._seen.take(known)
        self.close_lane(lane)
        held = HeldLane(lane, ShownTimeline(snapshot.data_timeline))
        self._bring_to(held, snapshot)
        self._held[lane] = held

    def close_lane(self, lane: int) -> None:
        """Forgets the lane's entries in memory and in the hot cache; RocksDB keeps its shards."""
        if self._held.pop(lane, None) is not None:
            self._hot.drop_shards(self._shards_of(lane))
        self._close_shards(lane)

    def _close_shards(self, lane: int) -> None:
        """Gives the files of the lane's shards back, also where it is not open: its opening may have ended
        half-way.
        """
        self._runs.close(self._shards_of(lane))

    def _shards_of(self, lane: int) -> list[ShardId]:
        return [ShardId(number) for number in shards_of_lane(lane, self._lanes, self._num_shards)]

    def stop(self) -> None:
        """Ends the load of a run and gives files back, because the process ends."""
        self._runs.stop()

    def rewind(self) -> None:
        """Closes all lanes, and forgets what was read of file slices: another writer may have committed."""
        self._held.clear()
        self._runs.end_load()
        self._slices.forget()
        self._deletes.forget()

    def _bring_to(self, held: HeldLane, snapshot: MetadataTableSnapshot) -> None:
        """Brings all shards of the lane to the snapshot, or to a newer one if its files were cleaned away."""
        for _ in range(RELOADS_MAX):
            shown = self._seen.shown(snapshot.data_timeline, f"lane {held.number}")
            if snapshot.num_shards != self._num_shards:
                raise IndexRebuiltError(
                    f"the record index has {snapshot.num_shards} shards, not {self._num_shards}: another "
                    "engine built it anew. The coordinator says what to do (`tidemark status`)"
                )
            self._slices.forget()
            self._deletes.forget()
            numbers = self._shards_of(held.number)
            self._hot.drop_shards(numbers)
            try:
                self._replaced.look(snapshot.data_timeline)
                held.shards.update(
                    {one: self._store.open(one, snapshot.shard(one), snapshot, shown) for one in numbers}
                )
                held.shown = shown
                return
            except FileMissingError:
                snapshot = MetadataTableSnapshot.load(self._storage)
        raise self._vanishing(f"lane {held.number}")

    def _reload(self, held: HeldLane) -> None:
        """Brings the lane to the newest snapshot; if that fails, the lane is closed."""
        try:
            self._bring_to(held, MetadataTableSnapshot.load(self._storage))
        except BaseException:
            self.close_lane(held.number)
            raise

    def _reload_or_close(self, held: HeldLane) -> None:
        """As `_reload`, but what another try cures closes the lane alone: its owner opens it again."""
        try:
            self._reload(held)
        except TidemarkError as error:
            if error.kind not in (ErrorKind.RETRYABLE, ErrorKind.CONFLICT):
                raise
            _log.warning("lane %d is closed: %s", held.number, error)

    def _shown_to(self, held: HeldLane) -> Iterable[ShownTimeline]:
        """Each timeline that something of the lane was brought to."""
        return (held.shown,)

    def _vanishing(self, what: str) -> TimelineConflictError:
        return TimelineConflictError(
            f"{what}: record index files vanished during each of {RELOADS_MAX} reads: try again"
        )

    # ------------------------------------------------------------------ questions

    def lookup(self, lane: int, keys: pa.StringArray, shards: Int32Array) -> LookupAnswer:
        """Asks the tiers in turn where each key is; the lane is reloaded if index files vanish meanwhile.

        Raises LaneNotOpenError, TimelineConflictError when files keep vanishing.
        """
        held = self._held.lane(lane)
        self._runs.poll()
        composite = self._cache_keys(lane, keys, shards)
        for _ in range(RELOADS_MAX):
            columns = AnswerColumns(len(keys))
            try:
                self._reads.uncommitted(held.entries, composite, columns)
                self._ask_tiers(held, keys, shards, composite, columns)
                columns.drop_committed(self._replaced.hold(columns.location))
                if self._ordered:
                    prefixes = self._prefixes_of(lane, shards)
                    self._foreign.settle(composite, keys, prefixes, columns.absent())
                    self._reads.tombstones(composite, keys, columns)
            except (FileMissingError, ChangesLostError) as error:
                if isinstance(error, ChangesLostError):
                    self._store.forget(error.shard)
                self._reload(held)
                continue
            self._answered.update({tier.name.lower(): n for tier, n in tier_counts(columns.tier).items()})
            return columns.answer()
        raise self._vanishing(f"lane {held.number}")

    def _ask_tiers(
        self,
        held: HeldLane,
        keys: pa.StringArray,
        shards: Int32Array,
        composite: list[bytes],
        columns: AnswerColumns,
    ) -> None:
        """Asks the tiers of committed entries."""
        self._reads.hot(composite, columns)
        self._reads.rocksdb(held.shards, composite, shards, columns)
        # After RocksDB, whose entries are newer than any run.
        self._reads.changes(held.shards, keys, shards, columns)
        self._reads.runs(held.shards, keys, shards, columns)
        self._reads.mdt(held.shards, composite, keys, shards, columns)

    def _cache_keys(self, lane: int, keys: pa.StringArray, shards: Int32Array) -> list[bytes]:
        return composite_keys(keys, shards)

    def _numbers_at(self, keys: pa.StringArray, locations: Int32Array) -> Int32Array:
        """The number that belongs beside each key which is at this location."""
        return record_index_shard(keys, self._num_shards)

    def _prefixes_of(self, lane: int, shards: Int32Array) -> Int32Array:
        """The number with which each cache key begins."""
        return shards

    def _held_prefixes(self) -> set[ShardId]:
        return self._held.shards()

    def exact_ordering(self, lane: int, keys: pa.StringArray, locations: Int32Array) -> Int64Array:
        """Reads the keys' stored ordering values from file slices and uncommitted entries."""
        held = self._held.lane(lane)
        started = self._clock.monotonic_s()
        composite = self._cache_keys(lane, keys, self._numbers_at(keys, locations))
        ordering, proven = exact_values(self._slices, held.entries, keys, composite, locations)
        seconds = self._clock.monotonic_s() - started
        self._exact_seconds += seconds
        self._tier_read("exact", seconds)
        self._answered["exact"] += len(keys)
        if not proven.all():
            keys_elsewhere = not_where_placed(keys, locations, proven, self._locations)
            if any(self._slices.changed_since(shown, self._seen.promoted) for shown in self._shown_to(held)):
                self._reload(held)
            elif not held.shown.unseen:
                raise IndexMismatchError(
                    f"{keys_elsewhere}. Index and data disagree: run `tidemark verify`, then rebuild the "
                    "record index"
                )
            # Otherwise our uncommitted entries have the keys' places from before the other writer's commit.
            # The coordinator has not seen that commit yet; once it has, it rewinds the lane.
            raise IndexOutdatedError(f"another writer committed meanwhile: {keys_elsewhere}")
        return ordering

    def is_masked_by_delete(
        self, keys: pa.StringArray, locations: Int32Array, ordering: Int64Array
    ) -> BoolArray:
        """Whether a delete in each row's file group would hide the row."""
        return self._deletes.is_masked_by_delete(keys, locations, ordering)

    # ------------------------------------------------------------------ commits

    def promote(self, through: int, completion: str | None, epoch: int, instant: str | None = None) -> None:
        """Moves committed entries from memory to RocksDB, then sweeps a little and keeps to `state.disk`."""
        for held in self._held.values():
            self._promote_lane(held, through, completion)
        self._seen.promote(completion, instant)
        self._epoch = max(self._epoch, epoch)
        self._slices.forget()
        self._seen.forget_archived(self._slices.shown_times)
        if self._ordered:
            self._foreign.step(self._held_prefixes())
            self._sweep.step(self._held_prefixes())
        self._keep_to_disk_limit()

    def _promote_lane(self, held: HeldLane, through: int, completion: str | None) -> None:
        self._promotion.promote(held, through, completion)

    def _keep_to_disk_limit(self) -> None:
        """Gives up run files until all fits into `state.disk`, then others' shards, then ours, anew."""
        if self._promotion.make_room(self._held.shards()):
            return
        for held in list(self._held.values()):
            for number in held.shards:
                self._store.drop(number)
            self._reload_or_close(held)
            if self._promotion.fits():
                return
        self._promotion.say_too_large()

    def warm(self, start: bool) -> WarmProgress:
        """Tells how much is in run files, and begins to load the rest if it should."""
        for _ in range(RELOADS_MAX):
            try:
                for held in self._held.of_gone_bases():
                    self._reload(held)
                if start:
                    self._runs.want(self._held.openings())
                return self._runs.progress(self._held.openings())
            except FileMissingError:
                for held in list(self._held.values()):
                    self._reload(held)
        raise self._vanishing("index warm")

    def load_on(self) -> None:
        """Takes wanted loads a step further."""
        self._runs.load_on()

    def stats(self) -> dict[str, float]:
        """Counters, times and sizes of all tiers: name -> value."""
        return {
            **{f"keys_{name}": float(count) for name, count in self._answered.items()},
            **self._reads.seconds(),
            "exact_seconds": self._exact_seconds,
            "uncommitted_entries": self.uncommitted_entries(),
            "uncommitted_bytes": self._held.memory(),
            "uncommitted_bytes_max": self._limits.uncommitted,
            "hot_entries": len(self._hot),
            "hot_bytes": self._hot.nbytes,
            "hot_bytes_max": self._limits.hot_cache,
            "rocksdb_bytes": self._rocks.disk_bytes(),
            "rocksdb_bytes_max": self._runs.disk.limit(),
            "rocksdb_entries": self._rocks.entries(),
            **self._runs.stats(),
            "run_entries_lacking": self._runs.lacking(self._held.shards()),
            "blocks_read": self._store.blocks_read,
            "shards_dropped": self._store.shards_dropped,
            "tombstones_removed": self._sweep.removed,
            "foreign_deletes": self._foreign.found,
            "kept_apart": self._deletes.kept_apart,
            "delete_bytes": self._deletes.nbytes,
            "epoch_promoted": self._epoch,
        }
