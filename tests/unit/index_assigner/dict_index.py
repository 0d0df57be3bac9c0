"""A `KeyIndex` on dictionaries: what the tiers promise, without tiers; strict with its callers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tidemark.epoch_protocol import seen
from tidemark.epoch_protocol.batches import EXACT, EXPIRES, FILE_ID, KEY, OP, ORDERING, PARTITION, IndexOp
from tidemark.hudi_format.metadata_table import MetadataTableSnapshot
from tidemark.index_assigner.domain.locations import NO_LOCATION, Int32Array, Locations
from tidemark.index_assigner.domain.reduce import BoolArray, Int64Array
from tidemark.index_assigner.domain.tag import StoredKeys
from tidemark.index_assigner.index.ports import LookupAnswer, StagedChanges, Tier, WarmProgress


@dataclass(frozen=True)
class Known:
    """``location`` NO_LOCATION: the key is gone, ``ordering`` is its tombstone's."""

    location: int
    ordering: int | None
    exact: bool
    deleted_from: int = NO_LOCATION


@dataclass
class DictLane:
    committed: dict[str, Known] = field(default_factory=dict)
    counted: list[tuple[int, dict[str, Known]]] = field(default_factory=list)
    staged: dict[str, Known] = field(default_factory=dict)

    def find(self, key: str) -> tuple[Known | None, Tier]:
        for layer in (self.staged, *(entries for _, entries in reversed(self.counted))):
            if key in layer:
                return layer[key], Tier.UNCOMMITTED
        known = self.committed.get(key)
        return known, Tier.NONE if known is None else Tier.ROCKSDB


class DictIndex:
    """``stored``: per lane what is committed, shared by all owners of a table (its metadata table)."""

    def __init__(
        self,
        locations: Locations,
        stored: Callable[[int], dict[str, Known]] = lambda lane: {},
        exact: Callable[[str], int] | None = None,
    ) -> None:
        self._locations = locations
        self._stored = stored
        self._exact = exact
        self.lanes: dict[int, DictLane] = {}
        self.promoted: list[tuple[int, str | None, int]] = []
        self.exact_asked: list[str] = []
        self.hidden: Callable[[str, int, int], bool] = lambda key, location, ordering: False

    def open_lane(self, lane: int, snapshot: MetadataTableSnapshot, known: seen.Known | None = None) -> None:
        self.lanes[lane] = DictLane(dict(self._stored(lane)))

    def close_lane(self, lane: int) -> None:
        self.lanes.pop(lane, None)

    def open_lanes(self) -> set[int]:
        return set(self.lanes)

    def lookup(self, lane: int, keys: pa.StringArray, shards: Int32Array) -> LookupAnswer:
        names = keys.to_pylist()
        assert len(set(names)) == len(names) == len(shards), "keys are unique"
        found = [self.lanes[lane].find(name) for name in names]
        known = [each or Known(NO_LOCATION, None, False) for each, _ in found]
        return LookupAnswer(
            stored=StoredKeys(
                present=np.array([k.location != NO_LOCATION for k in known], np.bool_),
                location=np.array([k.location for k in known], np.int32),
                ordering=np.array([k.ordering or 0 for k in known], np.int64),
                has_ordering=np.array([k.ordering is not None for k in known], np.bool_),
                exact=np.array([k.exact for k in known], np.bool_),
            ),
            tier=np.array([tier for _, tier in found], np.int8),
            deleted_from=np.array([k.deleted_from for k in known], np.int32),
        )

    def exact_ordering(self, lane: int, keys: pa.StringArray, locations: Int32Array) -> Int64Array:
        assert self._exact is not None
        self.exact_asked += keys.to_pylist()
        newest = [max(self._exact(key), self._uncommitted_ordering(lane, key)) for key in keys.to_pylist()]
        return np.array(newest, np.int64)

    def is_masked_by_delete(
        self, keys: pa.StringArray, locations: Int32Array, ordering: Int64Array
    ) -> BoolArray:
        rows = zip(keys.to_pylist(), locations.tolist(), ordering.tolist(), strict=True)
        return np.array([self.hidden(*row) for row in rows], np.bool_)

    def _uncommitted_ordering(self, lane: int, key: str) -> int:
        held = self.lanes[lane]
        layers = [held.staged, *(entries for _, entries in held.counted)]
        values = [layer[key].ordering for layer in layers if key in layer and layer[key].location >= 0]
        return max((value for value in values if value is not None), default=-1)

    def stage(self, lane: int, changes: StagedChanges) -> None:
        held = self.lanes[lane]
        assert not held.staged, "one batch is staged at a time"
        for at, key in enumerate(changes.keys.to_pylist()):
            assert key not in held.staged, "keys are unique"
            held.staged[key] = Known(
                int(changes.location[at]),
                int(changes.ordering[at]) if changes.has_ordering[at] else None,
                bool(changes.exact[at]),
                int(changes.deleted_from[at]),
            )

    def counted(
        self, lanes: Iterable[int], ledger_offset: int, tombstones_next: Mapping[int, int] | None = None
    ) -> None:
        for lane in lanes:
            held = self.lanes[lane]
            assert all(offset < ledger_offset for offset, _ in held.counted)
            held.counted.append((ledger_offset, held.staged))
            held.staged = {}

    def drop_staged(self, lane: int) -> None:
        self.lanes[lane].staged = {}

    def load_counted(
        self,
        lane: int,
        ledger_offset: int,
        index_rows: Iterable[pa.RecordBatch],
        tombstone_rows: Iterable[pa.RecordBatch] = (),
        tombstones_next: int | None = None,
    ) -> None:
        entries: dict[str, Known] = {}
        for batch in index_rows:
            for row in batch.to_pylist():
                location = self._locations.intern(row[PARTITION], row[FILE_ID])
                gone = row[OP] == IndexOp.DELETE
                entries[row[KEY]] = Known(
                    NO_LOCATION if gone else location,
                    row[ORDERING],
                    row[EXACT],
                    location if gone else NO_LOCATION,
                )
        for batch in tombstone_rows:
            for row in batch.to_pylist():
                assert row[EXPIRES] > 0
                unknown = row[FILE_ID] is None
                at = NO_LOCATION if unknown else self._locations.intern(row[PARTITION], row[FILE_ID])
                entries[row[KEY]] = Known(NO_LOCATION, row[ORDERING], True, at)
        self.lanes[lane].counted.append((ledger_offset, entries))

    def tombstones_position(self, lane: int) -> int:
        return 0

    def load_tombstones(self, lane: int, rows: Iterable[pa.RecordBatch], position: int) -> None:
        committed = self.lanes[lane].committed
        for batch in rows:
            for row in batch.to_pylist():
                known = committed.get(row[KEY])
                if known is None or known.location == NO_LOCATION:
                    value = max(row[ORDERING], known.ordering or row[ORDERING] if known else row[ORDERING])
                    committed[row[KEY]] = Known(NO_LOCATION, value, True)

    def promote(self, through: int, completion: str | None, epoch: int, instant: str | None = None) -> None:
        self.promoted.append((through, completion, epoch))
        for held in self.lanes.values():
            for offset, entries in held.counted:
                if offset <= through:
                    held.committed.update(entries)
            held.counted = [each for each in held.counted if each[0] > through]

    def rewind(self) -> None:
        self.lanes.clear()

    def warm(self, start: bool) -> WarmProgress:
        return WarmProgress(len(self.lanes), len(self.lanes), 0, 0, 0)

    def load_on(self) -> None:
        return None

    def uncommitted_memory(self) -> int:
        return 100 * self.uncommitted_entries()

    def uncommitted_entries(self) -> int:
        return sum(
            len(held.staged) + sum(len(entries) for _, entries in held.counted)
            for held in self.lanes.values()
        )

    def stats(self) -> dict[str, float]:
        return {"lanes": float(len(self.lanes))}
