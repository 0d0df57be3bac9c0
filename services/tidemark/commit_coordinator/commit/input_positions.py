"""How far the input is read and committed, by input lane (``topic:partition``).

With a shuffle stage, its lanes are the input lanes. With `input.partitioning: shard` there is none: the
assign stage reads the input itself, and its lane ``n`` is partition ``n`` of the one input topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidemark.epoch_protocol.committing import keyed_positions, source_positions
from tidemark.epoch_protocol.lanes import shuffle_lane
from tidemark.epoch_protocol.state import FoldState, LaneState


@dataclass(frozen=True)
class InputPositions:
    """Positions are next offsets. ``sharded_topic``: the input topic that producers partition by lane, None
    with a shuffle stage.
    """

    sharded_topic: str | None = None

    def committed(self, state: FoldState) -> dict[str, int]:
        """Input lane -> position up to which every record is committed in the table."""
        if self.sharded_topic is None:
            return dict(state.committed.source_next)
        return self._input_lanes(state.committed.keyed_next)

    def committed_by(self, state: FoldState, through: int) -> dict[str, int]:
        """What `committed` will say once the epoch that ends with ledger offset ``through`` is committed."""
        if self.sharded_topic is None:
            return source_positions(state, through)
        return self._input_lanes(keyed_positions(state, through))

    def taken(self, state: FoldState) -> dict[str, int]:
        """Input lane -> position up to which every record is in Tidemark's topics."""
        if self.sharded_topic is None:
            return _positions(state.shuffle_lanes)
        return self._input_lanes(_positions(state.assign_lanes))

    def _input_lanes(self, lanes: Mapping[str, int]) -> dict[str, int]:
        assert self.sharded_topic is not None
        return {shuffle_lane(self.sharded_topic, int(lane)): position for lane, position in lanes.items()}


def _positions(lanes: Mapping[str, LaneState]) -> dict[str, int]:
    return {name: lane.next for name, lane in lanes.items()}
