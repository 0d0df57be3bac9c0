"""The states of a lane while one owner (shuffler or assigner) holds it.

::

    RELEASED ──lease──► GRANTED ──claim appended──► CLAIMED ──own claim read back──► CURRENT
        ▲                  ▲                            │                              │
        │                  └───────── DOUBTFUL ◄────────┴──── abort, doubt, uncounted ─┤
        └──────────────────────────── lease taken away or ended ◄──────────────────────┘

`LANE_TRANSITIONS` holds these steps, docs/lifecycles.md the picture. The lease keeper moves a lane to GRANTED
and RELEASED; the transaction loop makes all other moves. An owner works on a lane only while it is CURRENT.
Before it claims a lane (the move to CLAIMED) it drops everything that it holds in memory for it
(ARCHITECTURE.md, "What counts").
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from tidemark.epoch_protocol.errors import LaneTransitionError
from tidemark.epoch_protocol.fold import Verdict


class LaneStatus(Enum):
    """The state of a lane, as its owner keeps it."""

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
    """Returns ``target``. Raises LaneTransitionError when the table does not list the move."""
    if target not in LANE_TRANSITIONS[current]:
        raise LaneTransitionError(f"a lane cannot go from {current.value} to {target.value}")
    return target


def must_claim_anew(verdict: Verdict) -> bool:
    """Whether an owner whose transaction got this verdict has lost its lanes and must claim them again."""
    return verdict in (Verdict.STALE_TERM, Verdict.STALE_GENERATION, Verdict.STALE_POSITION)
