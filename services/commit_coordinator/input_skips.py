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

from commit_coordinator.admin.refusals import LaneNotStoppedError, SkipFailedError
from commit_coordinator.view import CoordinatorView, ViewBoard
from epoch_protocol.entries import Stage
from epoch_protocol.lanes import shuffle_lane
from epoch_protocol.stopped_lanes import SkipOrder, SkipResult, StoppedLane, StopReason
from stream_runtime.clock import Clock
from stream_runtime.errors import DeadlineExceededError
from stream_runtime.ids import IdSource
from stream_runtime.kafka.ports import TopicPartition
from stream_runtime.retry import Deadline

_STEP_S: Final = 0.2
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
        self, stopped: Callable[[], Sequence[StoppedLane]], board: ViewBoard, ids: IdSource, clock: Clock
    ) -> None:
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
            f"no word in time of {place.topic}[{place.partition}] moving past offset {offset}: `tidemark "
            "status` says whether it stands there still; asking again is safe"
        )

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
        (stopped,) = found
        if stopped.reason is StopReason.TOPIC_RECREATED:
            raise LaneNotStoppedError(
                f"{stopped.sentence()}. `tidemark input accept-topic {place.topic}` goes on"
            )
        if stopped.offset != offset:
            raise LaneNotStoppedError(
                f"{place.topic}[{place.partition}] stands at offset {stopped.offset}, not at {offset}: only "
                "the offset at which it stands can be skipped"
            )
        return stopped


def _has_passed(lane: str, offset: int, view: CoordinatorView) -> bool:
    return view.taken_next.get(lane, 0) > offset
