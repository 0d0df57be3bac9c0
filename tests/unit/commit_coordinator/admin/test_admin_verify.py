"""Verification over the admin service, and documents as typed messages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from msgspec import structs

from tests.unit.commit_coordinator.admin_world import WAIT_S, World
from tests.unit.typed_status import IDLE, typed_status
from tidemark.admin.v1 import admin_pb2 as pb
from tidemark.epoch_protocol.entries import Counts
from tidemark.stream_runtime.rpc.channel import call
from tidemark.table_status.epochs import AttemptRecord, EpochRecord
from tidemark.table_status.messages import epoch_message, epoch_of, status_message, status_of
from tidemark.table_status.status import (
    DeadLetterOffsets,
    LastCommit,
    MemberState,
    ServicesState,
    TableServices,
    TimelineState,
    VerificationState,
    VerifiedUpTo,
)
from tidemark.table_status.warnings import StatusWarning, WarningKind


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
    assert "3 differences" in world.verification.warnings()[0].text
    state = world.verification.state()
    assert state is not None
    assert state.last is not None
    assert state.last.agrees is False


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


def test_an_epoch_is_typed_whole_and_read_back() -> None:
    attempt = AttemptRecord(1, None, 1_700_000_000_000, voided="lost", timings_ms={"write": 1.5})
    epoch = EpochRecord(7, 90, [attempt], None, None, Counts(input=3, no_ops=1), 5, 2)
    epoch.keyed_offsets, epoch.source_offsets = {"k:0": (1, 4)}, {"in:0": (0, 9)}
    typed = epoch_message(epoch)
    assert (typed.epoch, typed.through, typed.HasField("instant"), typed.counts.no_ops) == (7, 90, False, 1)
    assert (typed.source_offsets["in:0"].first, typed.source_offsets["in:0"].next) == (0, 9)
    (sent,) = typed.attempts
    assert (sent.voided, sent.planned_ms, dict(sent.timings_ms)) == (
        "lost",
        1_700_000_000_000,
        {"write": 1.5},
    )
    assert epoch_of(typed) == epoch


def test_a_status_comes_over_the_wire_whole() -> None:
    status = typed_status(IDLE | {"warnings": [StatusWarning(WarningKind.HALTED, "why")]})
    full = structs.replace(
        status,
        lag=None,
        last_commit=LastCommit(7, "T", "C", EpochRecord(7, 90, [AttemptRecord(1, None, 5)])),
        services=ServicesState([MemberState(0, "p", "h:1", ["in:0"], 2**40, {"hot": 1.5})], []),
        table_services=TableServices("Hudi", [], TimelineState(3, ["x"], "T1", None), TimelineState(0, [])),
        dead_letters=DeadLetterOffsets(2**40, 1, 0),
        refused_calls={"no_token": 3},
        verification=VerificationState(5, 0, True, VerifiedUpTo(None, 9), None),
    )
    assert status_of(status_message(full)) == full
    assert status_of(status_message(status)) == status


def test_what_a_former_coordinator_did_not_say_has_no_value() -> None:
    message = status_message(typed_status({**IDLE, "warnings": ["an old text"]}))
    for name in ("typed_warnings", "table_services", "verification", "file_groups"):
        message.ClearField(name)
    read = status_of(message)
    assert read.warnings == [StatusWarning(WarningKind.OTHER, "an old text")]
    assert (read.table_services.table, read.verification, read.file_groups) == (None, None, None)


def test_a_kind_of_warning_that_a_later_coordinator_knows_is_taken() -> None:
    message = status_message(typed_status({**IDLE, "warnings": ["a new text"]}))
    message.typed_warnings[0].kind = "of-later"
    assert status_of(message).warnings == [StatusWarning(WarningKind.OTHER, "a new text")]
