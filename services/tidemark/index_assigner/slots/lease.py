"""A slot's lease as the transaction loop sees it, whoever keeps it alive."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from tidemark.epoch_protocol.input_topics import EmptyRange
from tidemark.epoch_protocol.stopped_lanes import SkipOrder, SkipResult, StoppedLane


@dataclass(frozen=True)
class StageLease:
    """What the coordinator last said. ``current``: it was said recently enough to work on (not to claim).

    ``suspects``: lanes to be read apart, since who read them before died where they stand.
    """

    slot: int
    lanes: frozenset[str]
    current: bool = True
    paused: bool = False
    pause_reason: str = ""
    skips: tuple[SkipOrder, ...] = ()
    suspects: frozenset[str] = frozenset()


class StageReport(NamedTuple):
    """What goes to the coordinator with the next renewal."""

    lanes_held: Collection[str] = ()
    uncommitted_entries: int = 0
    figures: Mapping[str, float] = {}
    stopped: Sequence[StoppedLane] = ()
    skips: Sequence[SkipResult] = ()
    empty: Sequence[EmptyRange] = ()


class SlotLease(Protocol):
    """Keeps one stage's lease. Methods may be called from the loop's thread at any time."""

    def lease(self) -> StageLease | None:
        """The lease as last heard of; None before the first and while a new one is asked for.

        Raises what makes the service stop: the coordinator refuses this process for good.
        """
        ...

    def report(self, report: StageReport) -> None:
        """Replaces what the next renewal says."""
        ...

    def renew_now(self) -> StageLease | None:
        """Asks the coordinator now; None when it does not answer or the lease has ended."""
        ...
