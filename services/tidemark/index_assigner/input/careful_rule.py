"""When a lane that is read apart stops, and where; pure.

::

    AHEAD ──reader dies──► ALONE ──dies at an offset──► once at that offset ──dies there again──► deadly
      ▲                      │ ▲                              │
      └──enough were alone───┘ └──────a record was taken──────┘

Ahead, what is behind the next record may be fetched already: a death says no more than that it is near.
Alone, nothing but the next record's batch is fetched, and nothing is fetched while its records are decoded,
one by one.
Only two deaths alone at one offset name it, so nobody who kills processes by hand stops a healthy lane. And
only a signal that a record can lead to is a death: SIGTERM and the like come from who ends a service.

Who decodes one record alone, and says nothing for minutes, hangs: its parent ends it, and that is a death,
too. Who says nothing while it fetches may wait for a network or a disk: that names no offset, but from then
on the lane is read alone, which tells.
"""

from __future__ import annotations

from signal import SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGKILL, SIGSEGV
from typing import Final, NamedTuple

_BY_A_RECORD: Final = frozenset({SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGKILL, SIGSEGV})

RECORDS_ALONE: Final = 300
"""How many are read alone after a death, before the lane is read ahead again."""
DEATHS_MAX: Final = 2


class CarefulLane(NamedTuple):
    """``next``: the first offset that is not proven to be harmless. ``alone``: records still to be read
    alone. ``deaths``: alone, at ``next``; ``hangs``: those of them that were none until somebody ended them.
    """

    next: int
    alone: int = 0
    deaths: int = 0
    hangs: int = 0

    @property
    def is_deadly(self) -> bool:
        """Whether what lies at ``next`` ends whoever reads it."""
        return self.deaths >= DEATHS_MAX

    @property
    def is_hanging(self) -> bool:
        """Whether whoever decodes what lies at ``next`` never ends."""
        return self.is_deadly and self.hangs == self.deaths


def taken(lane: CarefulLane, after: int, records: int) -> CarefulLane:
    """Records up to ``after`` came out of the reader."""
    return CarefulLane(after, max(lane.alone - records, 0))


def decoding(lane: CarefulLane, offset: int) -> CarefulLane:
    """The next record was fetched alone, and lies at the offset: no record lies before it."""
    return lane if lane.next == offset else CarefulLane(offset, lane.alone)


def is_death(exit_code: int) -> bool:
    """Whether a record may have ended the process; negative codes are signals, as `subprocess` has it."""
    return -exit_code in _BY_A_RECORD


def died(lane: CarefulLane) -> CarefulLane:
    """The reader died."""
    if not lane.alone:
        return CarefulLane(lane.next, RECORDS_ALONE)
    return CarefulLane(lane.next, RECORDS_ALONE, lane.deaths + 1, lane.hangs)


def hung(lane: CarefulLane) -> CarefulLane:
    """The reader was ended, since it said nothing while it decoded the record at ``next`` alone."""
    return CarefulLane(lane.next, RECORDS_ALONE, lane.deaths + 1, lane.hangs + 1)
