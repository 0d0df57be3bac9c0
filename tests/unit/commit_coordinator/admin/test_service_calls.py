"""The admin service's calls about table services, on a real server; a test plays the loop."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import grpc
import pytest

from tests.unit.commit_coordinator.admin_world import WAIT_S, World, refused
from tidemark.admin.v1 import admin_pb2 as pb
from tidemark.commit_coordinator.admin.service import REASON_CHARACTERS_MAX
from tidemark.commit_coordinator.calls.inbox import RunAnswer, RunService
from tidemark.commit_coordinator.commit.view import CoordinatorView
from tidemark.stream_runtime.rpc.channel import call
from tidemark.table_status.messages import services_of
from tidemark.table_status.services import (
    EndedServiceAction,
    OpenServiceAction,
    OwnServices,
    ServiceFailures,
    ServiceKindState,
)

KINDS = ("compact-index", "compact-data", "clean-data", "clean-index", "archive", "rollback")
OPEN = OpenServiceAction(
    number=4, instant="T4", step="planned", planned_ms=10, groups=8, groups_done=3, bytes=99, worker="w"
)
DONE = EndedServiceAction(number=4, instant="T4", outcome="done", planned_ms=10, ended_ms=30, groups=8)


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    made.board.show(CoordinatorView(term=1))
    yield made
    made.close()


def services(**by_kind: Any) -> OwnServices:
    """Enabled ones; `by_kind`: fields of a kind's state, `compact_data={"open": …}`."""
    return OwnServices(
        enabled=True,
        kinds=[ServiceKindState(kind=kind, **by_kind.get(kind.replace("-", "_"), {})) for kind in KINDS],
    )


def orders(world: World, count: int) -> list[RunService]:
    """The orders to run services that wait for the loop, once there are so many."""
    found: list[RunService] = []
    end = time.monotonic() + WAIT_S
    while len(found) < count:
        assert time.monotonic() < end
        found += [each for each in world.inbox.take_all() if isinstance(each, RunService)]
        time.sleep(0.005)
    return found


def test_list_tells_all_that_is_known_typed_and_as_a_document(world: World) -> None:
    failures = ServiceFailures(2, "no space", 70_000)
    held = {"held_back": ["savepoint 20261123"], "not_due": "40 instants, less than 600"}
    known = services(
        compact_data={"open": OPEN}, clean_data={"last": DONE, "failures": failures}, archive=held
    )
    world.board.show(CoordinatorView(term=1, services=known))
    answer = call(world.stub.ListServices, pb.ListServicesRequest(table="t"))
    assert services_of(answer.services) == known
    document = json.loads(answer.json)
    assert document["kinds"][1]["open"]["groups_done"] == 3
    assert document["kinds"][4]["held_back"] == ["savepoint 20261123"]


def test_orders_to_a_coordinator_without_services_say_how_to_enable_them(world: World) -> None:
    for method, request in (
        (world.stub.RunService, pb.RunServiceRequest(table="t", kind="archive")),
        (world.stub.PauseServices, pb.PauseServicesRequest(table="t")),
        (world.stub.ResumeServices, pb.ResumeServicesRequest(table="t")),
    ):
        error = refused(method, request)
        assert (error.status, error.info.reason) == (
            grpc.StatusCode.FAILED_PRECONDITION,
            "SERVICES_DISABLED",
        )
        assert "table_services.enabled" in error.details
    assert not call(world.stub.ListServices, pb.ListServicesRequest(table="t")).services.enabled


def test_run_returns_the_number_of_the_action_or_why_there_is_nothing_to_do(world: World) -> None:
    world.board.show(CoordinatorView(term=1, services=services()))
    waiting = world.stub.RunService.future(pb.RunServiceRequest(table="t", kind="clean"), timeout=WAIT_S)
    first, second = orders(world, 2)
    assert (first.kind, second.kind) == ("clean-data", "clean-index")
    first.answer.set_result(RunAnswer(7))
    second.answer.set_result(RunAnswer(0, "no file is older than the horizon"))
    runs = waiting.result().runs
    assert [(run.kind, run.number, run.nothing) for run in runs] == [
        ("clean-data", 7, ""),
        ("clean-index", 0, "no file is older than the horizon"),
    ]
    assert not any(run.HasField("ended") for run in runs)


def test_run_that_waits_returns_how_the_action_ended(world: World) -> None:
    world.board.show(CoordinatorView(term=1, services=services(compact_data={"open": OPEN})))
    request = pb.RunServiceRequest(table="t", kind="compact-data", wait=True, timeout_ms=50_000)
    waiting = world.stub.RunService.future(request, timeout=WAIT_S)
    (order,) = orders(world, 1)
    order.answer.set_result(RunAnswer(4))
    world.board.show(CoordinatorView(term=1, services=services(compact_data={"last": DONE})))
    (run,) = waiting.result().runs
    assert (run.ended.outcome, run.ended.ended_ms, run.ended.groups) == ("done", 30, 8)


def test_run_that_waits_for_too_long_says_that_the_action_goes_on(world: World) -> None:
    world.board.show(CoordinatorView(term=1, services=services(compact_data={"open": OPEN})))
    request = pb.RunServiceRequest(table="t", kind="compact-data", wait=True, timeout_ms=50_000)
    waiting = world.stub.RunService.future(request, timeout=WAIT_S)
    (order,) = orders(world, 1)
    order.answer.set_result(RunAnswer(4))
    world.clock.advance(10 * WAIT_S)
    with pytest.raises(grpc.RpcError, match="compact-data goes on as action 4") as failed:
        waiting.result()
    assert failed.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


@pytest.mark.parametrize(
    ("kind", "epoch", "why"),
    [
        ("compact-data", 12, "waits for the end of epoch 12, usually for 120 s at most"),
        ("compact-data", None, "the coordinator is busy"),
        ("compact-index", 12, "the coordinator is busy"),
    ],
)
def test_run_of_what_is_not_planned_in_time_says_what_it_waits_for(
    world: World, kind: str, epoch: int | None, why: str
) -> None:
    world.board.show(CoordinatorView(term=1, services=services(), planned_epoch=epoch))
    request = pb.RunServiceRequest(table="t", kind=kind)
    waiting = world.stub.RunService.future(request, timeout=WAIT_S)
    orders(world, 1)
    world.clock.advance(10 * WAIT_S)
    with pytest.raises(grpc.RpcError, match=f"{kind} is not planned yet, .*{why}"):
        waiting.result()


def test_run_of_an_unknown_service_names_the_kinds(world: World) -> None:
    world.board.show(CoordinatorView(term=1, services=services()))
    error = refused(world.stub.RunService, pb.RunServiceRequest(table="t", kind="vacuum"))
    assert error.info.violations[0][0] == "kind"
    assert all(kind in error.details for kind in (*KINDS, "clean"))
    assert world.inbox.take_all() == []


def test_run_is_refused_once_the_coordinator_has_stopped(world: World) -> None:
    world.board.show(CoordinatorView(term=1, services=services(), halted="a gap", stopped=True))
    error = refused(world.stub.RunService, pb.RunServiceRequest(table="t", kind="archive"))
    assert (error.info.reason, "a gap" in error.details) == ("SERVICES_HALTED", True)


def test_run_is_refused_while_the_table_cannot_be_served_and_not_for_an_epoch_that_was_given_up(
    world: World,
) -> None:
    view = CoordinatorView(term=1, services=services(), halted="no record index")
    world.board.show(view)
    error = refused(world.stub.RunService, pb.RunServiceRequest(table="t", kind="archive"))
    assert (error.info.reason, "no record index" in error.details) == ("SERVICES_HALTED", True)
    assert world.inbox.take_all() == []
    world.board.show(replace(view, given_up=True))
    waiting = world.stub.RunService.future(pb.RunServiceRequest(table="t", kind="archive"), timeout=WAIT_S)
    (order,) = orders(world, 1)
    order.answer.set_result(RunAnswer(7))
    assert [run.number for run in waiting.result().runs] == [7]


def test_run_that_waits_is_refused_when_the_coordinator_stops(world: World) -> None:
    world.board.show(CoordinatorView(term=1, services=services()))
    waiting = world.stub.RunService.future(pb.RunServiceRequest(table="t", kind="archive"), timeout=WAIT_S)
    orders(world, 1)
    world.board.show(CoordinatorView(term=1, services=services(), halted="a gap", stopped=True))
    with pytest.raises(grpc.RpcError, match="a gap"):
        waiting.result()


def test_reason_of_a_pause_of_services_has_a_limit(world: World) -> None:
    world.board.show(CoordinatorView(term=1, services=services()))
    longest = "x" * (REASON_CHARACTERS_MAX + 1)
    error = refused(world.stub.PauseServices, pb.PauseServicesRequest(table="t", reason=longest))
    assert error.info.violations[0][0] == "reason"
    assert world.inbox.take_all() == []
