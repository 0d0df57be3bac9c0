"""What a fault may touch and ask: the cluster, the observers, seeded dice, whether the stream goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random

from tests.chaos.cluster import Cluster
from tests.chaos.disks import SmallDisk
from tests.chaos.timeline_watch import TimelineWatch


@dataclass(frozen=True)
class Until:
    """What a fault waits for before it goes on. With `holds` None it only lets `timeout_s` pass."""

    what: str
    timeout_s: float
    holds: Callable[[], bool] | None = None


Steps = Iterator[Until]
"""A fault under way: it acts, and yields what it waits for."""


@dataclass
class World:
    """`patience` multiplies deadlines, `input_ends` says where the input topic ends now. `dead_writes`: the
    instants that another engine's writers left, who died.
    """

    cluster: Cluster
    timeline: TimelineWatch
    random: Random
    patience: float
    input_ends: Callable[[], dict[int, int]]
    disks: Mapping[str, SmallDisk] = field(default_factory=dict)
    dead_writes: set[str] = field(default_factory=set)

    def until(self, what: str, holds: Callable[[], bool], timeout_s: float = 90.0) -> Until:
        return Until(what, timeout_s * self.patience, holds)

    def rest(self, seconds: float) -> Until:
        return Until(f"{seconds:.1f} s", seconds)

    def recovery(self, timeout_s: float = 150.0) -> Until:
        """All that is in the input now gets committed."""
        ends: dict[int, int] = {}

        def holds() -> bool:
            if not ends:
                ends.update(self.input_ends())
            reached = self.timeline.source_next()
            return all(reached.get(partition, 0) >= end for partition, end in ends.items())

        return self.until("the input of now to be committed", holds, timeout_s)

    def next_commits(self, count: int = 1, timeout_s: float = 120.0) -> Until:
        goal = self.timeline.epoch + count
        return self.until(f"epoch {goal}", lambda: self.timeline.epoch >= goal, timeout_s)
