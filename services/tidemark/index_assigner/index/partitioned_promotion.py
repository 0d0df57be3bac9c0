"""Moves the entries of a committed epoch from memory to RocksDB, with a partitioned record index.

Only units that are open get theirs. What belongs to others is only forgotten: a unit that is opened later is
brought to a snapshot that shows the commit. Tombstones are written for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pyarrow as pa

from tidemark.hudi_format.columnar import BinaryColumn, gather_rows
from tidemark.hudi_format.model import ShardId
from tidemark.index_assigner.domain.locations import Int32Array, Locations
from tidemark.index_assigner.domain.reduce import Int64Array
from tidemark.index_assigner.index.held_lane import HeldLane
from tidemark.index_assigner.index.open_shard import OpenShard
from tidemark.index_assigner.index.promotion import Chosen, Promotion, entry_values
from tidemark.index_assigner.index.rocks_layout import composite_keys
from tidemark.index_assigner.index.shown_timeline import ShownTimeline
from tidemark.index_assigner.index.uncommitted import SlotArray

FindUnits = Callable[[HeldLane, pa.StringArray, Int32Array], Int32Array]
"""(lane, record keys, partition ids) -> the number of each key's unit, -1 where it is not open."""
_LANE_AND_NUL = 3


class PartitionedPromotion:
    """Promotes lanes. ``shown``: the timeline to which each open unit was brought."""

    def __init__(
        self,
        shared: Promotion,
        locations: Locations,
        find: FindUnits,
        shown: Mapping[ShardId, ShownTimeline],
    ) -> None:
        self._shared, self._locations, self._find, self._shown = shared, locations, find, shown

    def promote(self, held: HeldLane, through: int, completion: str | None) -> None:
        """Promotes one lane's entries up to ledger offset ``through``, as `Promotion.promote`."""
        entries = held.entries
        end, position = entries.through(through)
        chosen = Chosen(entries, entries.newest_below(end))
        self._shared.write_tombstones(chosen.tombstones())
        units = [self._find(held, *self._rows(keys, rows)) for keys, rows in chosen.parts()]
        of_unit = np.concatenate([np.empty(0, np.int32), *units])
        # As for shards: sorted by unit, each unit's entries are one range.
        order = np.argsort(of_unit, kind="stable")
        of_unit = of_unit[order]
        for number, shard in held.shards.items():
            first, last = np.searchsorted(of_unit, [number, number + 1]).tolist()
            self._promote_unit(shard, Chosen(entries, chosen.slots[order[first:last]]), completion)
        self._shared.note_position(held.number, position)
        entries.discard_through(through)

    def _promote_unit(self, shard: OpenShard, chosen: Chosen, completion: str | None) -> None:
        shown = self._shown[shard.number].times
        passed = completion in shown and max(shown) > str(completion)
        if passed:
            for keys, _ in self._parts(shard.number, chosen):
                self._shared.forget_hot(keys)
        elif len(chosen):
            values = ((keys, entry_values(rows)) for keys, rows in self._parts(shard.number, chosen))
            self._shared.write_entries(shard, values, len(chosen), completion or shard.stamp)
            for keys, rows in self._parts(shard.number, chosen):
                self._shared.to_hot(keys, rows, shard.number)
        elif completion is not None:
            # Nothing changed, so the stored stamp is as true as this one, and need not be written.
            shard.stamp = max(shard.stamp, completion)

    def _parts(self, number: ShardId, chosen: Chosen) -> Iterator[tuple[list[bytes], SlotArray]]:
        for keys, rows in chosen.parts():
            names, _ = self._rows(keys, rows)
            yield composite_keys(names, np.full(len(names), number, np.int32)), rows

    def _rows(self, keys: list[bytes], rows: SlotArray) -> tuple[pa.StringArray, Int32Array]:
        """Record keys and partition ids of uncommitted entries."""
        ids = np.ascontiguousarray(rows["shard"])
        used, which = np.unique(ids, return_inverse=True)
        widths = [len(self._locations.partition_names[number].encode()) for number in used.tolist()]
        heads: Int64Array = np.array(widths, np.int64)[which] + _LANE_AND_NUL
        column = BinaryColumn.from_arrow(pa.array(keys, pa.binary()))
        names = gather_rows(column.data, column.offsets[:-1] + heads, column.offsets[1:])
        return names.view(pa.string()), ids
