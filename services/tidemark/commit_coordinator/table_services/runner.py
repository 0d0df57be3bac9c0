"""Runs service actions for the coordinator's loop: asks the handlers what is due, takes reports, carries
actions out, and turns errors into pauses. Nothing that fails here stops an epoch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from tidemark.commit_coordinator.calls.service_handoff import (
    GrantedSlots,
    OfferedService,
    ServiceHandoff,
    ServiceNews,
    ServiceProgress,
)
from tidemark.commit_coordinator.commit.context import Context
from tidemark.commit_coordinator.commit.stored_documents import load_document
from tidemark.commit_coordinator.commit.table_state import Timelines, last_archived_ms, load_timelines
from tidemark.commit_coordinator.commit.view import NO_SERVICES
from tidemark.commit_coordinator.domain.backpressure import Backpressure
from tidemark.commit_coordinator.domain.next_action import Limits, Observed
from tidemark.commit_coordinator.domain.service_actions import (
    TASK_TRIES_MAX,
    CompleteService,
    DecideService,
    OfferService,
    PlanService,
    SeenServices,
    ServiceAction,
    SweepService,
    VoidService,
    planned_of,
    words_of,
)
from tidemark.commit_coordinator.errors import ActionLostError, LeftOutError
from tidemark.commit_coordinator.table_services import steps
from tidemark.commit_coordinator.table_services.asked_runs import Answer, AskedRuns
from tidemark.commit_coordinator.table_services.handler import Dropped, ServiceFacts, ServiceHandler
from tidemark.commit_coordinator.table_services.pressure import ServicePressure
from tidemark.commit_coordinator.table_services.steps import Completed
from tidemark.epoch_protocol.service_entries import ServiceKind, ServicePlanned
from tidemark.epoch_protocol.state import FoldState
from tidemark.hudi_format.errors import (
    FencedOutError,
    HudiFormatError,
    LockHeldError,
    LockLostError,
    UnsupportedTableError,
    in_words,
)
from tidemark.hudi_format.model import instant_to_ms
from tidemark.stream_runtime.errors import DeadlineExceededError
from tidemark.stream_runtime.kafka.errors import KafkaError
from tidemark.table_status.services import OwnServices

_NOTHING_MS: Final = 5_000
"""How long a kind waits that was due and had nothing to do."""
_LOCK_MS: Final = 500
_LIST_EVERY_MS: Final = 60_000
STEP_TRIES_MAX: Final = 5
"""An action that could so often not be offered or decided is void."""
_log = logging.getLogger("tidemark.coordinator")


@dataclass(frozen=True)
class ServiceRules:
    """From the configuration. ``step_ms``: how long one step may hold up the loop; ``clock_skew_ms``: an
    action is decided so long after its instant; ``share``: part of a worker's task slots.
    """

    enabled: bool = False
    step_ms: int = 50
    clock_skew_ms: int = 1_000
    share: float = 0.25


NO_BACKPRESSURE: Final = Backpressure()

NoteFailed: TypeAlias = Callable[[ServicePlanned, ServiceNews, bool, int], bool]
"""(action, how its tasks failed, whether it is given up now, Unix epoch ms) -> whether it is given up because
of file groups, which the next actions leave out. Called at each failure of tasks.
"""
Show: TypeAlias = Callable[[FoldState, SeenServices, int], OwnServices]
"""(state, what was seen, Unix epoch ms) -> the services as operators see them."""


@dataclass(frozen=True)
class EndedAction:
    """The last action of a kind that ended in this term (Unix epoch). ``reason``: why it is void, or ""."""

    planned: ServicePlanned
    by_other: bool
    reason: str
    ended_ms: int


class ServiceRunner:
    """The service actions of one term. Used by the loop alone, except ``handoff``. ``show`` is called for
    each view; `kinds.service_runner` sets it.
    """

    def __init__(
        self,
        context: Context,
        handlers: Sequence[ServiceHandler],
        handoff: ServiceHandoff,
        rules: ServiceRules,
        pressure: ServicePressure | None = None,
    ) -> None:
        self._context, self._handoff = context, handoff
        self.rules, self._pressure = rules, pressure
        self.index_build_ms = context.index_build_ms
        self._granted = GrantedSlots(rules.share)
        self.handlers: Mapping[ServiceKind, ServiceHandler] = {handler.kind: handler for handler in handlers}
        self.ended: dict[ServiceKind, EndedAction] = {}
        self._asked = AskedRuns()
        self.show: Show = lambda *_: NO_SERVICES
        self.note_failed: NoteFailed = lambda *_: False
        self._stale, self._listed_ms = False, 0

    def want(self, kind: ServiceKind, answer: Answer) -> None:
        """Plans an action of the kind as soon as possible, whether or not it is due, also while services are
        paused. ``answer`` is called once, with the number of the action that is open then, or with 0 and why
        there is none.
        """
        held = self._context.fold().state.services.get(kind)
        if held is not None:
            answer(held.planned.service, "")
        elif kind not in self.handlers:
            answer(0, f"there is no service {kind} for this table")
        else:
            self._asked.add(kind, answer)

    def wants_listing(self, now_ms: int) -> bool:
        """Whether the stats of file groups are to be listed anew: they said that a compaction was due, and
        there was nothing to compact, or archival waits for a compaction of what they do not show. Another
        engine has compacted or written meanwhile. At most once a minute.
        """
        if not self._stale or 0 <= now_ms - self._listed_ms < _LIST_EVERY_MS:
            return False
        self._stale, self._listed_ms = False, now_ms
        return True

    def plan_of(self, planned: ServicePlanned) -> bytes:
        """The plan of an action, as its kind stores it. Raises OSError, HudiFormatError."""
        return load_document(self._context.storage, planned.plan_path, planned.plan_sha256)

    def timelines(self) -> Timelines:
        """Both timelines as they are now. Raises OSError, HudiFormatError."""
        return load_timelines(self._context.storage)

    def archived_ms(self) -> int | None:
        """When a timeline was archived last (Unix epoch); None if none ever was. Raises OSError."""
        return last_archived_ms(self._context.storage)

    def progress_of(self, number: int) -> ServiceProgress:
        """How far the tasks of an open action are."""
        return self._handoff.progress_of(number)

    def look(self, state: FoldState, observed: Observed, now_ms: int) -> None:
        """Notes in ``observed`` what `next_action` has to know: reports, what is due, whether the lock is
        kept.
        """
        seen = observed.services
        kinds = self.handlers.items()
        seen.tasks = [kind for kind, handler in kinds if handler.has_tasks]
        seen.locked_sweeps = [kind for kind, handler in kinds if handler.sweeps_with_lock]
        seen.lock_kept = self._context.lock.is_held
        self._forget_ended(state, seen)
        self._void_unknown(state, seen)
        for news in self._handoff.take_news():
            if news.failure is None:
                seen.action(news.number).reported = True
            else:
                self._tasks_failed(state, seen, news, now_ms)
        if self._pressure is not None:
            self._pressure.look(state, seen, now_ms)
            self._granted = self._pressure.granted
            self._handoff.grant(self._granted)
        seen.due = self._due(state, observed, now_ms) if self.rules.enabled else {}

    @property
    def backpressure(self) -> Backpressure:
        """What is done because compactions do not keep up."""
        return self._pressure.now if self._pressure is not None else NO_BACKPRESSURE

    def paced(self, limits: Limits) -> Limits:
        """The limits, with a longer interval of epochs while compactions do not keep up."""
        return replace(limits, interval_ms=max(limits.interval_ms, self.backpressure.interval_ms))

    def tagging_rests(self, now_ms: int) -> str:
        """Why assigners rest at this moment; "" when they do not."""
        return self.backpressure.words if self.backpressure.rests(now_ms) else ""

    def carry_out(self, action: ServiceAction, observed: Observed) -> None:
        """Carries the action out. Raises SupersededError, DivergedError, and what Kafka raises."""
        seen, planned = observed.services, planned_of(action)
        seen.had_turn = True
        try:
            HANDLED_BY[type(action)](self, action, seen)
        except LockHeldError as error:
            self._wait_for_lock(action, seen, str(error))
        except LockLostError as error:
            # The next step takes the lock again, and asks all rules again. A plan lets an epoch go first.
            _log.error("%s", error)
            if planned is None:
                self._wait_for_lock(action, seen, str(error))
        except ActionLostError as error:
            assert planned is not None
            _log.warning("%s: %s", words_of(action), error)
            seen.lose(planned.service, str(error), isinstance(error, LeftOutError))
        except (KafkaError, DeadlineExceededError) as error:
            if isinstance(action, PlanService):
                now_ms = self._context.clock.now_ms()
                if action.kind in self._asked:
                    self._asked.kafka_failed(action.kind, str(error), now_ms)
                else:
                    seen.kind_failed(action.kind, str(error), now_ms)
            raise
        except (OSError, HudiFormatError) as error:
            if isinstance(error, FencedOutError):
                self._context.log.check_term()
            reason = in_words(error)
            _log.warning("%s: %s", words_of(action), reason)
            self._step_failed(action, seen, reason)

    def _due(self, state: FoldState, observed: Observed, now_ms: int) -> dict[ServiceKind, str]:
        if observed.halted is not None and observed.given_up is None:
            self._asked.answer_all(f"nothing is done while the coordinator has halted: {observed.halted}")
            return {}
        asked = self._asked.due(self.handlers, state.services, now_ms)
        seen, due = observed.services, dict.fromkeys(asked, "asked for")
        if state.services_paused:
            return due
        ended_ms = {kind: kept.ended_ms for kind, kept in seen.kinds.items()}
        behind = frozenset[ServiceKind]() if self._pressure is None else self._pressure.behind
        facts = ServiceFacts(state, ended_ms, behind)
        # Whose last action ended first is first: kinds that are always due must not keep the others waiting.
        for kind, handler in sorted(
            self.handlers.items(), key=lambda handled: seen.kind(handled[0]).ended_ms
        ):
            if kind in state.services or kind in due or now_ms < seen.kind(kind).not_before_ms:
                continue
            reason = handler.due(facts, now_ms)
            if reason is not None:
                due[kind] = reason
        return due

    def _step_failed(self, action: ServiceAction, seen: SeenServices, reason: str) -> None:
        now_ms = self._context.clock.now_ms()
        if isinstance(action, PlanService):
            seen.kind_failed(action.kind, reason, now_ms)
            self._asked.answer(action.kind, 0, reason)
            return
        number = action.planned.service
        seen.step_failed(number, reason, now_ms)
        open_action = seen.action(number)
        if isinstance(action, OfferService | DecideService) and open_action.failures >= STEP_TRIES_MAX:
            open_action.lost = reason

    def _void_unknown(self, state: FoldState, seen: SeenServices) -> None:
        """An action that a coordinator with other handlers has planned."""
        for kind, held in state.services.items():
            if kind not in self.handlers and held.decided is None:
                seen.action(held.planned.service).lost = f"this coordinator has no service {kind}"

    def _handler(self, kind: ServiceKind) -> ServiceHandler:
        handler = self.handlers.get(kind)
        if handler is None:
            raise UnsupportedTableError(
                f"a service action ({kind}) is decided, and this coordinator cannot commit that kind",
                "Start the version of Tidemark that decided it",
            )
        return handler

    def _forget_ended(self, state: FoldState, seen: SeenServices) -> None:
        """An entry whose outcome was unknown may have ended an action meanwhile."""
        open_numbers = {held.planned.service for held in state.services.values()}
        for number in [open_number for open_number in seen.actions if open_number not in open_numbers]:
            del seen.actions[number]
            self._handoff.withdraw(number)

    def _tasks_failed(self, state: FoldState, seen: SeenServices, news: ServiceNews, now_ms: int) -> None:
        number, reason = news.number, news.failure or ""
        seen.step_failed(number, reason, now_ms)
        action = seen.action(number)
        action.offered = False
        _log.warning("the tasks of service action %d failed: %s", number, reason)
        is_last = action.failures >= TASK_TRIES_MAX
        if is_last:
            action.lost, action.retry_at_ms = reason, 0
        for held in state.services.values():
            if held.planned.service == number:
                action.of_left_out = self.note_failed(held.planned, news, is_last, now_ms)

    def _wait_for_lock(self, action: ServiceAction, seen: SeenServices, reason: str) -> None:
        until_ms = self._context.clock.now_ms() + _LOCK_MS
        planned = planned_of(action)
        if planned is None:
            assert isinstance(action, PlanService)
            kind = seen.kind(action.kind)
            kind.not_before_ms, kind.problem = until_ms, reason
        else:
            noted = seen.action(planned.service)
            noted.retry_at_ms, noted.problem = until_ms, reason

    def _plan(self, action: PlanService, seen: SeenServices) -> None:
        handler, asked = self._handler(action.kind), action.kind in self._asked
        planned = steps.plan(self._context, handler, action.number, asked)
        now_ms = self._context.clock.now_ms()
        if isinstance(planned, Dropped):
            _log.warning("%s: %s", words_of(action), planned.reason)
            self._step_failed(action, seen, planned.reason)
            return
        if planned is None:
            kind = seen.kind(action.kind)
            kind.not_before_ms, kind.found_nothing = now_ms + _NOTHING_MS, True
            self._stale = self._stale or handler.stats_are_old
            self._asked.answer(action.kind, 0, "there is nothing to do")
            return
        seen.kind(action.kind).found_nothing = False
        self._asked.answer(action.kind, planned.service, "")
        _log.info("service action %d (%s) is planned: %s", planned.service, planned.kind, action.reason)
        self._begin(planned, seen)

    def _offer(self, action: OfferService, seen: SeenServices) -> None:
        self._begin(action.planned, seen)

    def _begin(self, planned: ServicePlanned, seen: SeenServices) -> None:
        noted = seen.action(planned.service)
        noted.decide_at_ms = instant_to_ms(planned.instant) + self.rules.clock_skew_ms
        if self._handler(planned.kind).has_tasks:
            token = self._context.publishing.open_service(planned.service)
            self._handoff.offer(OfferedService(planned, token, self._granted))
            noted.offered, noted.reported = True, False

    def _decide(self, action: DecideService, seen: SeenServices) -> None:
        planned = action.planned
        handler = self._handler(planned.kind)
        due_ms = instant_to_ms(planned.instant) + self.rules.clock_skew_ms
        if self._context.clock.now_ms() < due_ms:
            # A successor has not noted it yet.
            seen.action(planned.service).decide_at_ms = due_ms
            return
        report = self._handoff.report_of(planned.service) if handler.has_tasks else steps.NO_REPORT
        self._completed(planned, steps.decide(self._context, handler, planned, report), seen)

    def _commit(self, action: CompleteService, seen: SeenServices) -> None:
        planned, handler = action.planned, self._handler(action.planned.kind)
        self._completed(planned, steps.commit(self._context, handler, planned, action.decided), seen)

    def _completed(self, planned: ServicePlanned, result: Completed | Dropped, seen: SeenServices) -> None:
        if isinstance(result, Dropped):
            seen.lose(planned.service, result.reason)
            return
        noted = seen.action(planned.service)
        self._handoff.withdraw(planned.service)
        noted.completed, noted.by_other, noted.completion = True, result.by_other, result.completion
        noted.failures, noted.retry_at_ms, noted.problem = 0, 0, ""

    def _sweep(self, action: SweepService, seen: SeenServices) -> None:
        planned, noted = action.planned, seen.action(action.planned.service)
        completed = Completed(noted.completion, noted.by_other)
        handler, slice_ms = self._handler(planned.kind), self.rules.step_ms
        if steps.sweep(self._context, handler, planned, action.decided, completed, slice_ms):
            outcome = "by another engine" if completed.by_other else "done"
            _log.info("service action %d (%s) is %s", planned.service, planned.kind, outcome)
            now_ms = self._context.clock.now_ms()
            self.ended[planned.kind] = EndedAction(planned, completed.by_other, "", now_ms)
            seen.ended(planned, now_ms)
            seen.succeeded(planned.kind)

    def _void(self, action: VoidService, seen: SeenServices) -> None:
        planned, decided = action.planned, action.decided
        self._handoff.withdraw(planned.service)
        if decided is None:
            steps.void(self._context, planned, action.reason)
        else:
            handler = self._handler(planned.kind)
            if not steps.take_back(self._context, handler, planned, decided, action.reason):
                seen.action(planned.service).lost = None
                return
        now_ms = self._context.clock.now_ms()
        _log.warning("service action %d (%s) is void: %s", planned.service, planned.kind, action.reason)
        self.ended[planned.kind] = EndedAction(planned, False, action.reason, now_ms)
        seen.void(planned, action.reason, now_ms)


HANDLED_BY: Final[Mapping[type[ServiceAction], Callable[[ServiceRunner, Any, SeenServices], None]]] = {
    PlanService: ServiceRunner._plan,
    OfferService: ServiceRunner._offer,
    DecideService: ServiceRunner._decide,
    CompleteService: ServiceRunner._commit,
    SweepService: ServiceRunner._sweep,
    VoidService: ServiceRunner._void,
}
"""The method that carries out each action of a service."""
