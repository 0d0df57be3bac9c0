"""A kind of service action that changes no row: its tasks prepare files that no reader looks at, and its
commit makes an instant of an action that readers pass over. It is there to test what all kinds share.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tidemark.commit_coordinator.commit.context import Context
from tidemark.commit_coordinator.errors import ActionLostError
from tidemark.commit_coordinator.failpoints import CoordinatorFailpoint
from tidemark.commit_coordinator.table_services.handler import (
    DecidedAction,
    Dropped,
    LockedStep,
    ServiceFacts,
)
from tidemark.commit_coordinator.table_services.instant_steps import begin_instant, complete_instant
from tidemark.epoch_protocol.service_entries import ServiceKind, ServicePlanned
from tidemark.hudi_format.errors import FencedOutError, TimelineConflictError
from tidemark.hudi_format.publication.port import ServiceFiles
from tidemark.hudi_format.publication.tickets import Ticket
from tidemark.hudi_format.timeline import DATA_ROOT, Action, Instant, State

FILES = 3
USELESS = ".hoodie/.aux/useless"


class NoopPlan(msgspec.Struct, frozen=True):
    """The paths of the files that the tasks prepare."""

    instant: str
    paths: tuple[str, ...]


def work(plan: bytes, files: ServiceFiles) -> tuple[bytes, tuple[Ticket, ...]]:
    """The tasks. What another run of them has prepared is not prepared again."""
    paths = msgspec.json.decode(plan, type=NoopPlan).paths
    tickets = []
    for path in paths:
        done = files.prepared(path)
        tickets.append(done.ticket if done is not None else files.prepare(path, path.encode()))
    return b"outcomes", tuple(tickets)


class Noop:
    """`ServiceHandler`. ``wanted``: how many actions are due. ``holds``: whether plans still hold."""

    has_tasks = True
    sweeps_with_lock = False
    stats_are_old = True
    kind = ServiceKind.COMPACT_DATA
    timeline: str | None = DATA_ROOT

    def __init__(self, wanted: int = 1, holds: Callable[[], bool] = lambda: True) -> None:
        self.wanted, self._holds = wanted, holds

    def due(self, facts: ServiceFacts, now_ms: int) -> str | None:
        return "wanted" if facts.state.next_service <= self.wanted else None

    def plan(self, step: LockedStep, instant: str) -> bytes | Dropped | None:
        paths = tuple(f".hoodie/.aux/noop/{number}-{instant}" for number in range(FILES))
        return msgspec.json.encode(NoopPlan(instant, paths))

    def prepare(self, context: Context, plan: bytes | None) -> None:
        """Nothing is needed."""

    def recheck(self, step: LockedStep, planned: ServicePlanned, plan: bytes) -> bytes | Dropped:
        return plan if self._holds() else Dropped("the plan does not hold")

    def commit(self, step: LockedStep, action: DecidedAction) -> None:
        context, instant = step.context, action.planned.instant
        inflight = begin_instant(step, instant, Action.CLEAN, action.plan, DATA_ROOT)
        for path in msgspec.json.decode(action.plan, type=NoopPlan).paths:
            try:
                context.publishing.publish([action.tickets[path]], step.lease())
            except (FencedOutError, TimelineConflictError) as error:
                raise ActionLostError(str(error)) from error
            context.hit(CoordinatorFailpoint.AFTER_EACH_SERVICE_FILE)
        complete_instant(step, inflight, action.decided.data_completion, action.plan, DATA_ROOT)

    def is_past_return(self, step: LockedStep, action: DecidedAction) -> bool:
        return False

    def take_back(self, step: LockedStep, action: DecidedAction) -> None:
        for path in msgspec.json.decode(action.plan, type=NoopPlan).paths:
            step.delete(path)
        for state in (State.INFLIGHT, State.REQUESTED):
            name = Instant(action.planned.instant, Action.CLEAN, state).file_name
            step.delete(f"{DATA_ROOT}/timeline/{name}")

    def sweep(self, context: Context, action: DecidedAction, by_other: bool, slice_ms: int) -> bool:
        """Deletes one file in each slice."""
        left = context.storage.list(USELESS)
        if left:
            context.storage.delete(left[0].path)
        return len(left) <= 1
