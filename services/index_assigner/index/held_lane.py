"""What the index is given about ordering values, and what it holds of a lane that is open here."""

from __future__ import annotations

from dataclasses import dataclass, field

from hudi_format.ordering import OrderingField
from hudi_format.schema import TableSchema
from hudi_format.table_config import MergeMode
from index_assigner.index.shards import OpenShard
from index_assigner.index.uncommitted import LaneEntries


@dataclass(frozen=True, slots=True)
class OrderingParts:
    """What is needed to read stored ordering values from file slices."""

    schema: TableSchema
    mode: MergeMode
    field: OrderingField | None


@dataclass(slots=True)
class HeldLane:
    """A lane that is open here."""

    number: int
    stamp: str
    shards: dict[int, OpenShard] = field(default_factory=dict)
    entries: LaneEntries = field(default_factory=LaneEntries)
