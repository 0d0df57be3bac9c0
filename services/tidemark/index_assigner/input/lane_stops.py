"""Which lanes of an input reader are stopped, and when a failing lane stops (`epoch_protocol.stopped_lanes`).

A batch that cannot be read may be readable the next time, if the network damaged it. So a lane stops only
when the same batch failed at least 4 times within at least 2 seconds. The other lanes go on:

::

    READ ──batch fails──► FAILING ──fails 4 times, over 2 s──► STOPPED ──skipped, or given up──► READ
      ▲                      │ a record of the lane came
      └──────────────────────┘
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tidemark.epoch_protocol.entries import Stage
from tidemark.epoch_protocol.stopped_lanes import StoppedLane, StopReason
from tidemark.index_assigner.input.reader import DeadlyRecordError
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.kafka.ports import TopicPartition, UnreadableBatchError

_log = logging.getLogger("tidemark.assigner")
_TRIES_MIN: Final = 4
_FOR_S: Final = 2.0


@dataclass
class _Failing:
    base_offset: int
    since_s: float
    tries: int = 0


class LaneStops:
    """Owned by the stage's thread. Lanes are named as the stage names them."""

    def __init__(self, stage: Stage, clock: Clock) -> None:
        self._stage = stage
        self._clock = clock
        self._failing: dict[str, _Failing] = {}
        self._stopped: dict[str, StoppedLane] = {}

    def current(self) -> list[StoppedLane]:
        """The stopped lanes."""
        return list(self._stopped.values())

    def get(self, lane: str) -> StoppedLane | None:
        """Where and why the lane is stopped; None when it is not."""
        return self._stopped.get(lane)

    def read(self, lanes: Iterable[str]) -> None:
        """Records of these lanes were read: they are not failing any more."""
        for lane in lanes:
            self._failing.pop(lane, None)

    def failed(self, lane: str, position: int, error: UnreadableBatchError) -> bool:
        """Counts a failure to read a batch of the lane; returns whether the lane stops now.

        It stops at ``position``, the reader's, or at the batch's base offset where that is greater.
        """
        now_s = self._clock.monotonic_s()
        failing = self._failing.get(lane)
        if failing is None or failing.base_offset != error.base_offset:
            failing = self._failing[lane] = _Failing(error.base_offset, now_s)
        failing.tries += 1
        if failing.tries < _TRIES_MIN or now_s - failing.since_s < _FOR_S:
            return False
        place = TopicPartition(error.topic, error.partition)
        self.stop(lane, place, max(position, error.base_offset), StopReason.UNREADABLE, str(error))
        return True

    def deadly(self, lane: str, error: DeadlyRecordError) -> None:
        """Stops the lane at once at a record of which reading processes die or hang."""
        reason = StopReason.HANGS if error.hangs else StopReason.DEADLY
        self.stop(lane, error.place, error.offset, reason, str(error))
        _log.error("lane %s is stopped, the others go on: %s", lane, error)

    def stop(self, lane: str, place: TopicPartition, offset: int, reason: StopReason, detail: str) -> None:
        """Stops the lane at the offset."""
        self._failing.pop(lane, None)
        self._stopped[lane] = StoppedLane(
            self._stage, lane, *place, offset, reason, detail, self._clock.now_ms()
        )

    def forget(self, lanes: Iterable[str]) -> None:
        """Forgets lanes that are given up, or go on."""
        for lane in lanes:
            self._failing.pop(lane, None)
            self._stopped.pop(lane, None)
