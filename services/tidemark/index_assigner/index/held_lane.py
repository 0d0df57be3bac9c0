"""The index's state of its open lanes."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemark.hudi_format.model import ShardId
from tidemark.index_assigner.index.errors import LaneNotOpenError
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


class HeldLanes(dict[int, HeldLane]):
    """The open lanes by number."""

    def lane(self, number: int) -> HeldLane:
        """The lane. Raises LaneNotOpenError."""
        held = self.get(number)
        if held is None:
            raise LaneNotOpenError(f"lane {number} is not open: claim it and call open_lane first")
        return held

    def is_present(self, shard: OpenShard) -> bool:
        """Whether this opening of a shard is the present one."""
        return any(held.shards.get(shard.number) is shard for held in self.values())

    def openings(self) -> list[OpenShard]:
        """The open shards of all lanes."""
        return [shard for held in self.values() for shard in held.shards.values()]

    def of_gone_bases(self) -> list[HeldLane]:
        """The lanes with shards whose loads did not find their base files any more."""
        return [held for held in self.values() if any(s.is_base_gone for s in held.shards.values())]

    def shards(self) -> set[ShardId]:
        """Their numbers."""
        return {number for held in self.values() for number in held.shards}

    def uncommitted_entries(self) -> int:
        """Entries in memory that no committed epoch covers."""
        return sum(len(held.entries) for held in self.values())

    def uncommitted_memory(self) -> int:
        """Bytes of lanes with such entries: what no commit gives back must not keep tagging at rest."""
        return sum(held.entries.nbytes for held in self.values() if len(held.entries))

    def memory(self) -> int:
        """Bytes of the uncommitted entries of all lanes."""
        return sum(held.entries.nbytes for held in self.values())
