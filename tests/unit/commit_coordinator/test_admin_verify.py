"""Verification over the admin service, and documents as typed messages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from tests.unit.commit_coordinator.admin_world import WAIT_S, World
from tidemark.admin.v1 import admin_pb2 as pb
from tidemark.commit_coordinator.admin.messages import epoch_message, status_message
from tidemark.stream_runtime.rpc.channel import call


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


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
