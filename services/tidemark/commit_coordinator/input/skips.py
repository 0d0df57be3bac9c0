"""`SkipInput`: a stopped lane moves past what it stands at, done by its owner, seen in the ledger.

The owner finds out how far the record batch reaches and consumes the range in a transaction of its own, like
any other range: it counts or it does not, and a crash on the way leaves the lane where it stood. This side
hands the order to whoever holds the lane, with every renewal, until the fold has passed the range.
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
    """Thread-safe."""

    def __init__(
        self,
        stopped: Callable[[], Sequence[StoppedLane]],
        board: ViewBoard,
        ids: IdSource,
        clock: Clock,
        holder: Callable[[Stage, str], Member | None],
    ) -> None:
        """``holder``: of a stage's lane, None while nobody has it."""
        self._holder = holder
        self._stopped = stopped
        self._clock = clock
        self._board = board
        self._ids = ids
        self._lock = threading.Lock()
        self._asked: dict[str, _Asked] = {}

    def skip(self, place: TopicPartition, offset: int, timeout_s: float) -> SkipResult:
        """Returns when the ledger has it.

        Raises LaneNotStoppedError, SkipFailedError, DeadlineExceededError.
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
                    # The ledger may have it already: what the owner says comes with its next renewal.
                    asked.told.wait(_STEP_S)
                elif self._board.wait_until(partial(_has_passed, lane, result.last), _STEP_S):
                    return result
        finally:
            with self._lock:
                del self._asked[asked.order.id]
        raise DeadlineExceededError(
            f"no word in time of {place.topic}[{place.partition}] moving past offset {offset}: "
            f"{self._why_not(stopped, holder, asked.result)}. Asking again is safe"
        )

    def _why_not(self, stopped: StoppedLane, holder: str | None, result: SkipResult | None) -> str:
        now = self._process(stopped)
        if now is None:
            return (
                f"nobody holds lane {stopped.lane} any more, whoever held it ended or was cut off. Start an "
                "assigner, wait until `tidemark status` shows the lane standing there, and ask again"
            )
        if now != holder:
            return (
                f"{now} took lane {stopped.lane} over meanwhile, and has to find the offset again: ask again "
                "once `tidemark status` shows the lane standing there"
            )
        if result is not None:
            return f"{now} moves past offsets {result.first} to {result.last}, and the ledger has it not yet"
        return f"{now} looks for the end of the record batch, which takes long where who reads it dies"

    def _process(self, stopped: StoppedLane) -> str | None:
        holder = self._holder(stopped.stage, stopped.lane)
        return None if holder is None else holder.process_id

    def orders(self, stage: Stage, lanes: Iterable[str]) -> list[SkipOrder]:
        """What the holder of these lanes is to do."""
        held = set(lanes)
        with self._lock:
            return [
                each.order for each in self._asked.values() if each.stage is stage and each.order.lane in held
            ]

    def done(self, results: Iterable[SkipResult]) -> None:
        """What a holder says of its orders."""
        with self._lock:
            for result in results:
                if result.id in self._asked:
                    self._asked[result.id].result = result
                    self._asked[result.id].told.set()

    def _standing(self, place: TopicPartition, offset: int) -> StoppedLane:
        found = [each for each in self._stopped() if (each.topic, each.partition) == place]
        if not found:
            raise LaneNotStoppedError(
                f"{place.topic}[{place.partition}] does not stand still: nothing to skip"
            )
        # Of a topic that was made again the former log's lane may still be reported: nobody reads that on.
        stopped = max(found, key=_incarnation)
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
    """Of the topic that the lane reads; lanes of the assign stage have no name of their own for it."""
    return parse_input_log(split_lane(stopped.lane)[0])[1] if stopped.stage is Stage.SHUFFLE else 1


def _has_passed(lane: str, offset: int, view: CoordinatorView) -> bool:
    return view.taken_next.get(lane, 0) > offset
