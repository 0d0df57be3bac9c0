"""Which lanes stand still, why, and what goes on meanwhile; what readers' deaths are remembered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from testing.kafka import MemoryBroker
from tests.simulation.world.actors import Actor, CoordinatorActor, StageActor
from tests.simulation.world.checkers.judge import Judge
from tests.simulation.world.deadly_input import DeadlyInput
from tidemark.epoch_protocol.stopped_lanes import StoppedLane, StopReason
from tidemark.stream_runtime.kafka.ports import TopicPartition

_DEATHS_REMEMBERED: Final = 2
_MEANT: Final = (StopReason.DEADLY, StopReason.UNREADABLE)


class WatchedStops:
    """Counts in ``reached``, and tells the judge of lanes that stand still for nothing."""

    def __init__(
        self, judge: Judge, deadly: DeadlyInput, broker: MemoryBroker, reached: Counter[str]
    ) -> None:
        self._judge, self._deadly, self._broker, self._reached = judge, deadly, broker, reached
        self._stops: set[tuple[str, TopicPartition, int]] = set()
        self._coordinators: set[str] = set()
        self._epoch = 0

    def happened(self, actors: Iterable[Actor]) -> None:
        """After an event."""
        deadly = False
        for actor in actors:
            if isinstance(actor, StageActor) and actor.process.alive and actor.loop is not None:
                for each in actor.loop._work.stopped_lanes():
                    deadly |= each.reason is StopReason.DEADLY
                    self._stands(actor.process.name, each)
            elif isinstance(actor, CoordinatorActor) and actor.loop is not None:
                self._takes_over(actor)
        if deadly and self._judge.epoch > self._epoch:
            self._reached["commit beside a lane with a deadly record"] += 1
        self._epoch = self._judge.epoch

    def _stands(self, process: str, lane: StoppedLane) -> None:
        place = TopicPartition(lane.topic, lane.partition)
        if (process, place, lane.offset) in self._stops:
            return
        self._stops.add((process, place, lane.offset))
        is_deadly = self._deadly.is_at(place, lane.offset)
        is_broken = self._broker.faults.unreadable_from(place, lane.offset) == lane.offset
        if lane.reason not in _MEANT or not (is_deadly if lane.reason is StopReason.DEADLY else is_broken):
            self._judge.say("G6", f"a lane stops for nothing: {lane.sentence()}")
        if lane.reason is StopReason.DEADLY:
            self._reached["lane stopped by a deadly record"] += 1

    def _takes_over(self, actor: CoordinatorActor) -> None:
        """What a coordinator remembers that has just begun."""
        if actor.process.name in self._coordinators:
            return
        self._coordinators.add(actor.process.name)
        found = actor.service.members.deaths._counts.values()
        if any(each.deaths >= _DEATHS_REMEMBERED for each in found):
            self._reached["readers' deaths remembered by the next coordinator"] += 1
