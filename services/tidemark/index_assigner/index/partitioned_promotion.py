"""Moves the entries of a committed epoch from memory to RocksDB, with a partitioned record index.

Only units that are open get theirs. What belongs to others is only forgotten: a unit that is opened later is
brought to a snapshot that shows the commit. Tombstones are written for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from tidemark.hudi_format.columnar import BinaryColumn, gather_rows
from tidemark.hudi_format.model import ShardId
from tidemark.index_assigner.domain.key_stretches import stretches
from tidemark.index_assigner.domain.locations import Int32Array, Locations
from tidemark.index_assigner.domain.reduce import BoolArray, Int64Array
from tidemark.index_assigner.index.held_lane import HeldLane
from tidemark.index_assigner.index.promotion import Chosen, Promotion, entry_values
from tidemark.index_assigner.index.rocks_layout import ENTRY, EntryArray, composite_keys
from tidemark.index_assigner.index.shards import ShardStore
from tidemark.index_assigner.index.shown_timeline import ShownTimeline
from tidemark.index_assigner.index.uncommitted import LaneEntries, SlotArray

FindUnits = Callable[[HeldLane, pa.StringArray, Int32Array], Int32Array]
"""(lane, record keys, partition ids) -> the number of each key's unit, -1 where it is not open."""
_NOT_OPEN: Final = -1
_LANE_AND_NUL: Final = 3
# What an entry takes in a batch of RocksDB beside its key, in bytes: its value, and the lengths of both.
_BESIDE_KEY: Final = ENTRY.itemsize + 8
# What the record of a unit takes in a batch, in bytes.
_RECORD_BYTES: Final = 512


class PartitionedPromotion:
    """Promotes lanes."""

    def __init__(
        self,
        shared: Promotion,
        store: ShardStore,
        locations: Locations,
        find: FindUnits,
        shown: Mapping[ShardId, ShownTimeline],
        batch_bytes: int,
    ) -> None:
        """``shown``: the timeline to which each open unit was brought. ``batch_bytes``: units are written
        together whose entries and records take no more. With `RocksTier.batch_bytes` they fit into one batch.
        """
        self._shared, self._store, self._locations = shared, store, locations
        self._find, self._shown, self._batch_bytes = find, shown, batch_bytes

    def promote(self, held: HeldLane, through: int, completion: str | None) -> None:
        """Promotes one lane's entries up to ledger offset ``through``, as `Promotion.promote`."""
        entries = held.entries
        end, position = entries.through(through)
        chosen = Chosen(entries, entries.newest_below(end))
        self._shared.write_tombstones(chosen.tombstones())
        of_unit, key_bytes = self._units_of(held, chosen)
        passed = self._passed(held, completion)
        is_passed = np.isin(of_unit, passed)
        self._forget_hot(entries, chosen.slots, of_unit, is_passed)
        # Those units have newer entries already, and so will units that are opened later.
        of_unit[is_passed] = _NOT_OPEN
        # Sorted by unit, the entries of neighbouring units are one range: units [4, -1, 2, 4] have the order
        # [1, 2, 0, 3]; the units 2 and 4 are the range [1, 4) of it, the entries 0, 2 and 3.
        order = np.argsort(of_unit, kind="stable")
        numbers, counts = np.unique(of_unit, return_counts=True)
        ends, is_open = np.cumsum(counts), numbers >= 0
        numbers, counts, ends = numbers[is_open], counts[is_open], ends[is_open]
        sizes = key_bytes[numbers] + counts * _BESIDE_KEY + _RECORD_BYTES
        for first, end in self._together(held, numbers, sizes):
            mine = np.sort(order[ends[first] - counts[first] : ends[end - 1]])
            some = Chosen(entries, chosen.slots[mine])
            self._write(held, some, of_unit[mine], numbers[first:end], counts[first:end], completion)
        if completion is not None:
            # Nothing changed in the others, so their stored stamps are as true as this one, and need not be
            # written.
            for number in held.shards.keys() - {*numbers.tolist(), *passed}:
                held.shards[number].stamp = max(held.shards[number].stamp, completion)
        self._shared.note_position(held.number, position)
        entries.discard_through(through)

    def _units_of(self, held: HeldLane, chosen: Chosen) -> tuple[Int32Array, Int64Array]:
        """The unit of each entry, -1 where it is not open; and for each number of a unit the bytes of its
        entries' keys.
        """
        units = [np.empty(0, np.int32)]
        key_bytes = np.zeros(max(held.shards, default=0) + 2, np.int64)
        for keys, rows in chosen.parts():
            found = self._find(held, *self._rows(keys, rows))
            # What is not open is counted in the last cell (-1), which no unit has.
            np.add.at(key_bytes, found, np.fromiter(map(len, keys), np.int64, len(keys)))
            units.append(found)
        return np.concatenate(units), key_bytes

    def _passed(self, held: HeldLane, completion: str | None) -> list[ShardId]:
        """The units that were brought to a timeline which shows this commit and later ones."""
        # Thousands of units were brought to few timelines.
        timelines = {id(shown): shown.times for shown in map(self._shown.__getitem__, held.shards)}
        passed = {
            shown
            for shown, times in timelines.items()
            if completion in times and max(times) > str(completion)
        }
        return [number for number in held.shards if id(self._shown[number]) in passed]

    def _forget_hot(
        self, entries: LaneEntries, slots: Int64Array, of_unit: Int32Array, gone: BoolArray
    ) -> None:
        for keys, _, _ in self._parts(Chosen(entries, slots[gone]), of_unit[gone]):
            self._shared.forget_hot(keys)

    def _together(self, held: HeldLane, numbers: Int32Array, sizes: Int64Array) -> Iterator[tuple[int, int]]:
        """Yields [first, end) of neighbouring units that fit into one batch of RocksDB. A larger one comes
        alone: it is written in several, without its record until the last, and none of the others should be
        filled anew if the process is killed meanwhile. One of which a take-over is running comes alone, too.
        """
        taken = [held.shards[ShardId(number)].taken_since is not None for number in numbers.tolist()]
        widths = np.where(np.array(taken, np.bool_), self._batch_bytes + 1, sizes)
        return stretches(widths, len(numbers), self._batch_bytes)

    def _write(
        self,
        held: HeldLane,
        chosen: Chosen,
        of_unit: Int32Array,
        numbers: Int32Array,
        counts: Int64Array,
        completion: str | None,
    ) -> None:
        """Writes the entries of these units; ``of_unit``: the unit of each of them."""
        shards = [held.shards[ShardId(number)] for number in numbers.tolist()]
        # `numbers` ascend, so a unit's place among them is found by binary search.
        generations = np.array([shard.generation for shard in shards], np.uint32)

        def values() -> Iterator[tuple[list[bytes], EntryArray]]:
            for keys, rows, units in self._parts(chosen, of_unit):
                stored = entry_values(rows)
                stored["generation"] = generations[np.searchsorted(numbers, units)]
                yield keys, stored

        self._store.promote_together(shards, values(), counts.tolist(), completion)
        for keys, rows, units in self._parts(chosen, of_unit):
            self._shared.to_hot(keys, rows, units)

    def _parts(
        self, chosen: Chosen, of_unit: Int32Array
    ) -> Iterator[tuple[list[bytes], SlotArray, Int32Array]]:
        """The keys in RocksDB, rows and units of the entries, a part of them at a time."""
        at = 0
        for keys, rows in chosen.parts():
            units = of_unit[at : at + len(keys)]
            at += len(keys)
            names, _ = self._rows(keys, rows)
            yield composite_keys(names, units), rows, units

    def _rows(self, keys: list[bytes], rows: SlotArray) -> tuple[pa.StringArray, Int32Array]:
        """Record keys and partition ids of uncommitted entries."""
        ids = np.ascontiguousarray(rows["shard"])
        used, which = np.unique(ids, return_inverse=True)
        widths = [len(self._locations.partition_names[number].encode()) for number in used.tolist()]
        heads: Int64Array = np.array(widths, np.int64)[which] + _LANE_AND_NUL
        column = BinaryColumn.from_arrow(pa.array(keys, pa.binary()))
        names = gather_rows(column.data, column.offsets[:-1] + heads, column.offsets[1:])
        return names.view(pa.string()), ids
