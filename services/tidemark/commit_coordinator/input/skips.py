"""`SkipInput`: moves a stopped lane past the record batch at its offset.

1. `skip` leaves an order for the lane.
2. The lane's owner gets the order with the answer to each renewal, until the skip has ended: `orders`.
3. The owner finds the end of the record batch, and consumes the range in a transaction of its own, like any
   other range. The transaction counts or does not: a crash leaves the lane where it was.
4. The owner reports the range with its next renewal: `done`.
5. `skip` returns when the fold has passed the range.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from tidemark.commit_coordinator.commit.view import CoordinatorView, ViewBoard
from tidemark.commit_coordinator.domain.membership import Member
from tidemark.commit_coordinator.refusals import LaneNotStoppedError, SkipFailedError
from tidemark.epoch_protocol.entries import Stage
from tidemark.epoch_protocol.lanes import parse_input_log, shuffle_lane, split_lane
from tidemark.epoch_protocol.stopped_lanes import SkipOrder, SkipResult, StoppedLane, StopReason
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.errors import DeadlineExceededError
from tidemark.stream_runtime.ids import IdSource
from tidemark.stream_runtime.kafka.ports import TopicPartition
from tidemark.stream_runtime.retry import Deadline

_STEP_S: Final = 0.2
_WAYS_ON: Final = {
    StopReason.TOPIC_RECREATED: "`tidemark input accept-topic {topic}` goes on",
    StopReason.TOPIC_MISSING: "create the topic, then `tidemark input accept-topic {topic}` goes on",
    StopReason.TOPIC_GROWN: "`tidemark table adopt --new-ledger` goes on, with a topic that has as many "
    "partitions as there are lanes",
}
_log = logging.getLogger("tidemark.admin")


@dataclass
class _Asked:
    stage: Stage
    order: SkipOrder
    result: SkipResult | None = None
    told: threading.Event = field(default_factory=threading.Event)


class InputSkips:
    """Orders to skip, between operators' calls and the renewals of lanes' owners; thread-safe."""

    def __init__(
        self,
        stopped: Callable[[], Sequence[StoppedLane]],
        board: ViewBoard,
        ids: IdSource,
        clock: Clock,
        holder: Callable[[Stage, str], Member | None],
    ) -> None:
        """``stopped``: the lanes that are stopped now. ``holder``: the owner of a stage's lane, or None."""
        self._holder = holder
        self._stopped = stopped
        self._clock = clock
        self._board = board
        self._ids = ids
        self._lock = threading.Lock()
        self._asked: dict[str, _Asked] = {}

    def skip(self, place: TopicPartition, offset: int, timeout_s: float) -> SkipResult:
        """Skips the record batch at ``offset``; returns the range when the fold has passed it.

        Raises LaneNotStoppedError unless the partition is stopped at exactly that offset, SkipFailedError
        when the owner cannot find the batch's end, DeadlineExceededError after ``timeout_s``.
        """
        stopped = self._standing(place, offset)
        holder = self._process(stopped)
        _log.info("%s[%d] is to move past offset %d, as asked", *place, offset)
        asked = _Asked(stopped.stage, SkipOrder(self._ids.uuid(), stopped.lane, offset))
        with self._lock:
            self._asked[asked.order.id] = asked
        lane = stopped.lane if stopped.stage is Stage.SHUFFLE else shuffle_lane(*place)
        try:
            deadline = Deadline(self._clock, timeout_s)
            while not deadline.is_over:
                result = asked.result
                if result is not None and result.failure:
                    raise SkipFailedError(result.failure)
                if result is None:
                    # The owner may have skipped already: its result comes with its next renewal.
                    asked.told.wait(_STEP_S)
                elif self._board.wait_until(partial(_has_passed, lane, result.last), _STEP_S):
                    return result
        finally:
            with self._lock:
                del self._asked[asked.order.id]
        raise DeadlineExceededError(
            f"{place.topic}[{place.partition}] has not moved past offset {offset} in time: "
            f"{self._why_not(stopped, holder, asked.result)}. Asking again is safe"
        )

    def _why_not(self, stopped: StoppedLane, holder: str | None, result: SkipResult | None) -> str:
        now = self._process(stopped)
        if now is None:
            return (
                f"nobody holds lane {stopped.lane} any more: its owner ended or was cut off. Start an "
                "assigner, wait until `tidemark status` shows the lane as stopped there, and ask again"
            )
        if now != holder:
            return (
                f"{now} took lane {stopped.lane} over meanwhile, and has to find the offset again: ask again "
                "once `tidemark status` shows the lane as stopped there"
            )
        if result is not None:
            return f"{now} moves past offsets {result.first} to {result.last}, but that does not count yet"
        return f"{now} looks for the end of the record batch, which takes long if reading it ends a process"

    def _process(self, stopped: StoppedLane) -> str | None:
        holder = self._holder(stopped.stage, stopped.lane)
        return None if holder is None else holder.process_id

    def orders(self, stage: Stage, lanes: Iterable[str]) -> list[SkipOrder]:
        """The orders for the holder of these lanes."""
        held = set(lanes)
        with self._lock:
            return [
                asked.order
                for asked in self._asked.values()
                if asked.stage is stage and asked.order.lane in held
            ]

    def done(self, results: Iterable[SkipResult]) -> None:
        """Takes the results that a holder reports; results of orders that nobody waits for are dropped."""
        with self._lock:
            for result in results:
                if result.id in self._asked:
                    self._asked[result.id].result = result
                    self._asked[result.id].told.set()

    def _standing(self, place: TopicPartition, offset: int) -> StoppedLane:
        lanes = [lane for lane in self._stopped() if (lane.topic, lane.partition) == place]
        if not lanes:
            raise LaneNotStoppedError(f"{place.topic}[{place.partition}] is not stopped: nothing to skip")
        # If the topic was recreated, an owner may still report the lane of the former log: that one is over.
        stopped = max(lanes, key=_incarnation)
        if stopped.reason.is_of_topic:
            raise LaneNotStoppedError(
                f"{stopped.sentence()}. No record stops it, so none can be skipped: "
                f"{_WAYS_ON[stopped.reason].format(topic=place.topic)}"
            )
        if stopped.offset != offset:
            raise LaneNotStoppedError(
                f"{place.topic}[{place.partition}] stands at offset {stopped.offset}, not at {offset}: only "
                "the offset at which it stands can be skipped"
            )
        return stopped


def _incarnation(stopped: StoppedLane) -> int:
    """Which log of the topic's name the lane reads (1: the first). Assign lanes know only one."""
    return parse_input_log(split_lane(stopped.lane)[0])[1] if stopped.stage is Stage.SHUFFLE else 1


def _has_passed(lane: str, offset: int, view: CoordinatorView) -> bool:
    return view.taken_next.get(lane, 0) > offset
