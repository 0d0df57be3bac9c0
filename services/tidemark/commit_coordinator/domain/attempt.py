"""Where an attempt at an epoch stands for the coordinator, in one life of it (picture: docs/lifecycles.md).

What a life has seen may be lost at any moment: a successor begins with what the decisions say, which is
PLANNED, DECIDED or VOID, and goes from there. So each step may be made twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class AttemptStatus(Enum):
    """What the coordinator does next: opens it (or closes it, without rows), waits for the writer, decides,
    finishes, voids it, rolls it back; nothing more where it is committed or rolled back.
    """

    PLANNED = "planned"
    OPENED = "opened"
    REPORTED = "reported"
    DECIDED = "decided"
    LOST = "lost"
    VOID = "void"
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
