"""The handler of `rollback`: undoes writes of other engines whose writer is gone.

They hold back compactions of the index, the horizon of cleans, and archival. Each is rolled back as one of
our own void attempts is (hudi_format/commit/rollback.py); what is rolled back already stays so.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tidemark.commit_coordinator.commit.context import Context
from tidemark.commit_coordinator.commit.own_services import DeadInstants, dead_instants_of
from tidemark.commit_coordinator.failpoints import CoordinatorFailpoint
from tidemark.commit_coordinator.table_services.handler import (
    DecidedAction,
    Dropped,
    LockedStep,
    ServiceFacts,
)
from tidemark.commit_coordinator.table_services.listings import own_pending, view_of
from tidemark.config.table_services_model import RollbackConfig
from tidemark.epoch_protocol.service_entries import ServiceKind, ServicePlanned
from tidemark.hudi_format.commit.heartbeat import heartbeat_path
from tidemark.hudi_format.commit.instants import instant_path
from tidemark.hudi_format.commit.rollback import rollback_pending
from tidemark.hudi_format.publication.port import Term
from tidemark.hudi_format.table_services.dead_instants import dead_instants
from tidemark.hudi_format.timeline import Action, Instant, State, Timeline


class RollBackDead:
    """`rollback`: has no tasks, and an instant of its own for each write that it undoes."""

    has_tasks: Final = False
    sweeps_with_lock: Final = False
    stats_are_old: Final = False
    timeline: Final[str | None] = None

    def __init__(self, config: RollbackConfig) -> None:
        self._is_on, self._interval_ms = config.enabled, config.interval_ms
        self._not_before_ms = 0

    @property
    def kind(self) -> ServiceKind:
        return ServiceKind.ROLLBACK

    def due(self, facts: ServiceFacts, now_ms: int) -> str | None:
        ended_ms = facts.ended_ms.get(self.kind)
        too_soon = ended_ms is not None and now_ms - ended_ms < self._interval_ms
        if not self._is_on or too_soon or now_ms < self._not_before_ms:
            return None
        return f"the last look was {self._interval_ms // 1000} s ago"

    def plan(self, step: LockedStep, instant: str) -> bytes | None:
        dead = _dead(step)
        if not dead:
            self._not_before_ms = step.context.clock.now_ms() + self._interval_ms
            return None
        return msgspec.json.encode(DeadInstants(tuple(dead)))

    def prepare(self, context: Context, plan: bytes | None) -> None:
        """Nothing: a rollback is planned and made from the timeline."""

    def recheck(self, step: LockedStep, planned: ServicePlanned, plan: bytes) -> bytes | Dropped:
        still = set(_dead(step))
        kept = [
            instant
            for instant in dead_instants_of(plan, planned.plan_path)
            if instant in still or not step.timelines.data.contains(instant)
        ]
        if not kept:
            return Dropped("no write is dead any more: their heartbeats were renewed, or they were completed")
        return msgspec.json.encode(DeadInstants(tuple(kept)))

    def commit(self, step: LockedStep, action: DecidedAction) -> None:
        context = step.context
        for instant in dead_instants_of(action.plan, action.planned.plan_path):
            context.lock.check()
            found = step.timelines.data.find(instant)
            if found is None or not found.is_completed:
                rollback_pending(context.publishing, instant, context.instants)
            context.hit(CoordinatorFailpoint.AFTER_EACH_ROLLBACK)

    def is_past_return(self, step: LockedStep, action: DecidedAction) -> bool:
        """Each write is undone by itself, and none of that is taken back."""
        return False

    def take_back(self, step: LockedStep, action: DecidedAction) -> None:
        """A rollback that broke off goes on when its instant is found dead again."""

    def sweep(self, context: Context, action: DecidedAction, by_other: bool, slice_ms: int) -> bool:
        return True


def _dead(step: LockedStep) -> list[str]:
    term, timeline = step.context.publishing, step.timelines.data
    # A clustering that was planned before table version 8 is called a replacecommit, too.
    may_be_plans = timeline.pending(Action.REPLACE_COMMIT)
    plans = view_of(step.context, timeline).clustering.values() if may_be_plans else ()
    return dead_instants(
        timeline,
        {*own_pending(step.context), *plans},
        step.context.file_time_ms,
        begun_ms=lambda requested: _begun_ms(term, timeline, requested),
        beaten_ms=lambda requested: term.written_ms(heartbeat_path(requested)),
    )


def _begun_ms(term: Term, timeline: Timeline, requested: str) -> int | None:
    found = timeline.find(requested)
    if found is None:
        return None
    return term.written_ms(instant_path(Instant(requested, found.action, State.REQUESTED)))
