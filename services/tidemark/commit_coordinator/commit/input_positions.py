"""How far the input is read and committed, per input lane (``topic:partition``), whichever way it is read.

With a shuffle stage its lanes are the input's. With `input.partitioning: shard` the assign stage reads the
input itself (lane = partition), and its positions are the input's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidemark.epoch_protocol.committing import keyed_positions, source_positions
from tidemark.epoch_protocol.lanes import shuffle_lane
from tidemark.epoch_protocol.state import FoldState, LaneState


@dataclass(frozen=True)
class InputPositions:
    """``sharded_topic``: the input topic that producers partition by lane; None: there is a shuffle stage."""

    sharded_topic: str | None = None

    def committed(self, state: FoldState) -> dict[str, int]:
        """Per input lane the position up to which everything is in the table."""
        if self.sharded_topic is None:
            return dict(state.committed.source_next)
        return self._input_lanes(state.committed.keyed_next)

    def committed_by(self, state: FoldState, through: int) -> dict[str, int]:
        """As `committed`, once the epoch that ends with ledger offset ``through`` is committed."""
        if self.sharded_topic is None:
            return source_positions(state, through)
        return self._input_lanes(keyed_positions(state, through))

    def taken(self, state: FoldState) -> dict[str, int]:
        """Per input lane the position up to which it is in Tidemark's topics."""
        if self.sharded_topic is None:
            return _positions(state.shuffle_lanes)
        return self._input_lanes(_positions(state.assign_lanes))

    def _input_lanes(self, lanes: Mapping[str, int]) -> dict[str, int]:
        assert self.sharded_topic is not None
        return {shuffle_lane(self.sharded_topic, int(lane)): position for lane, position in lanes.items()}


def _positions(lanes: Mapping[str, LaneState]) -> dict[str, int]:
    return {name: lane.next for name, lane in lanes.items()}
