"""The admin service's calls about table services: list them, run one, stop and go on planning them.

The loop plans and decides; these handlers leave requests in its inbox and read its views.
"""

from __future__ import annotations

import logging
from concurrent.futures import TimeoutError as NotAnsweredError
from functools import partial
from typing import Final

from tidemark.admin.v1 import admin_pb2 as pb
from tidemark.commit_coordinator.admin.orders import give_order
from tidemark.commit_coordinator.calls.inbox import Inbox, PauseServices, RunAnswer, RunService
from tidemark.commit_coordinator.commit.view import CoordinatorView, ViewBoard
from tidemark.commit_coordinator.domain.service_actions import ATTEMPT_MS, BETWEEN_EPOCHS
from tidemark.commit_coordinator.refusals import (
    BadRequestError,
    ServicesDisabledError,
    ServicesHaltedError,
)
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.errors import DeadlineExceededError
from tidemark.stream_runtime.logging import one_line_json
from tidemark.stream_runtime.retry import Deadline
from tidemark.stream_runtime.rpc.interceptors import is_wanted
from tidemark.table_status.messages import ended_message, services_document, services_message
from tidemark.table_status.services import CLEAN, EndedServiceAction, OwnServices, named_kinds

_LOOK_EVERY_S: Final = 0.5
_FIRST_VIEW_S: Final = 2.0
_log = logging.getLogger("tidemark.admin")


class TableServiceCalls:
    """The handlers, without gRPC."""

    def __init__(self, board: ViewBoard, inbox: Inbox, clock: Clock) -> None:
        self._board = board
        self._inbox = inbox
        self._clock = clock

    def list(self) -> pb.ListServicesResponse:
        """The services as the newest view has them."""
        services = self._first_view().services
        return pb.ListServicesResponse(
            json=one_line_json(services_document(services)), services=services_message(services)
        )

    def pause(self, reason: str) -> None:
        """Stops the planning of services. Raises ServicesDisabledError, and as `give_order`."""
        self._enabled()
        _log.info("table services are to pause, as asked: %s", reason)
        self._give(PauseServices(True, reason))

    def resume(self) -> None:
        """Has services planned again. Raises ServicesDisabledError, and as `give_order`."""
        self._enabled()
        _log.info("table services are to go on, as asked")
        self._give(PauseServices(False, ""))

    def _give(self, order: PauseServices) -> None:
        give_order(order, self._board, self._inbox)

    def run(self, name: str, wait: bool, timeout_s: float) -> pb.RunServiceResponse:
        """Has the services planned that ``name`` stands for; with ``wait`` returns when they have ended.

        Raises BadRequestError for another name, ServicesDisabledError, ServicesHaltedError,
        DeadlineExceededError after ``timeout_s``: the actions go on then.
        """
        kinds = named_kinds(name, (state.kind for state in self._enabled().kinds))
        if not kinds:
            known = ", ".join([state.kind for state in self._enabled().kinds] + [CLEAN])
            raise BadRequestError("kind", f"there is no table service {name!r}: the kinds are {known}")
        if (view := self._board.current).halted and not view.given_up:
            raise ServicesHaltedError(view.halted or "")
        _log.info("table services are to run, as asked: %s", ", ".join(kinds))
        orders = [RunService(kind) for kind in kinds]
        for order in orders:
            self._inbox.put(order)
        deadline = Deadline(self._clock, timeout_s)
        runs = [self._run_of(order, wait, deadline) for order in orders]
        return pb.RunServiceResponse(runs=runs)

    def _first_view(self) -> CoordinatorView:
        """The newest view; waits for the first one of a coordinator that has just taken the table over."""
        return self._board.wait_until(lambda view: view.term >= 0, _FIRST_VIEW_S) or self._board.current

    def _enabled(self) -> OwnServices:
        services = self._first_view().services
        if not services.enabled:
            raise ServicesDisabledError
        return services

    def _run_of(self, order: RunService, wait: bool, deadline: Deadline) -> pb.RunServiceResponse.Run:
        answer = self._answered(order, deadline)
        run = pb.RunServiceResponse.Run(kind=order.kind, number=answer.number, nothing=answer.nothing)
        if wait and answer.number:
            ended = self._ended(order.kind, answer.number, deadline)
            if ended.number == answer.number:
                run.ended.CopyFrom(ended_message(ended))
        return run

    def _answered(self, order: RunService, deadline: Deadline) -> RunAnswer:
        while not deadline.is_over and is_wanted():
            try:
                return order.answer.result(min(_LOOK_EVERY_S, deadline.remaining_s))
            except NotAnsweredError:
                if (view := self._board.current).stopped:
                    raise ServicesHaltedError(view.halted or "") from None
        epoch = self._board.current.planned_epoch
        why = "the coordinator is busy"
        if order.kind == BETWEEN_EPOCHS.value and epoch is not None:
            why = (
                f"it waits for the end of epoch {epoch}, usually for {ATTEMPT_MS // 1_000} s at most (longer "
                "where attempts failed and the last keeps the lock)"
            )
        raise DeadlineExceededError(
            f"{order.kind} is not planned yet, {why}: `tidemark services list` shows when it is"
        )

    def _ended(self, kind: str, number: int, deadline: Deadline) -> EndedServiceAction:
        """The last ended action of the kind, once that is ``number`` or a later one."""
        while not deadline.is_over and is_wanted():
            view = self._board.wait_until(
                partial(_has_ended, kind, number), min(_LOOK_EVERY_S, deadline.remaining_s)
            )
            if view is not None and (ended := _last(view, kind)) is not None:
                return ended
        raise DeadlineExceededError(f"{kind} goes on as action {number}: `tidemark services list` shows it")


def _last(view: CoordinatorView, kind: str) -> EndedServiceAction | None:
    state = view.services.of(kind)
    return state.last if state is not None else None


def _has_ended(kind: str, number: int, view: CoordinatorView) -> bool:
    last = _last(view, kind)
    return last is not None and last.number >= number
