"""Orders to pause and to go on: who gave one hears "done" when it holds, and not before."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from tests.unit.commit_coordinator.admin_world import WAIT_S, World, refused
from tidemark.admin.v1 import admin_pb2 as pb
from tidemark.commit_coordinator.admin import orders
from tidemark.commit_coordinator.admin.service import REASON_CHARACTERS_MAX
from tidemark.commit_coordinator.calls.inbox import PauseServices, PauseTagging
from tidemark.commit_coordinator.commit.view import CoordinatorView
from tidemark.commit_coordinator.refusals import CoordinatorStoppedError
from tidemark.table_status.services import OwnServices

LONGEST = "x" * REASON_CHARACTERS_MAX
Order = PauseTagging | PauseServices
CALLS: dict[str, tuple[Any, Order]] = {
    "Pause": (pb.PauseRequest(table="t", reason=LONGEST), PauseTagging(True, LONGEST)),
    "Resume": (pb.ResumeRequest(table="t"), PauseTagging(False, "")),
    "PauseServices": (pb.PauseServicesRequest(table="t", reason="why"), PauseServices(True, "why")),
    "ResumeServices": (pb.ResumeServicesRequest(table="t"), PauseServices(False, "")),
}


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


def view(paused: bool, term: int = 1, **more: Any) -> CoordinatorView:
    return CoordinatorView(
        term=term, paused=paused, services=OwnServices(enabled=True, paused=paused), **more
    )


def taken(world: World) -> Order:
    end = time.monotonic() + WAIT_S
    while not (found := world.inbox.take_all()):
        assert time.monotonic() < end
        time.sleep(0.005)
    (order,) = found
    assert isinstance(order, PauseTagging | PauseServices)
    return order


@pytest.mark.parametrize("name", CALLS)
def test_an_order_is_done_once_the_loop_has_taken_it(world: World, name: str) -> None:
    request, order = CALLS[name]
    world.board.show(view(paused=name.startswith("Pause")))
    waiting = getattr(world.stub, name).future(request, timeout=WAIT_S)
    given = taken(world)
    assert given == order
    assert not waiting.done(), "the view is older than the order: another one may be on its way"
    given.taken.set_result(None)
    waiting.result()


@pytest.mark.parametrize("name", CALLS)
def test_an_order_to_a_coordinator_that_has_stopped_is_refused(world: World, name: str) -> None:
    """It throws orders away: after the restart that it asks for nothing would be paused."""
    request, _ = CALLS[name]
    world.board.show(view(paused=False, halted="a gap", stopped=True))
    error = refused(getattr(world.stub, name), request)
    assert (error.status, error.info.reason) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "COORDINATOR_STOPPED",
    )
    assert "a gap" in error.details
    assert world.inbox.take_all() == []


def test_an_order_that_meets_a_coordinator_that_stops_is_refused(world: World) -> None:
    request, _ = CALLS["Pause"]
    world.board.show(view(paused=False))
    waiting = world.stub.Pause.future(request, timeout=WAIT_S)
    taken(world).taken.set_exception(CoordinatorStoppedError("a gap"))
    with pytest.raises(grpc.RpcError, match="a gap"):
        waiting.result()


def test_an_order_that_is_not_taken_in_time_is_not_called_done(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orders, "_TAKEN_S", 0.1)
    world.board.show(view(paused=False))
    error = refused(world.stub.Pause, CALLS["Pause"][0])
    assert error.status is grpc.StatusCode.DEADLINE_EXCEEDED
    assert "has not taken the order yet" in error.details
