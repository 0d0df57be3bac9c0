"""Decides when a suspect lane stops, and at which offset. Pure.

::

    AHEAD ──reader dies──► ALONE ──dies at an offset──► once at that offset ──dies there again──► deadly
      ▲                      │ ▲                              │
      └──enough were alone───┘ └──────a record was taken──────┘

1. AHEAD: the child fetches several record batches at a time. If it dies, any of the fetched records may be
   the cause. So from then on the lane is read alone.
2. ALONE: the child fetches one record batch, ends its client, and decodes the records one by one. If it
   dies, the record at the offset may be the cause, or somebody killed the process by hand.
3. A second death at the same offset makes the record deadly: the lane stops there.

Only signals that a record can lead to count as a death. SIGTERM and the like come from whoever ends a
service.

A child that says nothing for minutes while it decodes one record alone hangs in it. Its parent ends it, and
that counts as a death. A child that says nothing while it fetches may wait for a network or a disk. That
names no offset; but from then on the lane is read alone, which shows whether a record is the cause.
"""

from __future__ import annotations

from signal import SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGKILL, SIGSEGV
from typing import Final, NamedTuple

_BY_A_RECORD: Final = frozenset({SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGKILL, SIGSEGV})

RECORDS_ALONE: Final = 300
"""How many records are read alone after a death, before the lane is read ahead again."""
DEATHS_MAX: Final = 2
"""How many deaths at one offset, while it was read alone, make its record deadly."""


class CarefulLane(NamedTuple):
    """State of a suspect lane.

    ``next``: the first offset that is not proven harmless. ``alone``: how many records are still to be read
    alone; 0: AHEAD. ``deaths``: of children that read ``next`` alone. ``hangs``: how many of those the parent
    ended, because they said nothing.
    """

    next: int
    alone: int = 0
    deaths: int = 0
    hangs: int = 0

    @property
    def is_deadly(self) -> bool:
        """Whether the record at ``next`` ends the processes that read it."""
        return self.deaths >= DEATHS_MAX

    @property
    def is_hanging(self) -> bool:
        """Whether decoding the record at ``next`` never ends: all deaths there were hangs."""
        return self.is_deadly and self.hangs == self.deaths


def taken(lane: CarefulLane, after: int, records: int) -> CarefulLane:
    """The state after the child decoded ``records`` records; ``after`` is the offset behind the last."""
    return CarefulLane(after, max(lane.alone - records, 0))


def decoding(lane: CarefulLane, offset: int) -> CarefulLane:
    """The state once the next record was fetched alone and is at ``offset``: no record lies before it.

    When that is another offset than ``next``, deaths at ``next`` are forgotten: no record is there.
    """
    return lane if lane.next == offset else CarefulLane(offset, lane.alone)


def is_death(exit_code: int) -> bool:
    """Whether a record may have ended the process. A negative code is a signal, as in `subprocess`."""
    return -exit_code in _BY_A_RECORD


def died(lane: CarefulLane) -> CarefulLane:
    """The state after the child died of a signal that a record can lead to."""
    if not lane.alone:
        return CarefulLane(lane.next, RECORDS_ALONE)
    return CarefulLane(lane.next, RECORDS_ALONE, lane.deaths + 1, lane.hangs)


def hung(lane: CarefulLane) -> CarefulLane:
    """The state after the parent ended a child that said nothing while it decoded ``next`` alone."""
    return CarefulLane(lane.next, RECORDS_ALONE, lane.deaths + 1, lane.hangs + 1)
