"""One step of the coordinator: read new entries, decide the next action, carry it out. One thread does it
all.

Everything that it must remember is in the two topics and on the table's timelines. `Observed` is what it has
seen since it started. gRPC threads leave the writer's reports in `AttemptHandoff`, and read the `ViewBoard`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from tidemark.commit_coordinator.calls.attempt_handoff import AttemptHandoff, OpenAttemptView
from tidemark.commit_coordinator.calls.service_handoff import ServiceHandoff
from tidemark.commit_coordinator.commit.attempt_effects import (
    clean_voided,
    close_empty,
    free_kept_lock,
    open_planned,
    plan_epoch,
    rewind,
    tick_lock,
    void_attempt,
)
from tidemark.commit_coordinator.commit.commit_effects import decide, finish
from tidemark.commit_coordinator.commit.context import Context, Report
from tidemark.commit_coordinator.domain.actions import (
    CleanVoided,
    CloseEmpty,
    Decide,
    EpochAction,
    Finish,
    FreeLock,
    NextAction,
    OpenAttempt,
    Plan,
    RewindLanes,
    VoidAttempt,
    Wait,
    log_fields,
)
from tidemark.commit_coordinator.domain.next_action import (
    KEEP_LOCK_MS_MAX,
    AttemptProblem,
    AwaitedPlan,
    Limits,
    Observed,
    next_action,
    rest_s,
)
from tidemark.commit_coordinator.domain.service_actions import ServiceAction
from tidemark.commit_coordinator.errors import AttemptLostError, is_curable
from tidemark.commit_coordinator.table_services.runner import ServiceRules, ServiceRunner
from tidemark.commit_coordinator.trouble import Refusals
from tidemark.epoch_protocol.entries import CommitDecided, EpochPlanned, TaggingPaused
from tidemark.epoch_protocol.fold import Fold
from tidemark.epoch_protocol.service_entries import ServicesPaused
from tidemark.epoch_protocol.state import FoldState
from tidemark.hudi_format.commit import heartbeat
from tidemark.hudi_format.errors import (
    FencedOutError,
    HudiFormatError,
    LockHeldError,
    LockLostError,
    UnsupportedTableError,
)
from tidemark.ledger_client.errors import SupersededError
from tidemark.stream_runtime.errors import DeadlineExceededError
from tidemark.stream_runtime.kafka.errors import REFUSED
from tidemark.stream_runtime.kafka.ports import KafkaError
from tidemark.stream_runtime.logging import bound

# New entries end this wait; requests of other threads do not.
_POLL_S: Final = 0.1
_HEARTBEAT_MS: Final = 20_000
_RETRY_MS: Final = 500
_log = logging.getLogger("tidemark.coordinator")


class CommitListener(Protocol):
    """Is called before and after each epoch that this coordinator commits, and before each rewind."""

    def committing(self, planned: EpochPlanned, fold: Fold) -> None:
        """The epoch is about to be committed: the fold still holds its transactions."""
        ...

    def committed(self, planned: EpochPlanned, report: Report | None) -> None:
        """The epoch is committed; an epoch without rows has no report."""
        ...

    def rewinding(self) -> None:
        """All lanes are about to go back. Another writer may have changed the table's files."""
        ...


class Coordinator:
    """Runs one table from a claim to the end of the term."""

    def __init__(
        self,
        context: Context,
        limits: Limits,
        attempts: AttemptHandoff,
        listeners: Sequence[CommitListener] = (),
        services: ServiceRunner | None = None,
    ) -> None:
        self.services = services or ServiceRunner(context, (), ServiceHandoff(context.clock), ServiceRules())
        self._context = context
        self._limits = limits
        self._attempts = attempts
        self._listeners = listeners
        self._heartbeat_at_ms = 0
        state = context.fold().state
        self.seen = Observed(tried_before=(state.committed.epoch, state.attempts))
        self.refusals = Refusals(self.seen, context.clock, context.storage.base_uri)
        self.doing: NextAction = Wait("starting")

    def hurry(self) -> None:
        """Lets the next epoch be planned as soon as a transaction counts, before its interval is over."""
        self.seen.planned_at_ms = 0

    def want_rewind(self, reason: str, generation: int, epoch: int | None = None) -> None:
        """An owner could not read back tagged batches, and asks for a rewind.

        It is ignored for a former ``generation``, which was rewound already. ``epoch``: the last committed
        epoch that the owner knew. If a later one is committed, the batches may be committed and deleted
        since: the request is ignored, and an owner that still cannot read them asks again.
        """
        state = self._context.fold().state
        if epoch is not None and epoch < state.committed.epoch:
            _log.info("no rewind, epoch %d is committed: %s", state.committed.epoch, reason)
            return
        if generation == state.generation and self.seen.rewind_due is None:
            self.seen.rewind_due = reason

    def pause(self, paused: bool, reason: str) -> None:
        """Pauses tagging or lets it go on: appends `TaggingPaused` if that is a change."""
        state = self._context.fold().state
        if state.paused != paused:
            self._context.log.append(TaggingPaused(self._context.term, paused, reason))

    def pause_services(self, paused: bool, reason: str) -> None:
        """Stops or resumes the planning of table services: appends `ServicesPaused` if that is a change."""
        state = self._context.fold().state
        if state.services_paused != paused:
            self._context.log.append(ServicesPaused(self._context.term, paused, reason))

    def step(self, poll_s: float = _POLL_S) -> NextAction:
        """Reads new entries and carries out one action, which it returns. Refused I/O is tried again.

        Raises SupersededError when another coordinator took over, and errors that no retry cures.
        """
        context = self._context
        tick_lock(context)
        try:
            self.keep_alive()
            context.log.settle()
            context.log.poll(self._wait_s(poll_s))
            self._act()
        except (KafkaError, DeadlineExceededError) as error:
            # Nothing was decided, or it is not known yet: `settle` finds out before the next decision.
            if not is_curable(error):
                raise
            if isinstance(error, REFUSED):
                self._rest_after(error)
            else:
                _log.warning("Kafka did not answer, trying again: %s", error)
                context.clock.sleep_ms(_RETRY_MS)
                self.doing = Wait("Kafka did not answer")
        except FencedOutError as error:
            # Only a successor ends our term.
            raise SupersededError(str(error)) from error
        except (OSError, HudiFormatError) as error:
            if not is_curable(error):
                raise
            # Each action can be repeated, whether or not the storage did what was asked.
            self._rest_after(error)
        else:
            self.refusals.step_done()
        return self.doing

    def _rest_after(self, error: Exception) -> None:
        self.refusals.note(error)
        self._context.clock.sleep_ms(_RETRY_MS)
        self.doing = Wait(self.seen.trouble or "")

    def retry(self, epoch: int) -> None:
        """Tries the epoch again at which the coordinator halted; ignores any other epoch."""
        state, seen = self._context.fold().state, self.seen
        if (seen.halted or seen.given_up) is None or seen.stopped or epoch != state.committed.epoch + 1:
            return
        _log.warning("epoch %d is tried again, as asked", epoch)
        seen.succeeded()
        seen.halted, seen.tried_before = None, (state.committed.epoch, state.attempts)

    def stop_for_good(self, error: Exception) -> None:
        """Stops all actions until a new start: stored data contradicts itself, or is missing."""
        self._attempts.offer(None)
        self.seen.stopped, self.seen.given_up = True, None
        what_to_do = "repair that, then start the coordinator again"
        self.seen.halted = f"{error}. Nothing is done any more, all input is kept: {what_to_do}"
        self.doing = Wait(f"halted: {self.seen.halted}")
        _log.error("the coordinator has stopped: %s", self.seen.halted)

    def _wait_s(self, longest_s: float) -> float:
        """How long to wait for entries. A writer that writes is waited for here."""
        state = self._context.fold().state
        wait_s = rest_s(self.doing, state, longest_s, self._context.clock.now_ms())
        if state.planned is None or not wait_s:
            return wait_s
        self._attempts.wait_for_news(wait_s)
        return 0.0

    def _act(self) -> None:
        context = self._context
        state = context.fold().state
        if state.coordinator_term != context.term:
            raise SupersededError("a newer coordinator has claimed this table")
        self._attempts.collect(self.seen)
        now_ms = context.clock.now_ms()
        self.seen.count_attempts(state, self._limits, now_ms)
        self.seen.noted(state, now_ms)
        self.seen.others_until_ms = context.lock.others_until_ms
        self.services.look(state, self.seen, now_ms)
        self.doing = next_action(state, self.seen, self.services.paced(self._limits), now_ms)
        with bound(**log_fields(self.doing)):
            self._try(self.doing, state)

    def _try(self, action: NextAction, state: FoldState) -> None:
        context = self._context
        try:
            self._carry_out(action)
        except AttemptLostError as error:
            self._lost(error, state.planned, state.decided)
        except LockLostError as error:
            # The next step takes the lock again, and repeats all checks that were made under it. If a newer
            # coordinator took the lock, that step reads its claim first.
            _log.error("%s", error)
            context.clock.sleep_ms(_RETRY_MS)
        except UnsupportedTableError as error:
            # Another engine changed the table's indexes, properties or schema: our commits would not fit
            # them.
            number = state.committed.epoch + 1
            self.seen.halted = f"{error}; then run `tidemark epoch retry {number}`"
            self.seen.given_up = None
            _log.error("tagging stops: %s", self.seen.halted)
            if state.planned is not None:
                self._lost(AttemptLostError(str(error), rewind=False), state.planned)
        except LockHeldError as error:
            # Another writer is busy, or dead: the next step tries the same action again.
            if self.seen.lock_held is None:
                _log.warning("waiting: %s", error)
            self.seen.lock_held = str(error)
            context.clock.sleep_ms(_RETRY_MS)
        else:
            if not isinstance(self.doing, Wait):
                self.seen.lock_held = None

    def _carry_out(self, action: NextAction) -> None:
        if isinstance(action, ServiceAction):
            return self.services.carry_out(action, self.seen)
        return HANDLERS[type(action)](self, action)

    def _wait(self, action: Wait) -> None:
        """Does nothing: the next `step` waits longer for new entries."""

    def _plan(self, action: Plan) -> None:
        self.seen.planned_at_ms = self._context.clock.now_ms()
        self.seen.services.had_turn = False
        token = plan_epoch(self._context, action, self.seen.awaited)
        self.seen.awaited = None
        self._offer_open(token)

    def _open_attempt(self, action: OpenAttempt) -> None:
        self._offer_open(open_planned(self._context, action))

    def _close_empty(self, action: CloseEmpty) -> None:
        self._tell_committing(action.planned)
        close_empty(self._context, action)
        self._tell_committed(action.planned, None)
        self.seen.committed()

    def _decide(self, action: Decide) -> None:
        decide(self._context, action, self._attempts.report_of(action.planned))

    def _finish(self, action: Finish) -> None:
        self._attempts.offer(None)
        self._tell_committing(action.planned)
        report = finish(self._context, action)
        took_ms = {**report.timings_ms, **self._context.steps.take()}
        self._tell_committed(action.planned, msgspec.structs.replace(report, timings_ms=took_ms))
        rounded = {step: round(ms, 1) for step, ms in took_ms.items()}
        _log.info("epoch %d is committed", action.planned.epoch, extra={"took_ms": rounded})
        self.seen.committed()

    def _void_attempt(self, action: VoidAttempt) -> None:
        seen = self.seen
        self._attempts.offer(None)
        if action.rewind:
            self._tell_rewinding()
        void_attempt(self._context, action)
        if action.rewind:
            # A rewind that was asked for meanwhile is done by this one.
            seen.rewind_due = None
        seen.problem = seen.taken_back = None
        seen.last_problem = action.reason
        if not action.rewind and seen.awaited is None:
            seen.failed(self._limits, self._context.clock.now_ms())

    def _clean_voided(self, action: CleanVoided) -> None:
        self.seen.cleaned_up(action.voided, clean_voided(self._context, action))

    def _rewind(self, action: RewindLanes) -> None:
        self._tell_rewinding()
        rewind(self._context, action)
        self.seen.rewind_due = None
        if action.hold_lock:
            self.seen.keeps_lock_until_ms = self._context.clock.now_ms() + KEEP_LOCK_MS_MAX

    def _free_lock(self, action: FreeLock) -> None:
        free_kept_lock(self._context)
        self.seen.keeps_lock_until_ms = None

    def _tell_committing(self, planned: EpochPlanned) -> None:
        for listener in self._listeners:
            listener.committing(planned, self._context.fold())

    def _tell_committed(self, planned: EpochPlanned, report: Report | None) -> None:
        for listener in self._listeners:
            listener.committed(planned, report)

    def _tell_rewinding(self) -> None:
        for listener in self._listeners:
            listener.rewinding()

    def _offer_open(self, token: str) -> None:
        fold = self._context.fold()
        planned = fold.state.planned
        if planned is None or planned.instant is None:
            return
        self.seen.opened = (planned.epoch, planned.attempt)
        self._attempts.offer(OpenAttemptView(planned, token, tuple(fold.manifest(planned.through))))

    def _lost(
        self, error: AttemptLostError, planned: EpochPlanned | None, decided: CommitDecided | None = None
    ) -> None:
        """Notes that the attempt cannot commit (``decided``: that its decision has to be taken back), or that
        a plan has to wait or to be preceded by a rewind.
        """
        if error.awaited is not None:
            if self.seen.awaited is None:
                _log.warning("waiting: %s", error.reason)
            look_at_ms = self._context.clock.now_ms() + error.look_ms
            self.seen.awaited = AwaitedPlan(error.awaited, error.reason, look_at_ms)
        if planned is None:
            if error.rewind:
                self.seen.rewind_due = error.reason
            return
        problem = AttemptProblem(error.reason, error.rewind)
        if decided is not None:
            self.seen.taken_back = (decided.data_completion, problem)
        else:
            self.seen.problem = ((planned.epoch, planned.attempt), problem)

    def keep_alive(self) -> None:
        """Renews the heartbeats of the open attempt, and of void attempts that are not settled, if they are
        due.

        Raises OSError.
        """
        planned, seen = self._context.fold().state.planned, self.seen
        now_ms = self._context.clock.now_ms()
        pending = [v.instant for v in seen.unsettled if v.instant is not None]
        if planned is not None and seen.opened == (planned.epoch, planned.attempt) and planned.instant:
            pending.append(planned.instant)
        if not pending or now_ms - self._heartbeat_at_ms < _HEARTBEAT_MS:
            return
        self._heartbeat_at_ms = now_ms
        for instant in pending:
            heartbeat.keep(self._context.publishing, instant)


HANDLERS: Final[Mapping[type[EpochAction], Callable[[Coordinator, Any], None]]] = {
    Wait: Coordinator._wait,
    Plan: Coordinator._plan,
    OpenAttempt: Coordinator._open_attempt,
    CloseEmpty: Coordinator._close_empty,
    Decide: Coordinator._decide,
    Finish: Coordinator._finish,
    VoidAttempt: Coordinator._void_attempt,
    CleanVoided: Coordinator._clean_voided,
    RewindLanes: Coordinator._rewind,
    FreeLock: Coordinator._free_lock,
}
"""The method that carries out each action of an epoch; the action's docstring says which entry it appends."""
