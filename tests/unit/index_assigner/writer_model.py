"""A writer and a reader of the assign stage's batches, row by row: rows by file group, the index, tombstones.

Strict: deletes go where the key is, inserts where it is not, and the index names the group that has the row.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tests.unit.index_assigner.assign_rig import DATA_PARTITIONS, LANES, SCHEMA
from tidemark.epoch_protocol.batches import (
    EXPIRES,
    FILE_ID,
    KEY,
    OP,
    ORDERING,
    PARTITION,
    SHARD,
    DataOp,
    IndexOp,
)
from tidemark.epoch_protocol.entries import Topic
from tidemark.index_assigner.domain.locations import data_partition

Place = tuple[str, str]


class WriterModel:
    """Batches of a topic-partition are applied in (ledger order, sequence)."""

    def __init__(self, ordered: bool) -> None:
        self.ordered = ordered
        self.groups: dict[Place, dict[str, dict[str, Any]]] = {}
        self.index: dict[str, Place] = {}
        self.tombstones: dict[str, int] = {}
        self.expires_ms: list[int] = []

    def apply(self, topic: Topic, partition: int, rows: pa.RecordBatch) -> None:
        """One batch."""
        take = {Topic.DATA: self._data, Topic.INDEX: self._index, Topic.TOMBSTONES: self._tombstone}[topic]
        for row in rows.to_pylist():
            take(partition, row)

    def _data(self, partition: int, row: dict[str, Any]) -> None:
        place = (row[PARTITION], row[FILE_ID])
        assert partition == data_partition(*place, DATA_PARTITIONS)
        rows, key = self.groups.setdefault(place, {}), row[KEY]
        if row[OP] == DataOp.DELETE:
            assert all(row[name] is None for name in SCHEMA.arrow.names)
            assert rows.pop(key, None) is not None, f"{key} is deleted where it is not"
            return
        assert row["id"] == key
        assert (key in rows) == (row[OP] == DataOp.UPDATE), (key, DataOp(row[OP]))
        if self.ordered and key in rows and row["at"] < rows[key]["at"]:
            return
        rows[key] = row

    def _index(self, partition: int, row: dict[str, Any]) -> None:
        assert partition == row[SHARD] % LANES
        key, place = row[KEY], (row[PARTITION], row[FILE_ID])
        if row[OP] == IndexOp.DELETE:
            assert self.index.pop(key) == place
        elif row[OP] == IndexOp.UNCHANGED:
            assert self.index[key] == place
        else:
            self.index[key] = place
            self.tombstones.pop(key, None)

    def _tombstone(self, partition: int, row: dict[str, Any]) -> None:
        assert partition == row[SHARD] % LANES
        self.expires_ms.append(row[EXPIRES])
        self.tombstones[row[KEY]] = row[ORDERING]

    def ordering_of(self, key: str) -> int:
        """The stored ordering value of a live key."""
        (found,) = [rows[key]["at"] for rows in self.groups.values() if key in rows]
        return int(found)

    def live(self) -> dict[str, tuple[str, int | None]]:
        """Key -> (table partition, ordering value), after checking that index and rows agree."""
        found = [(key, place, row) for place, rows in self.groups.items() for key, row in rows.items()]
        assert len({key for key, _, _ in found}) == len(found), "a key lives once"
        assert {key: place for key, place, _ in found} == self.index
        return {key: (place[0], row["at"]) for key, place, row in found}
