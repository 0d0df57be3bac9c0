"""The tiered index of a table whose record index is partitioned: a row is identified by (partition, key).

The tiers are those of `tiered`. Three things differ:

* A lane has keys in every partition, and there may be thousands of partitions. So units, (lane, partition,
  shard), are opened when a key of theirs is looked up, and the one used least lately is closed beyond
  `units_max`. What RocksDB has of it stays, and is caught up when it is opened again.
* A partition without file groups has no rows: its keys are absent, and nothing is read.
* Uncommitted entries, tombstones and notes have keys that need no shard (`cache_keys`).

Invariant of a lane: an open unit has all changes of the snapshot that it was brought to and of the epochs
promoted since; one that is opened is brought to a snapshot that shows every commit that was promoted.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final
from weakref import WeakValueDictionary

import numpy as np
import pyarrow as pa

from tidemark.hudi_format.errors import FileMissingError
from tidemark.hudi_format.metadata_table import MetadataTableSnapshot
from tidemark.hudi_format.metadata_table.partitioned_index import IndexGroup, PartitionedLayout, layout_of
from tidemark.hudi_format.metadata_table.partitions.record_index import SHARDS_MAX
from tidemark.hudi_format.metadata_table.shard import ShardSnapshot
from tidemark.hudi_format.model import ShardId
from tidemark.hudi_format.storage.base import Storage
from tidemark.index_assigner.domain.locations import Int32Array, Locations
from tidemark.index_assigner.domain.reduce import Int64Array
from tidemark.index_assigner.index.answer_columns import AnswerColumns
from tidemark.index_assigner.index.cache_keys import identity_keys
from tidemark.index_assigner.index.held_lane import HeldLane
from tidemark.index_assigner.index.limits import IndexLimits
from tidemark.index_assigner.index.partitioned_promotion import PartitionedPromotion
from tidemark.index_assigner.index.rocks import RocksTier
from tidemark.index_assigner.index.rocks_layout import composite_keys
from tidemark.index_assigner.index.shown_timeline import ShownTimeline
from tidemark.index_assigner.index.slice_values import OrderingParts
from tidemark.index_assigner.index.tiered import RELOADS_MAX, TieredIndex
from tidemark.index_assigner.index.units import Unit, UnitKeys, Units
from tidemark.index_assigner.runs.loading import Loads
from tidemark.stream_runtime.clock import Clock

UNITS_MAX: Final = 4_096
_NOT_OPEN: Final = -1
_WIDTH: Final = SHARDS_MAX + 1


class PartitionedIndex(TieredIndex):
    """`ports.KeyIndex` for a partitioned index: the numbers beside keys are ids of partitions in `Locations`,
    and not shards. For one thread.
    """

    _is_partitioned = True

    def __init__(
        self,
        storage: Storage,
        rocks: RocksTier,
        locations: Locations,
        lanes: int,
        ordered: bool,
        limits: IndexLimits,
        ordering: OrderingParts,
        clock: Clock,
        tier_read: Callable[[str, float], None] = lambda tier, seconds: None,
        loads: Loads | None = None,
        units_max: int = UNITS_MAX,
    ) -> None:
        """``units_max``: so many units are open at once, or as many as a look-up needs (`_portions`)."""
        self._units = Units(rocks, lambda number: self._store.forget(number))
        keys, limits = UnitKeys(self._units, lanes), replace(limits, is_partitioned=True)
        super().__init__(
            storage, rocks, locations, 0, lanes, ordered, limits, ordering, clock, tier_read, loads, keys
        )
        self._units_max = units_max
        self._open: OrderedDict[ShardId, HeldLane] = OrderedDict()
        self._shown: dict[ShardId, ShownTimeline] = {}
        self._snapshot: MetadataTableSnapshot | None = None
        self._groups: WeakValueDictionary[IndexGroup, ShardSnapshot] = WeakValueDictionary()
        self._layout = PartitionedLayout({})
        self._promoted_since = False
        self._of_partitions = PartitionedPromotion(
            self._promotion, self._store, locations, self._open_units, self._shown, rocks.batch_bytes
        )

    # ------------------------------------------------------------------ lanes and units

    def rewind(self) -> None:
        """Closes all lanes with their units, and forgets what was read of file slices."""
        self._close_units(self._open)
        super().rewind()

    def _bring_to(self, held: HeldLane, snapshot: MetadataTableSnapshot) -> None:
        """Closes the lane's units. From now on units are opened with this snapshot, or a newer one."""
        self._close_shards(held.number)
        self._slices.forget()
        self._deletes.forget()
        for _ in range(RELOADS_MAX):
            try:
                held.shown = self._look(snapshot)
                return
            except FileMissingError:
                snapshot = MetadataTableSnapshot.load(self._storage)
        raise self._vanishing(f"lane {held.number}")

    def _look(self, snapshot: MetadataTableSnapshot) -> ShownTimeline:
        shown = self._seen.shown(snapshot.data_timeline, "a partitioned index")
        self._replaced.look(snapshot.data_timeline)
        if snapshot is not self._snapshot:
            self._snapshot, self._layout = snapshot, layout_of(snapshot)
            self._groups.clear()
            self._store.shared_reads.forget()
        self._promoted_since = False
        for held in self._held.values():
            held.shown = shown
        return shown

    def _shown_to(self, held: HeldLane) -> Iterable[ShownTimeline]:
        """Units stay open when the index is looked at again, which is for all lanes."""
        timelines = (held.shown, *(self._shown[number] for number in held.shards))
        return {id(shown): shown for shown in timelines}.values()

    def _close_shards(self, lane: int) -> None:
        self._close_units([number for number, held in self._open.items() if held.number == lane])

    def _close_units(self, numbers: Iterable[ShardId]) -> None:
        gone = list(numbers)
        if not gone:
            return
        for number in gone:
            del self._shown[number]
            self._open.pop(number).shards.pop(number)
        self._hot.drop_shards(gone)
        self._runs.close(gone)

    def _open_unit(self, held: HeldLane, unit: Unit) -> ShardId:
        known = self._units.known(unit)
        if known is not None and known in held.shards:
            self._open.move_to_end(known)
            return known
        snapshot = self._newest_snapshot()
        shown = self._seen.shown(snapshot.data_timeline, f"unit {unit}")
        number = self._units.number(unit, self._open)
        group = IndexGroup(unit.partition_path, unit.shard)
        # One for all lanes: it reads the directory of the base file once.
        of_group = self._groups.get(group)
        if of_group is None:
            of_group = self._groups[group] = snapshot.shard(group.shard, group.partition_path)
        held.shards[number] = self._store.open(number, of_group, snapshot, shown)
        self._open[number], self._shown[number] = held, shown
        return number

    def _look_again(self) -> None:
        """Looks for the partitions that a commit of ours may have begun."""
        if self._promoted_since:
            self._newest_snapshot()

    def _newest_snapshot(self) -> MetadataTableSnapshot:
        """One that shows all commits that were promoted: closed units do not have those."""
        if self._snapshot is None or self._promoted_since:
            self._look(MetadataTableSnapshot.load(self._storage))
        assert self._snapshot is not None
        return self._snapshot

    # ------------------------------------------------------------------ the units of keys

    def _open_units(self, held: HeldLane, keys: pa.StringArray, partitions: Int32Array) -> Int32Array:
        def find(unit: Unit) -> ShardId | None:
            known = self._units.known(unit)
            return known if known in held.shards else None

        return self._numbers(held.number, keys, partitions, find)

    def _opened_units(self, held: HeldLane, keys: pa.StringArray, partitions: Int32Array) -> Int32Array:
        """Opens the units of these keys; -1 for keys of partitions that have no file groups."""
        self._look_again()
        numbers = self._numbers(held.number, keys, partitions, lambda unit: self._open_unit(held, unit))
        used = set(np.unique(numbers).tolist())
        excess = len(self._open) - self._units_max
        self._close_units([number for number in self._open if number not in used][: max(excess, 0)])
        return numbers

    def _numbers(
        self,
        lane: int,
        keys: pa.StringArray,
        partitions: Int32Array,
        find: Callable[[Unit], ShardId | None],
    ) -> Int32Array:
        """The number of each key's unit; -1 where there is none, or ``find`` knows none. It is asked once for
        each unit.
        """
        paths, pairs, of_pair = self._pairs(keys, partitions)
        numbers = np.full(len(pairs), _NOT_OPEN, np.int32)
        for at, pair in enumerate(pairs.tolist()):
            path, shard = paths[pair // _WIDTH], pair % _WIDTH - 1
            if shard >= 0:
                number = find(Unit(lane, path, ShardId(shard), self._layout.shards[path]))
                numbers[at] = _NOT_OPEN if number is None else number
        return numbers[of_pair]

    def _pairs(
        self, keys: pa.StringArray, partitions: Int32Array
    ) -> tuple[list[str], Int64Array, Int64Array]:
        """The partition paths, each (path, shard) that occurs as one number, and which of them each key has.

        The shard counts from 1 in it: 0 stands for a partition without groups.
        """
        used, which = np.unique(partitions, return_inverse=True)
        paths = [self._locations.partition_names[number] for number in used.tolist()]
        which = which.astype(np.int32)
        shards = self._layout.shards_of(keys, which, paths)
        pairs, of_pair = np.unique(which.astype(np.int64) * _WIDTH + shards + 1, return_inverse=True)
        return paths, pairs, of_pair

    def _portions(
        self, keys: pa.StringArray, partitions: Int32Array, asked: Int64Array
    ) -> Iterator[Int64Array]:
        """These positions, so many at a time that there are numbers for their units."""
        if len(asked) <= self._units.at_once:
            yield asked
            return
        self._look_again()
        _, _, of_pair = self._pairs(keys.take(pa.array(asked)), partitions[asked])
        portions = of_pair // self._units.at_once
        for portion in np.unique(portions).tolist():
            yield asked[portions == portion]

    # ------------------------------------------------------------------ what `TieredIndex` asks

    def _cache_keys(self, lane: int, keys: pa.StringArray, shards: Int32Array) -> list[bytes]:
        return identity_keys(lane, keys, shards, self._locations.partition_names)

    def _numbers_at(self, keys: pa.StringArray, locations: Int32Array) -> Int32Array:
        return self._locations.partitions_of(locations)

    def _prefixes_of(self, lane: int, shards: Int32Array) -> Int32Array:
        return np.full(len(shards), lane, np.int32)

    def _held_prefixes(self) -> set[ShardId]:
        return {ShardId(lane) for lane in self._held}

    def _ask_tiers(
        self,
        held: HeldLane,
        keys: pa.StringArray,
        shards: Int32Array,
        composite: list[bytes],
        columns: AnswerColumns,
    ) -> None:
        for at in self._portions(keys, shards, columns.open):
            units = np.full(len(keys), _NOT_OPEN, np.int32)
            units[at] = self._opened_units(held, keys.take(pa.array(at)), shards[at])
            columns.open = at[units[at] >= 0]
            super()._ask_tiers(held, keys, units, composite_keys(keys, units), columns)

    def promote(self, through: int, completion: str | None, epoch: int, instant: str | None = None) -> None:
        """As `TieredIndex.promote`. What is opened from now on is opened with a newer snapshot."""
        super().promote(through, completion, epoch, instant)
        self._promoted_since |= completion is not None

    def _promote_lane(self, held: HeldLane, through: int, completion: str | None) -> None:
        self._of_partitions.promote(held, through, completion)

    def _keep_to_disk_limit(self) -> None:
        """Gives up run files until all fits into `state.disk`, then units, closed ones before open ones, and
        those used least lately first.
        """
        if self._promotion.make_room(set(self._open), self._units.by_use()):
            return
        for number in list(self._open):
            self._close_units([number])
            self._store.drop(number)
            if self._promotion.fits():
                return
        self._promotion.say_too_large()
