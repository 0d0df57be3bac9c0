"""Where an epoch stands, and which entry of the decisions moves it; the fold takes no other
(docs/lifecycles.md has the picture).

There is one epoch at a time that is not committed: the one after the last committed. It gathers transactions
until it is planned. An attempt that is void takes it back to where it gathered.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, TypeAlias

from tidemark.epoch_protocol.entries import (
    AttemptVoided,
    CommitDecided,
    EpochCommitted,
    EpochPlanned,
    Rewound,
)
from tidemark.epoch_protocol.state import FoldState

EpochStep: TypeAlias = EpochPlanned | CommitDecided | EpochCommitted | AttemptVoided | Rewound


class EpochStatus(Enum):
    """``PLANNED``: an attempt is planned and may be open, or written. ``DECIDED``: it will be committed."""

    GATHERING = "gathering"
    PLANNED = "planned"
    DECIDED = "decided"
    COMMITTED = "committed"


EPOCH_STEPS: Final[Mapping[tuple[EpochStatus, type[EpochStep]], EpochStatus]] = {
    (EpochStatus.GATHERING, EpochPlanned): EpochStatus.PLANNED,
    (EpochStatus.GATHERING, Rewound): EpochStatus.GATHERING,
    (EpochStatus.PLANNED, CommitDecided): EpochStatus.DECIDED,
    # Without rows there is nothing to decide.
    (EpochStatus.PLANNED, EpochCommitted): EpochStatus.COMMITTED,
    (EpochStatus.PLANNED, AttemptVoided): EpochStatus.GATHERING,
    # Former versions put a decision in another one's place.
    (EpochStatus.DECIDED, CommitDecided): EpochStatus.DECIDED,
    (EpochStatus.DECIDED, EpochCommitted): EpochStatus.COMMITTED,
    # The lock was lost and nothing is completed: the decision is taken back.
    (EpochStatus.DECIDED, AttemptVoided): EpochStatus.GATHERING,
}


def epoch_status(state: FoldState) -> EpochStatus:
    """The status of the epoch that comes after the last committed one. So it is never COMMITTED."""
    if state.planned is None:
        return EpochStatus.GATHERING
    return EpochStatus.PLANNED if state.decided is None else EpochStatus.DECIDED


def may_follow(state: FoldState, entry: EpochStep) -> bool:
    """Whether the table has such a step from where the epoch stands."""
    return (epoch_status(state), type(entry)) in EPOCH_STEPS
