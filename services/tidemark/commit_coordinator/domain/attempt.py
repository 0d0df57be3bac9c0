"""The status of an attempt at an epoch, as one coordinator sees it (picture: docs/lifecycles.md).

A coordinator that dies takes what it saw with it. Its successor knows only the decisions, which say PLANNED,
DECIDED or VOID, and continues from there. So each step may be made twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class AttemptStatus(Enum):
    """The comment at each status says what the coordinator does next."""

    # Open the attempt; without rows append `EpochCommitted` at once.
    PLANNED = "planned"
    # Wait for the writer's report.
    OPENED = "opened"
    # Decide.
    REPORTED = "reported"
    # Finish.
    DECIDED = "decided"
    # Void the attempt: it cannot commit.
    LOST = "lost"
    # Roll its instant back.
    VOID = "void"
    # Nothing more, for both.
    COMMITTED = "committed"
    ROLLED_BACK = "rolled_back"


ATTEMPT_TRANSITIONS: Final[Mapping[AttemptStatus, frozenset[AttemptStatus]]] = {
    AttemptStatus.PLANNED: frozenset({
        AttemptStatus.OPENED, AttemptStatus.LOST, AttemptStatus.COMMITTED
    }),
    AttemptStatus.OPENED: frozenset({AttemptStatus.REPORTED, AttemptStatus.LOST}),
    AttemptStatus.REPORTED: frozenset({AttemptStatus.DECIDED, AttemptStatus.LOST}),
    AttemptStatus.DECIDED: frozenset({AttemptStatus.COMMITTED, AttemptStatus.LOST}),
    AttemptStatus.LOST: frozenset({AttemptStatus.VOID}),
    AttemptStatus.VOID: frozenset({AttemptStatus.ROLLED_BACK}),
    AttemptStatus.COMMITTED: frozenset(),
    AttemptStatus.ROLLED_BACK: frozenset(),
}  # fmt: skip
assert set(ATTEMPT_TRANSITIONS) == set(AttemptStatus)
