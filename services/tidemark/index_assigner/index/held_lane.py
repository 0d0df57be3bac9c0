"""What the index holds of a lane that is open here."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemark.hudi_format.model import ShardId
from tidemark.index_assigner.index.shards import OpenShard
from tidemark.index_assigner.index.shown_timeline import ShownTimeline
from tidemark.index_assigner.index.uncommitted import LaneEntries


@dataclass(slots=True)
class HeldLane:
    """A lane that is open here; ``shown``: of the snapshot that its shards were last brought to."""

    number: int
    shown: ShownTimeline
    shards: dict[ShardId, OpenShard] = field(default_factory=dict)
    entries: LaneEntries = field(default_factory=LaneEntries)
