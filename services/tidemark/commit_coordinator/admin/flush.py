"""`Flush`: waits until all records that were in the input topics at the call are committed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Final, TypeVar

from tidemark.commit_coordinator.calls.inbox import FlushNow, Inbox
from tidemark.commit_coordinator.commit.view import CoordinatorView, ViewBoard
from tidemark.commit_coordinator.errors import NotReadyError
from tidemark.commit_coordinator.refusals import LaneStoppedError
from tidemark.epoch_protocol.lanes import parse_shuffle_lane
from tidemark.epoch_protocol.stopped_lanes import StoppedLane
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.errors import DeadlineExceededError
from tidemark.stream_runtime.kafka.errors import KafkaError
from tidemark.stream_runtime.retry import Deadline, is_retryable
from tidemark.stream_runtime.rpc.interceptors import is_wanted

_HURRY_EVERY_S: Final = 0.2
_TURNS_PER_LOOK: Final = 5
_Answer = TypeVar("_Answer")

Targets = Callable[[], Mapping[str, int]]
"""Input lane -> the offset up to which a flush that is called now has to commit."""
HoldsRecords = Callable[[str, int, int], bool]
"""(input lane, first, end) -> whether a record lies in [first, end)."""


class FlushWait:
    """Waits for flushes. One object serves all calls, and keeps no state of any.

    The deadline is measured by the clock, and not by the number of turns: on a busy machine a turn takes
    longer than its wait, and the answer about what is behind must reach the caller before it gives up.
    """

    def __init__(
        self,
        board: ViewBoard,
        inbox: Inbox,
        targets: Targets,
        holds_records: HoldsRecords,
        clock: Clock,
        stopped_lanes: Callable[[], Sequence[StoppedLane]] = tuple,
    ) -> None:
        self._board = board
        self._inbox = inbox
        self._targets = targets
        self._holds_records = holds_records
        self._clock = clock
        self._stopped_lanes = stopped_lanes

    def wait(self, timeout_s: float) -> CoordinatorView:
        """Waits up to ``timeout_s``; returns the first view in which all of it is committed.

        Raises LaneStoppedError when records behind the offset of a stopped lane would have to be committed,
        DeadlineExceededError that says which partitions are behind, KafkaError, NotReadyError.
        """
        deadline = Deadline(self._clock, timeout_s)
        targets = _answered(self._targets, deadline)
        for turn in count():
            self._inbox.put(FlushNow())
            wait_s = min(_HURRY_EVERY_S, deadline.remaining_s)
            view = self._board.wait_until(partial(_reached, targets), wait_s)
            if view is not None:
                return view
            if turn % _TURNS_PER_LOOK == 0:
                self._check_stopped(targets)
                targets = _answered(partial(self._still_wanted, targets), deadline)
            if targets and (deadline.is_over or not is_wanted()):
                break
        raise DeadlineExceededError(_missing(self._board.current, targets))

    def _check_stopped(self, targets: Mapping[str, int]) -> None:
        ends = {parse_shuffle_lane(lane): end for lane, end in targets.items()}
        for stopped in self._stopped_lanes():
            if ends.get((stopped.topic, stopped.partition), 0) > stopped.offset:
                raise LaneStoppedError(stopped)

    def _still_wanted(self, targets: Mapping[str, int]) -> dict[str, int]:
        """The targets without lanes that are committed, or have no record between position and target.

        Records that are in Tidemark's topics already are awaited without asking the input: its retention may
        have deleted them there.
        """
        view, wanted = self._board.current, {}
        for lane, end in targets.items():
            reached = view.source_next.get(lane, 0)
            if reached >= end:
                continue
            if view.taken_next.get(lane, 0) > reached or self._holds_records(lane, reached, end):
                wanted[lane] = end
        return wanted


def _answered(ask: Callable[[], _Answer], deadline: Deadline) -> _Answer:
    """The answer of ``ask``, which is asked again while Kafka cannot answer (a leader changes, …), and while
    this coordinator has not taken the table over.
    """
    while True:
        try:
            return ask()
        except (KafkaError, NotReadyError) as error:
            if not is_retryable(error) or deadline.is_over or not is_wanted():
                raise
            deadline.sleep(_HURRY_EVERY_S)


def _reached(targets: Mapping[str, int], view: CoordinatorView) -> bool:
    return all(view.source_next.get(lane, 0) >= target for lane, target in targets.items())


def _missing(view: CoordinatorView, targets: Mapping[str, int]) -> str:
    behind = {
        lane: target - view.source_next.get(lane, 0)
        for lane, target in targets.items()
        if view.source_next.get(lane, 0) < target
    }
    lane, distance = max(behind.items(), key=lambda lag: lag[1])
    why = view.halted or view.trouble or view.pause_reason or view.waiting_for or view.doing
    return (
        f"not everything is committed in time: {len(behind)} input partitions are behind, most {lane} by "
        f"{distance} offsets ({why})"
    )
