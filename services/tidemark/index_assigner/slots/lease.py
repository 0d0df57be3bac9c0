"""A slot's lease as the transaction loop sees it, and the lanes of one slot, each with its status in the
ownership lifecycle (`epoch_protocol.owner`). `MembershipClient` renews the lease; tests use a double.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from tidemark.epoch_protocol.input_topics import EmptyRange
from tidemark.epoch_protocol.owner import LaneStatus, move
from tidemark.epoch_protocol.state import LaneState
from tidemark.epoch_protocol.stopped_lanes import SkipOrder, SkipResult, StoppedLane


@dataclass(frozen=True)
class StageLease:
    """The coordinator's last answer. ``current``: it is recent enough to work on (claiming asks anew).

    ``suspects``: lanes to be read in a child process, because earlier readers died at the lane's position.
    """

    slot: int
    lanes: frozenset[str]
    current: bool = True
    paused: bool = False
    pause_reason: str = ""
    skips: tuple[SkipOrder, ...] = ()
    suspects: frozenset[str] = frozenset()


class StageReport(NamedTuple):
    """What the stage tells the coordinator with the next renewal."""

    lanes_held: Collection[str] = ()
    uncommitted_entries: int = 0
    stats: Mapping[str, float] = {}
    stopped: Sequence[StoppedLane] = ()
    skips: Sequence[SkipResult] = ()
    empty: Sequence[EmptyRange] = ()
    uncommitted_memory: int = 0


class SlotLease(Protocol):
    """One stage's lease. The loop's thread may call the methods at any time."""

    def lease(self) -> StageLease | None:
        """Returns the newest lease; None before there is one.

        Raises the coordinator's refusal when it refuses this process for good: then the service has to stop.
        """
        ...

    def report(self, report: StageReport) -> None:
        """Sets the report that the next renewal sends."""
        ...

    def renew_now(self) -> StageLease | None:
        """Renews the lease now; None when the coordinator does not answer or the lease has ended."""
        ...


@dataclass
class OwnedLane:
    """Status of one lane. ``term``: ledger offset of the own claim, valid from CLAIMED on.

    ``generation``: the one that the claim names.
    """

    status: LaneStatus
    term: int = -1
    generation: int = 0


class LaneTable:
    """Lane name -> status. A lane that is not listed is RELEASED.

    Methods that change a status raise LaneTransitionError for a change that the lifecycle does not have.
    """

    def __init__(self) -> None:
        self._lanes: dict[str, OwnedLane] = {}

    def __getitem__(self, lane: str) -> OwnedLane:
        return self._lanes[lane]

    def names(self, *statuses: LaneStatus) -> list[str]:
        """Lanes that have one of ``statuses``; all lanes when none is given."""
        return [name for name, lane in self._lanes.items() if not statuses or lane.status in statuses]

    def grant(self, lanes: Iterable[str]) -> None:
        """The lease names these lanes: new and DOUBTFUL ones become GRANTED, so the loop claims them."""
        for name in lanes:
            lane = self._lanes.setdefault(name, OwnedLane(LaneStatus.RELEASED))
            if lane.status in (LaneStatus.RELEASED, LaneStatus.DOUBTFUL):
                lane.status = move(lane.status, LaneStatus.GRANTED)

    def release(self, lanes: Iterable[str]) -> None:
        """Removes lanes that the lease names no longer."""
        for name in lanes:
            move(self._lanes.pop(name).status, LaneStatus.RELEASED)

    def claimed(self, lanes: Iterable[str], term: int, generation: int) -> None:
        """Our claim of the lanes was appended to the ledger at offset ``term``."""
        for name in lanes:
            lane = self._lanes[name]
            lane.status = move(lane.status, LaneStatus.CLAIMED)
            lane.term, lane.generation = term, generation

    def current(self, lanes: Iterable[str]) -> None:
        """Our claim of the lanes was read back from the ledger, and is the newest."""
        for name in lanes:
            self._lanes[name].status = move(self._lanes[name].status, LaneStatus.CURRENT)

    def doubt(self, lanes: Iterable[str]) -> list[str]:
        """Makes claimed lanes DOUBTFUL, so they are claimed anew; returns which of ``lanes`` were claimed."""
        claimed = (LaneStatus.CLAIMED, LaneStatus.CURRENT)
        doubted = [name for name in lanes if name in self._lanes and self._lanes[name].status in claimed]
        for name in doubted:
            self._lanes[name].status = move(self._lanes[name].status, LaneStatus.DOUBTFUL)
        return doubted

    def superseded(self, states: dict[str, LaneState], ledger_next: int) -> list[str]:
        """Lanes whose newest valid claim in the fold is not ours.

        Our claims at or behind ``ledger_next`` are left out: the fold has not read them yet.
        """
        return [
            name
            for name in self.names(LaneStatus.CLAIMED, LaneStatus.CURRENT)
            if self._lanes[name].term < ledger_next
            and (name not in states or states[name].term != self._lanes[name].term)
        ]

    def confirmed(self, states: dict[str, LaneState]) -> list[str]:
        """CLAIMED lanes whose newest claim in the fold is ours."""
        return [
            name
            for name in self.names(LaneStatus.CLAIMED)
            if name in states and states[name].term == self._lanes[name].term
        ]
