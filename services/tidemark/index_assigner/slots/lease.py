"""A slot's lease as the transaction loop sees it. `MembershipClient` renews it; tests use a double."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from tidemark.epoch_protocol.input_topics import EmptyRange
from tidemark.epoch_protocol.stopped_lanes import SkipOrder, SkipResult, StoppedLane


@dataclass(frozen=True)
class Lease:
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
    figures: Mapping[str, float] = {}
    stopped: Sequence[StoppedLane] = ()
    skips: Sequence[SkipResult] = ()
    empty: Sequence[EmptyRange] = ()


class SlotLease(Protocol):
    """One stage's lease. The loop's thread may call the methods at any time."""

    def lease(self) -> Lease | None:
        """Returns the newest lease; None before there is one.

        Raises the coordinator's refusal when it refuses this process for good: then the service has to stop.
        """
        ...

    def report(self, report: StageReport) -> None:
        """Sets the report that the next renewal sends."""
        ...

    def renew_now(self) -> Lease | None:
        """Renews the lease now; None when the coordinator does not answer or the lease has ended."""
        ...
