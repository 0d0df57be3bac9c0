"""Lifecycle of a lane in the hands of one owner (both stages).

::

    RELEASED ──lease──► GRANTED ──claim appended──► CLAIMED ──own claim read back──► CURRENT
        ▲                  ▲                            │                              │
        │                  └───────── DOUBTFUL ◄────────┴──── abort, doubt, uncounted ─┤
        └──────────────────────────── lease taken away or ended ◄──────────────────────┘

`LANE_TRANSITIONS` has these steps, docs/lifecycles.md the picture. Who may move it: the lease keeper
GRANTED and RELEASED, the transaction loop the rest. An owner works on a lane only while it is CURRENT, and
drops all it holds in memory for the lane on the way to CLAIMED (ARCHITECTURE.md, "What counts", Claim).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from tidemark.epoch_protocol.errors import InvalidTransitionError
from tidemark.epoch_protocol.fold import Verdict


class LaneStatus(Enum):
    """Where a lane stands for its owner."""

    RELEASED = "released"
    GRANTED = "granted"
    CLAIMED = "claimed"
    CURRENT = "current"
    DOUBTFUL = "doubtful"


LANE_TRANSITIONS: Final[Mapping[LaneStatus, frozenset[LaneStatus]]] = {
    LaneStatus.RELEASED: frozenset({LaneStatus.GRANTED}),
    LaneStatus.GRANTED: frozenset({LaneStatus.CLAIMED, LaneStatus.RELEASED}),
    LaneStatus.CLAIMED: frozenset({LaneStatus.CURRENT, LaneStatus.DOUBTFUL, LaneStatus.RELEASED}),
    LaneStatus.CURRENT: frozenset({LaneStatus.DOUBTFUL, LaneStatus.RELEASED}),
    LaneStatus.DOUBTFUL: frozenset({LaneStatus.GRANTED, LaneStatus.RELEASED}),
}
assert set(LANE_TRANSITIONS) == set(LaneStatus)


def move(current: LaneStatus, target: LaneStatus) -> LaneStatus:
    """The target, or InvalidTransitionError when the table does not list the move."""
    if target not in LANE_TRANSITIONS[current]:
        raise InvalidTransitionError(f"a lane cannot go from {current.value} to {target.value}")
    return target


def must_claim_anew(verdict: Verdict) -> bool:
    """Whether the owner of a transaction with this verdict has lost its claim on the lanes."""
    return verdict in (Verdict.STALE_TERM, Verdict.STALE_GENERATION, Verdict.STALE_POSITION)
