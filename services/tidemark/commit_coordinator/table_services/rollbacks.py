"""The handler of `rollback`: undoes writes of other engines whose writer is gone, and what a dead build of an
index, or the dead writer of a plan, left pending.

They hold back compactions of the index, the horizon of cleans, and archival. Each write is rolled back as one
of our own void attempts is (hudi_format/commit/rollback.py); what is rolled back already stays so. What a
build writes nobody reads yet, and a plan without content says nothing: their instants go when this kind
looks, without an action.

An action undoes one write, so that the lock is given back between two; where there are more, the next action
follows at once. A write is undone under one hold: its files are deleted while it is on the timeline, and a
writer that was only frozen could commit it between two holds.

A write that cannot be undone (a marker names another instant's file, its files belong to another user) keeps
no other one from being undone. It is left out, and is tried again after `LEFT_OUT_MS`, or when asked for. A
disk that is full refuses all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from tidemark.commit_coordinator.commit.builds_of_others import end_dead_builds
from tidemark.commit_coordinator.commit.context import Context
from tidemark.commit_coordinator.commit.own_services import DeadInstants, dead_instants_of
from tidemark.commit_coordinator.commit.unwritten_plans import delete_unwritten_plans, settled_view
from tidemark.commit_coordinator.errors import LeftOutError
from tidemark.commit_coordinator.failpoints import CoordinatorFailpoint
from tidemark.commit_coordinator.table_services.handler import (
    DecidedAction,
    Dropped,
    LockedStep,
    ServiceFacts,
)
from tidemark.commit_coordinator.table_services.listings import own_pending
from tidemark.config.table_services_model import RollbackConfig
from tidemark.epoch_protocol.service_entries import ServiceKind, ServicePlanned
from tidemark.hudi_format.commit.heartbeat import heartbeat_path
from tidemark.hudi_format.commit.instants import instant_path
from tidemark.hudi_format.commit.rollback import pending_plan, rollback_pending
from tidemark.hudi_format.errors import FencedOutError, HudiFormatError, in_words, is_of_the_disk
from tidemark.hudi_format.publication.port import Term
from tidemark.hudi_format.table_services.dead_instants import LEFT_AFTER_MS, dead_instants
from tidemark.hudi_format.timeline import Action, Instant, State

LEFT_OUT_MS: Final = 600_000
TRIES: Final = 3
"""After so many failures in a row a write is left out: one may pass."""
_NAMED_MAX: Final = 3


@dataclass(frozen=True)
class _Failed:
    """How often a write could not be undone, when last (Unix epoch), and why then."""

    tries: int
    at_ms: int
    reason: str

    def waits_ms(self, now_ms: int) -> int:
        """How long it is left out from now on."""
        return max(self.at_ms + LEFT_OUT_MS - now_ms, 0) if self.tries >= TRIES else 0


class RollBackDead:
    """`rollback`: has no tasks, and an instant of its own for each write that it undoes."""

    has_tasks: Final = False
    sweeps_with_lock: Final = False
    stats_are_old: Final = False
    timeline: Final[str | None] = None

    def __init__(self, config: RollbackConfig) -> None:
        self._is_on, self._interval_ms = config.enabled, config.interval_ms
        self._not_before_ms, self._are_more = 0, False
        self._failed: dict[str, _Failed] = {}

    @property
    def kind(self) -> ServiceKind:
        return ServiceKind.ROLLBACK

    def due(self, facts: ServiceFacts, now_ms: int) -> str | None:
        ended_ms = facts.ended_ms.get(self.kind)
        too_soon = ended_ms is not None and now_ms - ended_ms < self._interval_ms
        if not self._is_on or now_ms < self._not_before_ms:
            return None
        if self._are_more:
            return "the last look found more dead writes"
        return None if too_soon else f"the last look was {self._interval_ms // 1000} s ago"

    def plan(self, step: LockedStep, instant: str) -> bytes | None:
        dead, now_ms = _dead(step), step.context.clock.now_ms()
        end_dead_builds(step.context, step.timelines)
        delete_unwritten_plans(step.context, step.timelines, own_pending(step.context))
        self._failed = {instant: failed for instant, failed in self._failed.items() if instant in dead}
        waiting = [instant for instant in dead if step.asked or not self._waits_ms(instant, now_ms)]
        self._are_more = len(waiting) > 1
        if not waiting:
            self._not_before_ms = now_ms + self._interval_ms
            return None
        return msgspec.json.encode(DeadInstants((min(waiting, key=self._turn),)))

    def left_out(self, now_ms: int) -> Iterator[str]:
        """What is said of dead writes that could not be undone, those that are tried again first."""
        left = sorted(instant for instant in self._failed if self._waits_ms(instant, now_ms))
        left.sort(key=self._turn)
        for instant in left[:_NAMED_MAX]:
            reason, wait_s = self._failed[instant].reason, self._waits_ms(instant, now_ms) // 1_000
            yield f"the dead write {instant} could not be undone: {reason}; next try in {wait_s} s"
        if len(left) > _NAMED_MAX:
            yield f"{len(left) - _NAMED_MAX} more dead writes could not be undone"

    def _waits_ms(self, instant: str, now_ms: int) -> int:
        failed = self._failed.get(instant)
        return 0 if failed is None else failed.waits_ms(now_ms)

    def _turn(self, instant: str) -> tuple[int, str]:
        """Those that did not fail come first, then whose last try is longest ago."""
        failed = self._failed.get(instant)
        return 0 if failed is None else failed.at_ms, instant

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
        # Earlier versions planned all dead writes in one action.
        for instant in dead_instants_of(action.plan, action.planned.plan_path):
            context.lock.check()
            found = step.timelines.data.find(instant)
            if found is None or not found.is_completed:
                self._undo(context, instant)
            context.hit(CoordinatorFailpoint.AFTER_EACH_ROLLBACK)

    def _undo(self, context: Context, instant: str) -> None:
        try:
            rollback_pending(
                context.publishing,
                instant,
                context.instants,
                passed=lambda step: context.hit(CoordinatorFailpoint(f"after_rollback_{step}")),
            )
        except FencedOutError:
            raise
        except (OSError, HudiFormatError) as error:
            if is_of_the_disk(error):
                raise
            before, reason = self._failed.get(instant), in_words(error)
            tries = 1 if before is None else before.tries + 1
            self._failed[instant] = _Failed(tries, context.clock.now_ms(), reason)
            if tries < TRIES:
                raise
            raise LeftOutError(f"the dead write {instant} cannot be undone: {reason}") from error
        self._failed.pop(instant, None)

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
    plans = settled_view(step.context, step.timelines).clustering.values() if may_be_plans else ()
    dead = dead_instants(
        timeline,
        {*own_pending(step.context), *plans},
        step.context.file_time_ms,
        begun_ms=lambda requested: _begun_ms(term, timeline.find(requested)),
        beaten_ms=lambda requested: term.written_ms(heartbeat_path(requested)),
    )
    return [*dead, *_half_undone(step)]


def _half_undone(step: LockedStep) -> Iterator[str]:
    """The writes that are gone and whose rollback nobody completes. Hudi deletes the write's instant last,
    and completes the rollback seconds later; there is no heartbeat, so it gets an hour from its begin.
    """
    context, timeline = step.context, step.timelines.data
    pending = timeline.pending(Action.ROLLBACK)
    left_from_ms = context.file_time_ms() - LEFT_AFTER_MS if pending else 0
    for rollback in pending:
        plan, begun_ms = pending_plan(context.storage, rollback), _begun_ms(context.publishing, rollback)
        is_left = begun_ms is not None and begun_ms < left_from_ms
        if is_left and plan is not None and not _is_or_was_there(step, plan.instant_to_rollback):
            yield plan.instant_to_rollback


def _is_or_was_there(step: LockedStep, instant: str) -> bool:
    """Whether a timeline has the write, or had it to the end: a completed one may be archived."""
    timelines = (step.timelines.data, step.timelines.metadata)
    return step.timelines.data.contains(instant) or any(
        timeline.archive is not None and timeline.archive.completion_time(instant) is not None
        for timeline in timelines
    )


def _begun_ms(term: Term, found: Instant | None) -> int | None:
    if found is None:
        return None
    return term.written_ms(instant_path(Instant(found.requested, found.action, State.REQUESTED)))
