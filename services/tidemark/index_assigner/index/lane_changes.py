"""What open lanes take in: changes of tagged batches, which count or not, and what is read back of a former
owner's transactions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from tidemark.index_assigner.domain.locations import Int32Array, Locations
from tidemark.index_assigner.index.counted_rows import TombstoneRows, changes_of_rows
from tidemark.index_assigner.index.held_lane import HeldLanes
from tidemark.index_assigner.index.ports import StagedChanges
from tidemark.index_assigner.index.rocks import RocksTier
from tidemark.index_assigner.index.tombstones import TombstoneStore


class LaneChanges:
    """The methods of `ports.KeyIndex` for that. Whoever inherits from it has the tiers."""

    _is_partitioned = False
    _held: HeldLanes
    _rocks: RocksTier
    _locations: Locations
    _tombstones: TombstoneStore

    def _cache_keys(self, lane: int, keys: pa.StringArray, shards: Int32Array) -> list[bytes]:
        """The keys by which the lane's memory has these entries."""
        raise NotImplementedError

    def open_lanes(self) -> set[int]:
        """The lanes that answer."""
        return set(self._held)

    def stage(self, lane: int, changes: StagedChanges) -> None:
        """Adds the changes to the lane's memory."""
        keys = self._cache_keys(lane, changes.keys, changes.shards)
        self._held.lane(lane).entries.stage(keys, changes)

    def counted(
        self, lanes: Iterable[int], ledger_offset: int, tombstones_next: Mapping[int, int] | None = None
    ) -> None:
        """Marks the lanes' staged changes as those of the transaction at this ledger offset."""
        for lane in lanes:
            self._held.lane(lane).entries.counted(ledger_offset, (tombstones_next or {}).get(lane))

    def drop_staged(self, lane: int) -> None:
        """Takes the lane's staged changes back that were not counted."""
        self._held.lane(lane).entries.drop_staged()

    def load_counted(
        self,
        lane: int,
        ledger_offset: int,
        index_rows: Iterable[pa.RecordBatch],
        tombstone_rows: Iterable[pa.RecordBatch] = (),
        tombstones_next: int | None = None,
    ) -> None:
        """Stages and counts a former owner's transaction from its rows."""
        tombstones = TombstoneRows(tombstone_rows, self._locations, self._is_partitioned)
        for changes in changes_of_rows(index_rows, tombstones, self._locations):
            self.stage(lane, changes)
        self._held.lane(lane).entries.counted(ledger_offset, tombstones_next)

    def tombstones_position(self, lane: int) -> int:
        """The first offset of the lane's tombstones partition that RocksDB does not have."""
        return self._tombstones.position(lane)

    def load_tombstones(self, lane: int, rows: Iterable[pa.RecordBatch], position: int) -> None:
        """Writes committed tombstones and their new position to RocksDB, in one batch."""
        loaded = TombstoneRows(rows, self._locations, self._is_partitioned)
        keys = self._cache_keys(lane, loaded.keys, loaded.shards)
        put = self._tombstones.merged(keys, loaded.rows)
        self._rocks.write([put, self._tombstones.position_put(lane, position)])

    def uncommitted_entries(self) -> int:
        """Entries in memory that no committed epoch covers, of all open lanes."""
        return self._held.uncommitted_entries()

    def uncommitted_memory(self) -> int:
        """Bytes of lanes with such entries: what no commit gives back must not keep tagging at rest."""
        return self._held.uncommitted_memory()
