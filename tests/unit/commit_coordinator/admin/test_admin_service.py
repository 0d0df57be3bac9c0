"""The admin service on a real server, over parts of the coordinator that hold what a test puts in."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import grpc
import pytest

from tests.unit.commit_coordinator.admin_world import WAIT_S, World, answered, refused
from tidemark.admin.v1 import admin_pb2 as pb
from tidemark.commit_coordinator.admin.limits import CALL_GROUPS, FLUSH_S, longest_s, path
from tidemark.commit_coordinator.admin.service import REASON_CHARACTERS_MAX
from tidemark.commit_coordinator.calls.inbox import INBOX_MAX, FlushNow
from tidemark.commit_coordinator.commit.view import CoordinatorView
from tidemark.epoch_protocol.entries import EpochCommitted
from tidemark.epoch_protocol.fold import Verdict
from tidemark.errors import ErrorKind
from tidemark.ledger_client.dead_letters import LetterFilter, all_letters
from tidemark.ledger_client.fold_reader import Applied
from tidemark.record_formats.refusals import DeadLetterReason
from tidemark.stream_runtime.rpc.channel import call

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


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
        asked = iter([request]) if method.client_streaming else request
        with pytest.raises(grpc.RpcError, match="serves table 't', not 'other'") as failed:
            answered(stub(asked), method.server_streaming)
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
    assert world.refused.counts()["too_many"] == 1
    call(world.stub.Serves, pb.ServesRequest(table="t"))
    world.board.show(CoordinatorView(epoch=3, source_next={"in:0": 5}))
    assert [each.result().epoch for each in waiting] == [3] * 4
    assert call(world.stub.Flush, request).epoch == 3, "places are free again"


# -- flush, epochs, pause


def test_flush_says_what_is_behind_before_its_caller_gives_up(world: World) -> None:
    """By the coordinator's clock, which is ahead here: the caller has nearly a minute left to hear it.

    The server may see a little more time than the caller gave: gRPC rounds what is left up. So the clock goes
    far past all of it.
    """
    world.targets = {"in:0": 5}
    waiting = world.stub.Flush.future(pb.FlushRequest(table="t", timeout_ms=100_000), timeout=WAIT_S)
    end = time.monotonic() + WAIT_S
    while not world.inbox.take_all():
        assert time.monotonic() < end
        time.sleep(0.01)
    world.clock.advance(10 * WAIT_S)
    with pytest.raises(grpc.RpcError, match="most in:0 by 5 offsets") as failed:
        waiting.result()
    assert failed.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


def test_flush_whose_caller_went_away_ends(world: World) -> None:
    world.targets = {"in:0": 5}
    waiting = world.stub.Flush.future(pb.FlushRequest(table="t", timeout_ms=50_000), timeout=WAIT_S)
    end = time.monotonic() + WAIT_S
    while not world.inbox.take_all():
        assert time.monotonic() < end
        time.sleep(0.01)
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
        world.inbox.put(FlushNow())
    error = refused(world.stub.Resume, pb.ResumeRequest(table="t"))
    assert (error.status, error.info.reason) == (grpc.StatusCode.UNAVAILABLE, "INBOX_FULL")


def test_reason_of_a_pause_has_a_limit(world: World) -> None:
    error = refused(world.stub.Pause, pb.PauseRequest(table="t", reason="x" * (REASON_CHARACTERS_MAX + 1)))
    assert error.info.violations[0][0] == "reason"
    assert world.inbox.take_all() == []


# -- dead letters


def test_letters_are_listed_in_pages_from_the_newest_and_counted_whole(world: World) -> None:
    world.refuse(4)
    world.refuse(3, DeadLetterReason.MISSING_KEY)
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
    pages = world.queries.page(LetterFilter(), 10_000)
    assert (len(pages.letters), pages.older) == (20, None)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tidemark.commit_coordinator.dead_letters.queries.PAGE_BYTES_MAX", 5_000)
        page = world.queries.page(LetterFilter(), 10_000)
        assert (len(page.letters), page.count) == (4, 20)
        assert all_letters(lambda below: world.queries.page(LetterFilter(), 7, below), 20) == pages


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
    world.queries._replaying.acquire()
    error = refused(world.stub.ReplayDeadLetters, pb.ReplayDeadLettersRequest(table="t"))
    assert (error.status, error.info.reason) == (grpc.StatusCode.ABORTED, "REPLAY_RUNNING")
    assert error.info.retry_after_s == 5.0
    world.queries._replaying.release()
    assert call(world.stub.ReplayDeadLetters, pb.ReplayDeadLettersRequest(table="t")).replayed == 0


def test_epochs_are_listed_by_the_instants_that_they_committed(world: World) -> None:
    world.plan(5)
    for epoch in (2, 4):
        committed = EpochCommitted(0, epoch, 1, f"T{epoch}", f"C{epoch}", 200)
        world.history.observe(Applied(epoch, committed, Verdict.APPLIED))
    request = pb.ListEpochsRequest(table="t", instants=["T2", "T3", "T4", "unknown"], limit=1)
    first = call(world.stub.ListEpochs, request)
    assert [each.epoch for each in first.epochs] == [4]
    request.page_token = first.next_page_token
    second = call(world.stub.ListEpochs, request)
    assert ([each.epoch for each in second.epochs], second.next_page_token) == ([2], "")
