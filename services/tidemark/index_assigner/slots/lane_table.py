"""The lanes of one slot and where each stands (`epoch_protocol.owner`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidemark.epoch_protocol.owner import LaneStatus, move
from tidemark.epoch_protocol.state import LaneState


@dataclass
class OwnedLane:
    """``term``: the claim that the work rests on, from CLAIMED on."""

    status: LaneStatus
    term: int = -1
    generation: int = 0


class LaneTable:
    """Moves are checked; a lane that is not listed is RELEASED."""

    def __init__(self) -> None:
        self._lanes: dict[str, OwnedLane] = {}

    def __getitem__(self, lane: str) -> OwnedLane:
        return self._lanes[lane]

    def names(self, *statuses: LaneStatus) -> list[str]:
        """Lanes in one of the statuses; all without any."""
        return [name for name, lane in self._lanes.items() if not statuses or lane.status in statuses]

    def grant(self, lanes: Iterable[str]) -> None:
        """The lease names the lanes: new ones and doubtful ones are to be claimed."""
        for name in lanes:
            lane = self._lanes.setdefault(name, OwnedLane(LaneStatus.RELEASED))
            if lane.status in (LaneStatus.RELEASED, LaneStatus.DOUBTFUL):
                lane.status = move(lane.status, LaneStatus.GRANTED)

    def release(self, lanes: Iterable[str]) -> None:
        """The lanes are no longer ours."""
        for name in lanes:
            move(self._lanes.pop(name).status, LaneStatus.RELEASED)

    def claimed(self, lanes: Iterable[str], term: int, generation: int) -> None:
        """Our claim is in the ledger at ``term``."""
        for name in lanes:
            lane = self._lanes[name]
            lane.status = move(lane.status, LaneStatus.CLAIMED)
            lane.term, lane.generation = term, generation

    def current(self, lanes: Iterable[str]) -> None:
        """Our claim was read back and is the newest."""
        for name in lanes:
            self._lanes[name].status = move(self._lanes[name].status, LaneStatus.CURRENT)

    def doubt(self, lanes: Iterable[str]) -> list[str]:
        """What was claimed has to be claimed anew; returns the lanes that this is true of."""
        claimed = (LaneStatus.CLAIMED, LaneStatus.CURRENT)
        doubted = [name for name in lanes if name in self._lanes and self._lanes[name].status in claimed]
        for name in doubted:
            self._lanes[name].status = move(self._lanes[name].status, LaneStatus.DOUBTFUL)
        return doubted

    def superseded(self, states: dict[str, LaneState], ledger_next: int) -> list[str]:
        """Lanes whose newest valid claim is not ours, as the fold shows them.

        A claim that the fold has not reached yet is not judged.
        """
        return [
            name
            for name in self.names(LaneStatus.CLAIMED, LaneStatus.CURRENT)
            if self._lanes[name].term < ledger_next
            and (name not in states or states[name].term != self._lanes[name].term)
        ]

    def confirmed(self, states: dict[str, LaneState]) -> list[str]:
        """Claimed lanes whose own claim the fold shows as the newest."""
        return [
            name
            for name in self.names(LaneStatus.CLAIMED)
            if name in states and states[name].term == self._lanes[name].term
        ]
