"""Service actions between the loop and workers: leases, reports, failures, and the calls over them."""

from __future__ import annotations

import threading
import zlib

import pytest

from testing.clock import ManualClock
from tidemark.commit.v1 import commit_pb2 as pb
from tidemark.commit_coordinator.calls.service_calls import (
    BadOutcomesError,
    RefusedServiceError,
    ServiceCalls,
)
from tidemark.commit_coordinator.calls.service_handoff import (
    LEASE_MS,
    FailedOperation,
    GrantedSlots,
    OfferedService,
    ServiceHandoff,
    ServiceNews,
    ServiceProgress,
    ServiceReport,
)
from tidemark.epoch_protocol.service_entries import ServiceKind, ServicePlanned
from tidemark.hudi_format.publication.tickets import Ticket
from tidemark.hudi_format.table_services.operations import MergeOutcome, encode_outcomes

T = "20260101000000000"
REPORT = ServiceReport(b"outcomes", ())


def offered(number: int) -> OfferedService:
    kind = list(ServiceKind)[number % 2]
    return OfferedService(
        ServicePlanned(0, number, kind, T, "p", "s", 0), f"token-{number}", GrantedSlots(0.25)
    )


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000_000)


@pytest.fixture
def handoff(clock: ManualClock) -> ServiceHandoff:
    made = ServiceHandoff(clock)
    for number in (1, 2):
        made.offer(offered(number))
    return made


def test_two_workers_get_different_actions_and_nobody_the_same_one_twice(handoff: ServiceHandoff) -> None:
    assert handoff.wait_for_work("a", 0) == offered(1)
    assert handoff.wait_for_work("b", 0) == offered(2)
    assert handoff.wait_for_work("c", 0) is None
    assert handoff.begin(1, "b") is None
    assert handoff.begin(1, "a") == offered(1)


def test_a_worker_whose_call_failed_gets_its_action_again_and_waits_for_no_lease(
    handoff: ServiceHandoff,
) -> None:
    assert handoff.wait_for_work("a", 0) == offered(1)
    assert handoff.wait_for_work("a", 0) == offered(1)
    handoff.report(1, "a", REPORT)
    assert handoff.wait_for_work("a", 0) == offered(2)


def test_a_worker_that_is_not_heard_of_loses_its_action(handoff: ServiceHandoff, clock: ManualClock) -> None:
    handoff.wait_for_work("a", 0)
    handoff.withdraw(2)
    clock.advance(LEASE_MS / 1000 - 1)
    assert handoff.progress(1, "a", 3)
    assert handoff.progress_of(1) == ServiceProgress("a", 3)
    clock.advance(LEASE_MS / 1000 - 1)
    assert handoff.wait_for_work("b", 0) is None
    clock.advance(1)
    assert handoff.wait_for_work("b", 0) == offered(1)
    assert not handoff.progress(1, "a", 4)
    assert not handoff.fail(1, "a", "late")
    assert handoff.report(1, "a", REPORT), "its files are there, so its report counts"


def test_a_worker_gets_another_share_when_it_goes_on_with_its_action(handoff: ServiceHandoff) -> None:
    handoff.wait_for_work("a", 0)
    handoff.grant(GrantedSlots(0.5, is_behind=True))
    begun = handoff.begin(1, "a")
    assert begun is not None
    assert begun.granted == GrantedSlots(0.5, is_behind=True)


def test_a_report_is_taken_once_and_told_to_the_loop(handoff: ServiceHandoff) -> None:
    handoff.wait_for_work("a", 0)
    assert handoff.report(1, "a", REPORT)
    assert handoff.report(1, "b", ServiceReport(b"other", ()))
    assert handoff.take_news() == [ServiceNews(1, None)]
    assert handoff.take_news() == []
    assert handoff.report_of(1) == REPORT
    assert handoff.begin(1, "a") is None
    assert not handoff.report(3, "a", REPORT)


def test_after_a_failure_the_loop_decides_when_the_action_is_offered_again(handoff: ServiceHandoff) -> None:
    handoff.wait_for_work("a", 0)
    assert handoff.fail(1, "a", "disk full")
    assert handoff.take_news() == [ServiceNews(1, "disk full")]
    handoff.withdraw(2)
    assert handoff.wait_for_work("b", 0) is None
    handoff.offer(offered(1))
    assert handoff.wait_for_work("b", 0) == offered(1)


def test_a_failure_names_the_operations_whose_file_groups_are_its_cause(handoff: ServiceHandoff) -> None:
    calls = ServiceCalls(handoff, "ledger", 1 << 20)
    handoff.wait_for_work("a", 0)
    failed = [
        pb.FailedOperation(number=4, reason="a block is damaged", damaged=True),
        pb.FailedOperation(number=2, reason="no memory" + 2_000 * "!"),
    ]
    calls.report(pb.ReportServiceRequest(worker_id="a", number=1, failure="why", failed=failed, done=9))
    (news,) = handoff.take_news()
    damaged, perhaps = news.failed
    assert (news.number, news.failure, news.done) == (1, "why", 9)
    assert damaged == FailedOperation(4, "a block is damaged", True)
    assert (perhaps.number, perhaps.is_damaged, len(perhaps.reason)) == (2, False, 1_000)


def test_an_action_that_is_given_back_is_free_at_once_and_only_its_holder_gives_it(
    handoff: ServiceHandoff,
) -> None:
    handoff.withdraw(2)
    handoff.wait_for_work("a", 0)
    handoff.progress(1, "a", 3)
    calls = ServiceCalls(handoff, "ledger", 1 << 20)
    with pytest.raises(RefusedServiceError):
        calls.report(pb.ReportServiceRequest(worker_id="b", number=1, given_back=True))
    assert handoff.wait_for_work("b", 0) is None
    calls.report(pb.ReportServiceRequest(worker_id="a", number=1, given_back=True))
    assert handoff.progress_of(1) == ServiceProgress()
    assert handoff.wait_for_work("b", 0) == offered(1)
    assert not handoff.give_back(1, "a")
    handoff.report(1, "b", REPORT)
    assert not handoff.give_back(1, "b"), "what is reported stays"


def test_a_worker_waits_for_an_action(clock: ManualClock) -> None:
    handoff, got = ServiceHandoff(clock), list[OfferedService | None]()
    waiting = threading.Thread(target=lambda: got.append(handoff.wait_for_work("a", 60)))
    waiting.start()
    handoff.offer(offered(1))
    waiting.join(60)
    assert got == [offered(1)]


def deflated(*tickets: Ticket | None) -> tuple[bytes, bytes]:
    outcomes = (MergeOutcome(at, "n", 1, 1, 0, 1, 0, 2, 1, 7, each) for at, each in enumerate(tickets))
    document = encode_outcomes(tuple(outcomes))
    return document, zlib.compress(document)


def test_calls_answer_what_is_known_and_take_what_is_reported(handoff: ServiceHandoff) -> None:
    calls = ServiceCalls(handoff, "ledger", 10_000)
    assert calls.next_service("a", 0).number == 1
    asked = pb.BeginServiceRequest(worker_id="a", number=1)
    begun = calls.begin(asked)
    assert (begun.kind, begun.instant, begun.plan_path, begun.plan_sha256, begun.token) == (
        offered(1).planned.kind,
        T,
        "p",
        "s",
        "token-1",
    )
    assert (begun.share, begun.ledger) == (0.25, "ledger")
    calls.report(pb.ReportServiceRequest(worker_id="a", number=1, done=1))
    ticket = Ticket("d/f", 4, "sha", "service-1/x")
    document, packed = deflated(ticket, None)
    calls.report(pb.ReportServiceRequest(worker_id="a", number=1, outcomes=packed))
    assert handoff.report_of(1) == ServiceReport(document, (ticket,))
    with pytest.raises(RefusedServiceError):
        calls.begin(asked)


def test_a_report_that_cannot_be_read_or_is_too_large_is_refused(handoff: ServiceHandoff) -> None:
    calls = ServiceCalls(handoff, "ledger", 100)
    handoff.wait_for_work("a", 0)
    for packed in (b"x", zlib.compress(b"{"), zlib.compress(b" " * 1_000_000), deflated(None)[1]):
        with pytest.raises(BadOutcomesError):
            calls.report(pb.ReportServiceRequest(worker_id="a", number=1, outcomes=packed))
    assert handoff.take_news() == []


def test_calls_of_a_worker_that_lost_its_action_are_refused(handoff: ServiceHandoff) -> None:
    calls = ServiceCalls(handoff, "ledger", 100)
    handoff.wait_for_work("b", 0)
    for lost in (
        pb.ReportServiceRequest(worker_id="a", number=1, done=1),
        pb.ReportServiceRequest(worker_id="a", number=1, failure="why"),
        pb.ReportServiceRequest(worker_id="a", number=9, outcomes=zlib.compress(b"[]")),
    ):
        with pytest.raises(RefusedServiceError):
            calls.report(lost)
