"""The index's state of an open lane."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemark.hudi_format.model import ShardId
from tidemark.index_assigner.index.open_shard import OpenShard
from tidemark.index_assigner.index.shown_timeline import ShownTimeline
from tidemark.index_assigner.index.uncommitted import LaneEntries


@dataclass(slots=True)
class HeldLane:
    """An open lane: its shards in RocksDB, and its uncommitted entries in memory.

    ``shown``: the timeline of the snapshot to which the shards were last brought.
    """

    number: int
    shown: ShownTimeline
    shards: dict[ShardId, OpenShard] = field(default_factory=dict)
    entries: LaneEntries = field(default_factory=LaneEntries)
