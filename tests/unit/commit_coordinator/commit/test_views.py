"""What other threads see of the loop: history, view, flush, and the attempts where attempts are reported."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.unit.commit_coordinator.admin_parts import admin_service
from tests.unit.epoch_protocol.builders import tagged
from tidemark.admin.v1 import admin_pb2 as pb
from tidemark.commit_coordinator.admin.service import AdminService
from tidemark.commit_coordinator.calls.attempt_handoff import AttemptHandoff, OpenAttemptView
from tidemark.commit_coordinator.calls.inbox import FlushNow, Inbox
from tidemark.commit_coordinator.commit.context import Report
from tidemark.commit_coordinator.commit.input_positions import InputPositions
from tidemark.commit_coordinator.commit.view import CoordinatorView, ViewBoard, take_view
from tidemark.commit_coordinator.domain.actions import Wait
from tidemark.commit_coordinator.domain.next_action import AttemptProblem, Observed
from tidemark.commit_coordinator.refusals import LaneStoppedError
from tidemark.commit_coordinator.status.history import EPOCHS_MAX, EpochHistory
from tidemark.commit_coordinator.status.kafka_probe import KafkaFacts, KafkaProbe
from tidemark.epoch_protocol.entries import (
    AttemptVoided,
    CommitDecided,
    EpochCommitted,
    EpochPlanned,
    Rewound,
    Stage,
)
from tidemark.epoch_protocol.fold import Fold, Verdict
from tidemark.epoch_protocol.state import CountedTagged, FoldState
from tidemark.epoch_protocol.stopped_lanes import StoppedLane, StopReason
from tidemark.ledger_client.fold_reader import Applied
from tidemark.stream_runtime.errors import DeadlineExceededError
from tidemark.table_status.messages import epoch_message, epoch_of

WAIT_S = 60.0


def plan(epoch: int, attempt: int) -> EpochPlanned:
    return EpochPlanned(0, epoch, attempt, 0, epoch * 10, f"T{epoch}{attempt}", "0", "", 100)


def observed(history: EpochHistory, *entries: object, verdict: Verdict = Verdict.APPLIED) -> None:
    for entry in entries:
        history.observe(Applied(0, entry, verdict))  # type: ignore[arg-type]


def test_history_tells_what_became_of_each_attempt() -> None:
    history = EpochHistory()
    observed(history, plan(1, 1), AttemptVoided(0, 1, 1, "foreign"), Rewound(0, 1, 0, "0", "foreign"))
    observed(history, plan(1, 2), CommitDecided(0, 1, 2, "m", "c", "p", "s", 200))
    history.cover(1, [CountedTagged(5, tagged({"0": (0, 4)}, {"0": 0}, rows=4))], {"0": (0, 4)}, {})
    observed(history, EpochCommitted(0, 1, 2, "T12", "c", 300))
    history.timed(1, 2, {"write": 7.0})
    shown = history.show(1)
    assert shown is not None
    first, second = shown.attempts
    assert (first.voided, first.committed_ms) == ("foreign", None)
    assert (second.decided_ms, second.committed_ms, second.timings_ms) == (200, 300, {"write": 7.0})
    assert (shown.instant, shown.completion, shown.counts.inserts) == ("T12", "c", 4)
    assert (shown.bytes, shown.transactions) == (100, 1)
    assert epoch_of(epoch_message(shown)) == shown
    assert history.rewinds() == ["foreign"]
    assert history.show(2) is None


def test_history_takes_only_what_was_applied_and_is_bounded() -> None:
    history = EpochHistory()
    observed(history, plan(1, 1), verdict=Verdict.STALE_COORDINATOR)
    assert history.newest(5) == []
    history.cover(1, [], {}, {})
    history.timed(1, 1, {})
    for epoch in range(1, EPOCHS_MAX + 3):
        observed(history, plan(epoch, 1))
    assert history.show(2) is None
    assert [epoch.epoch for epoch in history.newest(2)] == [EPOCHS_MAX + 2, EPOCHS_MAX + 1]


def test_the_view_is_a_picture_that_later_changes_do_not_reach() -> None:
    fold = Fold(FoldState(tagged=[CountedTagged(5, tagged({"0": (0, 4)}, {"0": 0}, rows=4))]))
    view = take_view(fold, Observed(), Wait("nothing"), term=3, now_ms=50, inputs=InputPositions())
    fold.state.committed.keyed_next["0"] = 9
    fold.state.tagged.clear()
    assert (view.term, view.at_ms, view.doing, view.waiting_for) == (3, 50, "Wait", "nothing")
    assert (view.uncommitted_transactions, view.uncommitted.inserts) == (1, 4)
    assert view.keyed_next == {}


def test_waiting_for_a_view_ends_with_the_first_that_holds_or_in_time() -> None:
    board = ViewBoard()
    assert board.wait_until(lambda view: view.epoch == 2, 0.01) is None

    def show() -> None:
        for epoch in (1, 2):
            board.show(CoordinatorView(epoch=epoch))

    shower = threading.Thread(target=show)
    shower.start()
    found = board.wait_until(lambda view: view.epoch >= 1, 60.0)
    shower.join()
    assert found is not None
    assert board.current.epoch == 2


def admin(board: ViewBoard, inbox: Inbox, targets: dict[str, int]) -> AdminService:
    return admin_service(board=board, inbox=inbox, targets=lambda: targets)


def test_flush_returns_when_all_input_of_the_call_is_committed() -> None:
    board, inbox = ViewBoard(), Inbox()
    service = admin(board, inbox, {"in:0": 5, "in:1": 0})
    shower = threading.Timer(
        0.1, lambda: board.show(CoordinatorView(epoch=4, instant="T4", source_next={"in:0": 5}))
    )
    shower.start()
    answer = service.Flush(pb.FlushRequest(table="t", timeout_ms=60_000), None)
    shower.join()
    assert (answer.epoch, answer.instant) == (4, "T4")
    assert FlushNow() in inbox.take_all()


def test_flush_that_runs_out_of_time_says_what_is_behind_and_why() -> None:
    board, inbox = ViewBoard(), Inbox()
    board.show(CoordinatorView(source_next={"in:0": 2}, waiting_for="the writer has not reported"))
    service = admin(board, inbox, {"in:0": 5, "in:1": 1})
    with pytest.raises(DeadlineExceededError, match=r"2 input .* most in:0 by 3 .*has not reported"):
        service.Flush(pb.FlushRequest(table="t", timeout_ms=30), None)


def test_flush_of_what_lies_behind_a_stopped_lane_names_it_at_once() -> None:
    stopped = StoppedLane(Stage.SHUFFLE, "in:1", "in", 1, 7, StopReason.UNREADABLE, "broken zstd", 0)
    targets = {"in:0": 5, "in:1": 7}
    service = admin_service(targets=lambda: targets, stopped_lanes=lambda: [stopped])
    with pytest.raises(DeadlineExceededError):
        service.Flush(pb.FlushRequest(table="t", timeout_ms=30), None)
    targets["in:1"] = 8
    with pytest.raises(
        LaneStoppedError, match=r"in\[1\] is not read any further than offset 7 .*broken zstd"
    ):
        service.Flush(pb.FlushRequest(table="t", timeout_ms=60_000), None)


def test_the_desk_takes_one_report_of_the_open_attempt_and_no_other() -> None:
    attempts, seen = AttemptHandoff(), Observed()
    report, again = Report((), (), {"a": 1.0}), Report((), (), {"b": 2.0})
    assert not attempts.report(1, 1, "T11", report)
    view = OpenAttemptView(plan(1, 1), "token", ())
    attempts.offer(view)
    assert attempts.wait_for_unreported(0.0) == attempts.open_attempt(1, 1) == view
    assert attempts.open_attempt(1, 2) is None
    for wrong in [(2, 1, "T11"), (1, 2, "T11"), (1, 1, "T12")]:
        assert not attempts.report(*wrong, report)
        assert not attempts.fail(*wrong, AttemptProblem("x", False))
    assert attempts.report(1, 1, "T11", report)
    assert attempts.report(1, 1, "T11", again)
    attempts.collect(seen)
    assert seen.reported == (1, 1)
    assert attempts.report_of(view.planned) == report
    assert attempts.wait_for_unreported(0.0) is None
    assert attempts.fail(1, 1, "T11", AttemptProblem("a second run failed", False))
    attempts.collect(seen)
    assert seen.problem is None, "it was written: another run of the writer cannot undo that"


def test_a_failed_attempt_is_a_problem_once_and_a_withdrawn_one_is_not_open() -> None:
    attempts, seen = AttemptHandoff(), Observed()
    attempts.offer(OpenAttemptView(plan(1, 1), "token", ()))
    problem = AttemptProblem("disk full", True)
    assert attempts.fail(1, 1, "T11", problem)
    attempts.collect(seen)
    assert seen.problem == ((1, 1), problem)
    seen.problem = None
    attempts.collect(seen)
    assert seen.problem is None
    attempts.offer(None)
    assert not attempts.report(1, 1, "T11", Report((), ()))


@pytest.mark.parametrize("fails", [False, True])
def test_what_a_writer_reports_ends_the_wait_of_the_loop_until_it_is_collected(fails: bool) -> None:
    attempts = AttemptHandoff()
    attempts.offer(OpenAttemptView(plan(1, 1), "token", ()))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(attempts.wait_for_news, 3_600.0)
        if fails:
            assert attempts.fail(1, 1, "T11", AttemptProblem("disk full", rewind=False))
        else:
            assert attempts.report(1, 1, "T11", Report((), ()))
        waiting.result(WAIT_S)
        pool.submit(attempts.wait_for_news, 3_600.0).result(WAIT_S)
    attempts.collect(Observed())
    attempts.wait_for_news(0.0)


def test_an_attempt_that_failed_is_not_handed_out_again() -> None:
    attempts = AttemptHandoff()
    attempts.offer(OpenAttemptView(plan(1, 1), "token", ()))
    assert attempts.wait_for_unreported(0.0) is not None
    assert attempts.fail(1, 1, "T11", AttemptProblem("disk full", rewind=False))
    assert attempts.wait_for_unreported(0.0) is None
    assert not attempts.report(1, 1, "T11", Report((), ()))
    seen = Observed()
    attempts.collect(seen)
    assert seen.problem == ((1, 1), AttemptProblem("disk full", rewind=False))


def test_a_silent_kafka_holds_nobody_longer_than_said() -> None:
    """Questions without an answer are bounded, and those after the first wait shorter."""
    silence = threading.Event()

    def blocks(_: CoordinatorView) -> dict[str, int]:
        assert silence.wait(120.0)
        return {"input_offsets_not_committed": 0}

    asked = KafkaProbe(blocks, lambda: None)
    facts = [asked.ask(CoordinatorView(), 0.01) for _ in range(5)]
    assert [each.lag for each in facts] == [None] * 5
    assert {each.missing for each in facts[:4]} == {"Kafka did not answer within 0.0 s"}
    assert facts[4].missing == "Kafka has not answered 4 earlier questions"
    silence.set()
    answered: list[KafkaFacts] = []
    while not answered or answered[-1].missing:
        answered.append(asked.ask(CoordinatorView(), 60.0))
    assert answered[-1].lag == {"input_offsets_not_committed": 0}
