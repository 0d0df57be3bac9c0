"""What the tests of the assign stage share: keyed rows by hand, leases by hand, and a table's last writer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from tidemark.epoch_protocol.batches import KEYED_COLUMNS, KeyedOp, with_user_columns
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.hudi_format.schema import TableSchema
from tidemark.index_assigner.assign.placement import InsertLease, Want
from tidemark.stream_runtime.errors import DeadlineExceededError

SHARDS, LANES, DATA_PARTITIONS = 4, 2, 2
SCHEMA = TableSchema.from_arrow(
    "orders",
    pa.schema(
        [
            pa.field("id", pa.string(), nullable=False),
            pa.field("day", pa.string(), nullable=False),
            pa.field("at", pa.int64()),
            pa.field("note", pa.string()),
        ]
    ),
)
KEYED_SCHEMA = with_user_columns(KEYED_COLUMNS, SCHEMA.arrow)


@dataclass(frozen=True)
class Event:
    """``at`` None: no ordering value; ``day`` None: a delete that does not know its partition."""

    key: str
    day: str | None = "d1"
    at: int | None = None
    delete: bool = False
    note: str = ""

    @property
    def shard(self) -> int:
        return int(record_index_shard(pa.array([self.key]), SHARDS)[0])

    @property
    def lane(self) -> int:
        return self.shard % LANES


def keyed_rows(events: Sequence[Event]) -> pa.RecordBatch:
    """Rows as the shuffle stage makes them."""
    op = [int(KeyedOp.DELETE if e.delete else KeyedOp.UPSERT) for e in events]
    user = [None if e.delete else e for e in events]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([e.key for e in events], pa.string()),
            pa.array([e.shard for e in events], pa.int32()),
            pa.array([e.day for e in events], pa.string()).dictionary_encode(),
            pa.array([e.at for e in events], pa.int64()),
            pa.array(op, pa.int8()),
            pa.array([e and e.key for e in user], pa.string()),
            pa.array([e and e.day for e in user], pa.string()),
            pa.array([e and e.at for e in user], pa.int64()),
            pa.array([e and e.note for e in user], pa.string()),
        ],
        schema=KEYED_SCHEMA,
    )


@dataclass
class HandLeases:
    """Leases of ``room`` inserts; new file groups all the time. ``down``: the coordinator is away."""

    room: int = 3
    down: bool = False
    asked: list[list[Want]] = field(default_factory=list)
    made: int = 0

    def lease(self, wants: Sequence[Want]) -> list[InsertLease]:
        if self.down:
            raise DeadlineExceededError("the coordinator is away")
        self.asked.append(list(wants))
        leases = []
        for want in wants:
            left = want.records
            while left > 0:
                leases.append(InsertLease(want.partition_path, f"fg-{self.made}", self.room))
                self.made += 1
                left -= self.room
        return leases
