"""The admin service on a real server, over parts of the coordinator that hold what a test puts in."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import grpc
import pytest

from commit_coordinator.admin.dead_letter_calls import DeadLetterCalls
from commit_coordinator.admin.limits import CALL_GROUPS, FLUSH_S, SERVICE_NAME, longest_s, path
from commit_coordinator.admin.messages import epoch_message, status_message
from commit_coordinator.admin.verify_calls import VerifyCalls
from commit_coordinator.admin_service import REASON_CHARACTERS_MAX
from commit_coordinator.dead_letter_desk import DeadLetterDesk, all_letters
from commit_coordinator.dead_letters import LetterFilter
from commit_coordinator.history import EpochHistory
from commit_coordinator.inbox import INBOX_MAX, HurryUp, Inbox, PauseTagging
from commit_coordinator.verification import PeriodicVerification
from commit_coordinator.view import CoordinatorView, ViewBoard
from epoch_protocol.entries import EpochPlanned
from epoch_protocol.fold import Verdict
from index_assigner.shuffle.dead_letters import dead_letters
from index_assigner.shuffle.refusals import Reason, Refusal
from ledger_client.fold_reader import Applied
from stream_runtime.clock import ManualClock, SystemClock
from stream_runtime.config.model import Address
from stream_runtime.errors import ErrorKind
from stream_runtime.ids import SeededIds
from stream_runtime.kafka.memory import MemoryBroker, MemoryKafkaClient
from stream_runtime.kafka.ports import Message, TopicPartition, TopicSpec
from stream_runtime.rpc.call_groups import CallGroups
from stream_runtime.rpc.channel import call, open_channel
from stream_runtime.rpc.errors import RpcError
from stream_runtime.rpc.server import start_server
from tests.unit.commit_coordinator.admin_parts import admin_service
from tidemark.admin.v1 import admin_pb2 as pb
from tidemark.admin.v1 import admin_pb2_grpc

ROOT = Path(__file__).resolve().parents[3]
LETTERS = TopicPartition("t.dead-letter", 0)
WAIT_S = 60.0


class World:
    """Parts of a coordinator, and its admin service on a port."""

    def __init__(self) -> None:
        clock = ManualClock()
        self.broker = MemoryBroker(clock, SeededIds(1))
        self.client = MemoryKafkaClient(self.broker)
        self.client.admin().create_topics([TopicSpec("in", 2), TopicSpec(LETTERS.topic, 1)])
        self.board, self.inbox, self.history = ViewBoard(), Inbox(), EpochHistory()
        self.targets: dict[str, int] = {}
        self.flushes = 0
        self.answers: list[dict[str, Any]] = []
        self.go = threading.Semaphore(0)
        self.verification = PeriodicVerification(0, self._verify, SystemClock(), lambda: "reads shard 3")
        self.desk = DeadLetterDesk(self.client, "t", ["in"], clock)
        service = admin_service(
            board=self.board,
            inbox=self.inbox,
            history=self.history,
            targets=self._targets,
            dead_letters=DeadLetterCalls(self.desk),
            verify=VerifyCalls(self.verification, SystemClock()),
        )
        self.server = start_server(
            Address("127.0.0.1", 0),
            [(SERVICE_NAME, lambda server: admin_pb2_grpc.add_AdminServicer_to_server(service, server))],
            interceptors=[CallGroups(CALL_GROUPS)],
            longest_s=longest_s(10.0),
        )
        self.channel = open_channel(self.server.address, deadline_s=WAIT_S)
        self.stub = admin_pb2_grpc.AdminStub(self.channel)

    def _verify(self, stopped: threading.Event, full: bool) -> dict[str, Any]:
        while not self.go.acquire(timeout=0.02):
            if stopped.is_set():
                return {"error": "stopped"}
        return {"full": full, **self.answers.pop(0)}

    def _targets(self) -> dict[str, int]:
        self.flushes += 1
        return self.targets

    def refuse(self, count: int, reason: Reason = Reason.NOT_JSON, detail: str = "why") -> None:
        """Letters as the shuffle stage publishes them."""
        for number in range(count):
            message = Message("in", 1, number, b"k", b"{" * 10, (("trace", b"\x01"),), 1_234)
            (letter,) = dead_letters([message], [Refusal(0, reason, detail)], LETTERS.topic, 1 << 20)
            self.broker.produce(LETTERS, letter.key, letter.value, letter.headers)

    def plan(self, epochs: int) -> None:
        for epoch in range(1, epochs + 1):
            planned = EpochPlanned(0, epoch, 1, 0, epoch, f"T{epoch}", "0", "", 100)
            self.history.observe(Applied(epoch, planned, Verdict.APPLIED))

    def ids(self, page: pb.ListDeadLettersResponse) -> list[int]:
        return [each.id for each in page.letters]

    def close(self) -> None:
        self.verification.stop()
        self.channel.close()
        self.server.stop(0.1)


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


def refused(method: Any, request: Any) -> RpcError:
    with pytest.raises(RpcError) as failed:
        call(method, request)
    return failed.value


def answered(answer: Any, streams: bool) -> Any:
    return list(answer) if streams else answer


# -- what holds for all calls


def test_every_method_and_every_field_is_described_in_the_proto() -> None:
    lines = (ROOT / "proto/tidemark/admin/v1/admin.proto").read_text(encoding="utf-8").splitlines()
    methods = [(before, line) for before, line in pairwise(lines) if line.startswith("  rpc ")]
    fields = [line for line in lines if re.match(r" +[\w<>, ]+ \w+ = \d+;", line)]
    assert len(methods) == len(pb.DESCRIPTOR.services_by_name["Admin"].methods)
    assert len(fields) > 150
    bare = [line for before, line in methods if "//" not in before]
    assert bare + [line for line in fields if "//" not in line] == []


def test_another_table_is_refused_by_every_call(world: World) -> None:
    service = pb.DESCRIPTOR.services_by_name["Admin"]
    for method in service.methods:
        request = getattr(pb, method.input_type.name)(table="other")
        stub = getattr(world.stub, method.name)
        with pytest.raises(grpc.RpcError, match="serves table 't', not 'other'") as failed:
            answered(stub(request), method.server_streaming)
        assert failed.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_limits_name_methods_that_there_are() -> None:
    methods = {path(name) for name in pb.DESCRIPTOR.services_by_name["Admin"].methods_by_name}
    limits = longest_s(10.0)
    assert limits.keys() <= methods
    assert limits[path("Flush")] == FLUSH_S
    assert limits[path("Verify")] >= 20.0
    assert set().union(*(group.methods for group in CALL_GROUPS)) == methods


def test_too_many_waiting_calls_are_sent_away_and_others_still_answered(world: World) -> None:
    world.targets = {"in:0": 5}
    request = pb.FlushRequest(table="t", timeout_ms=50_000)
    waiting = [world.stub.Flush.future(request, timeout=WAIT_S) for _ in range(4)]
    end = time.monotonic() + WAIT_S
    while world.flushes < 4:
        assert time.monotonic() < end
        time.sleep(0.01)
    error = refused(world.stub.Flush, request)
    assert (error.kind, error.info.reason) == (ErrorKind.RETRYABLE, "TOO_MANY_CALLS")
    assert "at most 4 calls of Flush and RetryEpoch" in error.details
    call(world.stub.Serves, pb.ServesRequest(table="t"))
    world.board.show(CoordinatorView(epoch=3, source_next={"in:0": 5}))
    assert [each.result().epoch for each in waiting] == [3] * 4
    assert call(world.stub.Flush, request).epoch == 3, "places are free again"


# -- flush, epochs, pause


def test_flush_says_what_is_behind_before_its_caller_gives_up(world: World) -> None:
    world.targets = {"in:0": 5}
    with pytest.raises(RpcError, match="most in:0 by 5 offsets") as failed:
        call(world.stub.Flush, pb.FlushRequest(table="t", timeout_ms=50_000), 1.5)
    assert failed.value.status is grpc.StatusCode.DEADLINE_EXCEEDED


def test_flush_whose_caller_went_away_ends(world: World) -> None:
    world.targets = {"in:0": 5}
    waiting = world.stub.Flush.future(pb.FlushRequest(table="t", timeout_ms=50_000), timeout=WAIT_S)
    end = time.monotonic() + WAIT_S
    while not world.inbox.take_all():
        assert time.monotonic() < end
    waiting.cancel()
    while world.inbox.take_all() or not _quiet(world):
        assert time.monotonic() < end


def _quiet(world: World) -> bool:
    """Nobody has hurried the coordinator for longer than a flush rests."""
    time.sleep(0.6)
    return not world.inbox.take_all()


def test_epochs_are_listed_in_pages_from_the_newest(world: World) -> None:
    world.plan(5)
    pages, token = [], ""
    while True:
        page = call(world.stub.ListEpochs, pb.ListEpochsRequest(table="t", limit=2, page_token=token))
        assert [json.loads(text)["epoch"] for text in page.json] == [each.epoch for each in page.epochs]
        pages.append([each.epoch for each in page.epochs])
        if not (token := page.next_page_token):
            break
    assert pages == [[5, 4], [3, 2], [1]]
    shown = call(world.stub.ShowEpoch, pb.ShowEpochRequest(table="t", epoch=4)).epoch
    assert (shown.through, shown.attempts[0].instant, shown.attempts[0].planned_ms) == (4, "T4", 100)
    assert not shown.attempts[0].HasField("committed_ms")
    error = refused(world.stub.ListEpochs, pb.ListEpochsRequest(table="t", page_token="x"))
    assert error.info.violations[0][0] == "page_token"


def test_epoch_that_is_not_known_is_not_found(world: World) -> None:
    error = refused(world.stub.ShowEpoch, pb.ShowEpochRequest(table="t", epoch=7))
    assert (error.status, error.info.reason) == (grpc.StatusCode.NOT_FOUND, "EPOCH_UNKNOWN")


def test_retry_of_another_epoch_names_the_one_that_was_given_up(world: World) -> None:
    world.board.show(CoordinatorView(epoch=6, halted="ten attempts"))
    error = refused(world.stub.RetryEpoch, pb.RetryEpochRequest(table="t", epoch=3))
    assert (error.status, error.info.reason) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "EPOCH_NOT_GIVEN_UP",
    )
    assert error.info.metadata == {"blocked_epoch": "7"}


def test_order_that_finds_the_inbox_full_may_be_given_again(world: World) -> None:
    for _ in range(INBOX_MAX):
        world.inbox.put(HurryUp())
    error = refused(world.stub.Resume, pb.ResumeRequest(table="t"))
    assert (error.status, error.info.reason) == (grpc.StatusCode.UNAVAILABLE, "INBOX_FULL")


def test_reason_of_a_pause_has_a_limit(world: World) -> None:
    error = refused(world.stub.Pause, pb.PauseRequest(table="t", reason="x" * (REASON_CHARACTERS_MAX + 1)))
    assert error.info.violations[0][0] == "reason"
    call(world.stub.Pause, pb.PauseRequest(table="t", reason="x" * REASON_CHARACTERS_MAX))
    assert world.inbox.take_all() == [PauseTagging(True, "x" * REASON_CHARACTERS_MAX)]


# -- dead letters


def test_letters_are_listed_in_pages_from_the_newest_and_counted_whole(world: World) -> None:
    world.refuse(4)
    world.refuse(3, Reason.MISSING_KEY)
    pages, token = [], ""
    while True:
        request = pb.ListDeadLettersRequest(table="t", page_size=3, page_token=token)
        page = call(world.stub.ListDeadLetters, request)
        assert (page.count, dict(page.by_reason)) == (7, {"missing-key": 3, "not-json": 4})
        pages.append(world.ids(page))
        if not (token := page.next_page_token):
            break
    assert pages == [[4, 5, 6], [1, 2, 3], [0]]
    wanted = pb.DeadLetterFilter(reason="missing-key")
    page = call(world.stub.ListDeadLetters, pb.ListDeadLettersRequest(table="t", filter=wanted))
    assert (page.count, world.ids(page), page.next_page_token) == (3, [4, 5, 6], "")
    error = refused(world.stub.ListDeadLetters, pb.ListDeadLettersRequest(table="t", page_token="1:2"))
    assert error.info.violations[0][0] == "page_token"


def test_page_of_long_letters_ends_below_what_clients_take(world: World) -> None:
    world.refuse(20, detail="d" * 1_000)
    pages = world.desk.page(LetterFilter(), 10_000)
    assert (len(pages.letters), pages.older) == (20, None)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("commit_coordinator.dead_letter_desk.PAGE_BYTES_MAX", 5_000)
        page = world.desk.page(LetterFilter(), 10_000)
        assert (len(page.letters), page.count) == (4, 20)
        assert all_letters(lambda below: world.desk.page(LetterFilter(), 7, below), 20) == pages


def test_letter_is_shown_whole_or_cut(world: World) -> None:
    world.refuse(1)
    whole = call(world.stub.ShowDeadLetter, pb.ShowDeadLetterRequest(table="t", id=0))
    assert (whole.key, whole.value, whole.is_cut) == (b"k", b"{" * 10, False)
    assert [(each.name, each.value) for each in whole.headers] == [("trace", b"\x01")]
    request = pb.ShowDeadLetterRequest(table="t", id=0, content_bytes_max=4)
    cut = call(world.stub.ShowDeadLetter, request)
    assert (cut.key, cut.value, cut.is_cut) == (b"k", b"{{{{", True)
    error = refused(world.stub.ShowDeadLetter, pb.ShowDeadLetterRequest(table="t", id=1))
    assert (error.status, error.info.reason) == (grpc.StatusCode.NOT_FOUND, "DEAD_LETTER_UNKNOWN")


def test_replay_goes_on_page_by_page_and_leaves_out_what_came_after_it_began(world: World) -> None:
    world.refuse(5)
    request = pb.ReplayDeadLettersRequest(table="t", page_size=2)
    first = call(world.stub.ReplayDeadLetters, request)
    assert (first.replayed, [each.id for each in first.chosen]) == (2, [0, 1])
    world.refuse(1)
    done, token = first.replayed, first.next_page_token
    while token:
        request.page_token = token
        page = call(world.stub.ReplayDeadLetters, request)
        done, token = done + page.replayed, page.next_page_token
    assert done == 5
    again = call(world.stub.ReplayDeadLetters, pb.ReplayDeadLettersRequest(table="t", dry_run=True))
    assert (again.replayed, len(again.chosen), len(again.skipped)) == (0, 1, 5)
    assert {each.why for each in again.skipped} == {"it was replayed already (--again)"}
    error = refused(world.stub.ReplayDeadLetters, pb.ReplayDeadLettersRequest(table="t", replays_max=5_000))
    assert error.info.violations[0][0] == "replays_max"


def test_one_replay_at_a_time(world: World) -> None:
    world.desk._replaying.acquire()
    error = refused(world.stub.ReplayDeadLetters, pb.ReplayDeadLettersRequest(table="t"))
    assert (error.status, error.info.reason) == (grpc.StatusCode.ABORTED, "REPLAY_RUNNING")
    assert error.info.retry_after_s == 5.0
    world.desk._replaying.release()
    assert call(world.stub.ReplayDeadLetters, pb.ReplayDeadLettersRequest(table="t")).replayed == 0


# -- verification


AGREES: dict[str, Any] = {"agrees": True, "as_of": "2026", "rows": 7, "commits": {"last_epoch": 3}}
DIFFERS: dict[str, Any] = {
    "agrees": False,
    "as_of": "2027",
    "differences": {"row-without-entry": {"count": 3, "examples": ["k4"]}},
}


def test_verify_streams_progress_and_ends_with_the_result(world: World) -> None:
    world.answers = [AGREES]
    stream = world.stub.Verify(pb.VerifyRequest(table="t", full=True), timeout=WAIT_S)
    seen = [next(stream)]
    world.go.release()
    seen += list(stream)
    assert seen[0].progress.doing in ("waits for its turn", "reads shard 3")
    assert [each.WhichOneof("what") for each in seen[:-1]] == ["progress"] * (len(seen) - 1)
    result = seen[-1].result
    assert (result.agrees, result.as_of, result.rows) == (True, "2026", 7)
    assert json.loads(result.json)["full"] is True
    last = call(world.stub.LastVerification, pb.LastVerificationRequest(table="t"))
    assert (last.last, last.agreed_epoch, last.agreed_as_of, last.is_running) == (result, 3, "2026", False)


def test_verify_that_finds_differences_names_them_and_warns(world: World) -> None:
    world.answers = [DIFFERS]
    world.go.release()
    *_, end = world.stub.Verify(pb.VerifyRequest(table="t"), timeout=WAIT_S)
    assert end.result.agrees is False
    (difference,) = end.result.differences
    assert (difference.kind, difference.count, list(difference.examples)) == ("row-without-entry", 3, ["k4"])
    assert "3 differences" in world.verification.warnings()[0]
    document = world.verification.document()
    assert document is not None
    assert document["last"]["agrees"] is False


def test_verify_that_could_not_be_decided_has_no_verdict(world: World) -> None:
    world.answers = [{"error": "no such table"}]
    world.go.release()
    *_, end = world.stub.Verify(pb.VerifyRequest(table="t"), timeout=WAIT_S)
    assert (end.result.HasField("agrees"), end.result.error) == (False, "no such table")


def test_who_asks_for_the_same_meanwhile_shares_the_next_verification(world: World) -> None:
    world.answers = [AGREES, AGREES]
    running = world.verification.ask(False)
    assert running.begun.wait(WAIT_S)
    waiting = [world.verification.ask(False) for _ in range(3)]
    full = world.verification.ask(True)
    assert len({id(each) for each in waiting}) == 1
    world.go.release(2)
    assert waiting[0].done.wait(WAIT_S)
    assert not full.done.is_set()
    world.answers.append(DIFFERS)
    world.go.release()
    assert full.done.wait(WAIT_S)
    assert full.verdict is not None
    assert full.verdict.answer["full"] is True


def test_coordinator_that_stops_tells_who_waits_for_a_verification(world: World) -> None:
    stream = world.stub.Verify(pb.VerifyRequest(table="t"), timeout=WAIT_S)
    assert next(stream).WhichOneof("what") == "progress"
    queued = world.verification.ask(True)
    world.verification.stop()
    with pytest.raises(grpc.RpcError, match="the coordinator stops") as failed:
        list(stream)
    assert failed.value.code() is grpc.StatusCode.UNAVAILABLE
    assert queued.done.is_set()
    assert world.verification.ask(True).done.is_set()


def test_nothing_was_verified_yet(world: World) -> None:
    last = call(world.stub.LastVerification, pb.LastVerificationRequest(table="t"))
    assert not last.HasField("last")
    assert (last.agreed_epoch, last.every_commits) == (0, 0)


# -- documents


def test_epoch_of_the_document_is_typed_whole() -> None:
    document = {
        "epoch": 7, "through": 90, "instant": None, "completion": None, "bytes": 5, "transactions": 2,
        "counts": {"input": 3, "no_ops": 1},
        "keyed_offsets": {"k:0": [1, 4]}, "source_offsets": {"in:0": (0, 9)},
        "attempts": [{"attempt": 1, "instant": "T", "planned_ms": 1_700_000_000_000, "decided_ms": None,
                      "committed_ms": None, "voided": "lost", "timings_ms": {"write": 1.5}}],
    }  # fmt: skip
    typed = epoch_message(document)
    assert (typed.epoch, typed.through, typed.HasField("instant"), typed.counts.no_ops) == (7, 90, False, 1)
    assert (typed.source_offsets["in:0"].first, typed.source_offsets["in:0"].next) == (0, 9)
    (attempt,) = typed.attempts
    assert (attempt.voided, attempt.planned_ms, dict(attempt.timings_ms)) == (
        "lost", 1_700_000_000_000, {"write": 1.5},
    )  # fmt: skip


def test_keys_of_a_document_that_no_field_has_are_passed_over() -> None:
    typed = status_message({"table": "t", "new": {"deep": [None]}, "coordinator": {"term": 3, "newer": [1]}})
    assert (typed.table, typed.coordinator.term) == ("t", 3)
