"""When a flush is over: everything of the call's moment is committed, or there never was a record."""

from __future__ import annotations

import threading

import pytest

from testing.clock import ManualClock
from tidemark.commit_coordinator.admin.flush import FlushWait
from tidemark.commit_coordinator.calls.inbox import Inbox
from tidemark.commit_coordinator.commit.view import CoordinatorView, ViewBoard
from tidemark.commit_coordinator.errors import NotReadyError
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.errors import DeadlineExceededError
from tidemark.stream_runtime.kafka.errors import KafkaConfigError, LeaderChangingError

LANE = "orders:0"


def view(taken: int, committed: int) -> CoordinatorView:
    return CoordinatorView(taken_next={LANE: taken}, source_next={LANE: committed})


def flush_on(board: ViewBoard, end: int, *, input_holds_records: bool) -> FlushWait:
    return FlushWait(board, Inbox(), lambda: {LANE: end}, lambda *_: input_holds_records, SystemClock())


def test_what_was_taken_is_waited_for_although_retention_deleted_it_from_the_input():
    board = ViewBoard()
    board.show(view(taken=10, committed=4))
    flush = flush_on(board, 10, input_holds_records=False)
    with pytest.raises(DeadlineExceededError, match="most orders:0 by 6 offsets"):
        flush.wait(2.5)
    committed = threading.Timer(1.0, board.show, [view(taken=10, committed=10)])
    committed.start()
    assert flush.wait(60.0).source_next == {LANE: 10}
    committed.join()


def test_offsets_without_a_record_are_not_waited_for():
    board = ViewBoard()
    board.show(view(taken=4, committed=4))
    assert flush_on(board, 10, input_holds_records=False).wait(60.0).source_next == {LANE: 4}


def test_records_that_nobody_has_read_are_waited_for():
    board = ViewBoard()
    board.show(view(taken=4, committed=4))
    with pytest.raises(DeadlineExceededError):
        flush_on(board, 10, input_holds_records=True).wait(0.5)


def test_while_kafka_cannot_answer_it_is_asked_again_until_the_deadline():
    board = ViewBoard()
    board.show(view(taken=10, committed=10))
    answers: list[Exception | dict[str, int]] = [
        LeaderChangingError("a"),
        LeaderChangingError("b"),
        {LANE: 10},
    ]

    def targets() -> dict[str, int]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    clock = ManualClock()
    flush = FlushWait(board, Inbox(), targets, lambda *_: True, clock)
    assert flush.wait(60.0).source_next == {LANE: 10}
    answers += [LeaderChangingError("c")] * 10
    with pytest.raises(LeaderChangingError):
        flush.wait(0.3)
    assert clock.monotonic_s() < 2.0
    answers[:] = [KafkaConfigError("no ACL")]
    with pytest.raises(KafkaConfigError):
        flush.wait(60.0)
    assert not answers


def test_a_flush_waits_until_the_coordinator_has_taken_over():
    board = ViewBoard()
    board.show(view(taken=10, committed=10))
    answers: list[Exception | dict[str, int]] = [NotReadyError("ask again"), {LANE: 10}]

    def targets() -> dict[str, int]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    flush = FlushWait(board, Inbox(), targets, lambda *_: True, ManualClock())
    assert flush.wait(60.0).source_next == {LANE: 10}
    answers += [NotReadyError("ask again")] * 10
    with pytest.raises(NotReadyError):
        flush.wait(0.3)
