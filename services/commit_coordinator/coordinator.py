"""The coordinator's loop: read, decide the next action, carry it out; one thread, one action at a time.

Everything it must remember is in the two topics and on the table's timelines; `Observed` is what it has
seen in this life. gRPC threads hand the writer's reports in through `AttemptDesk` and read the fold through
`view`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Protocol

from commit_coordinator.attempt_desk import AttemptDesk, OpenAttemptView
from commit_coordinator.attempt_effects import (
    clean_voided,
    close_empty,
    open_planned,
    plan_epoch,
    rewind,
    void_attempt,
)
from commit_coordinator.commit_effects import decide, finish
from commit_coordinator.context import Context, Report
from commit_coordinator.domain.actions import (
    Action,
    CleanVoided,
    CloseEmpty,
    Decide,
    Finish,
    OpenAttempt,
    Plan,
    Rewind,
    VoidAttempt,
    Wait,
)
from commit_coordinator.domain.next_action import (
    AttemptProblem,
    Limits,
    Observed,
    attempts_exhausted,
    next_action,
)
from commit_coordinator.errors import AttemptLostError, SupersededError
from epoch_protocol.entries import EpochPlanned, TaggingPaused
from epoch_protocol.fold import Fold
from hudi_format.commit import heartbeat
from hudi_format.errors import LockHeldError, UnsupportedTableError
from stream_runtime.errors import DeadlineExceededError, ErrorKind
from stream_runtime.kafka.ports import KafkaError

_POLL_S: Final = 0.02
# While a writer writes: its report comes over gRPC and does not end a wait for the topics.
_REPORT_POLL_S: Final = 0.005
_HEARTBEAT_MS: Final = 20_000
_RETRY_MS: Final = 500
_log = logging.getLogger("tidemark.coordinator")


class CommitListener(Protocol):
    """Told of every epoch that this coordinator commits, before and after."""

    def committing(self, planned: EpochPlanned, fold: Fold) -> None:
        """The fold still holds the epoch's transactions."""
        ...

    def committed(self, planned: EpochPlanned, report: Report | None) -> None:
        """It is committed; no report for an epoch without rows."""
        ...

    def rewinding(self) -> None:
        """All lanes are about to go back: what was known of the table's files may be wrong."""
        ...


class Coordinator:
    """Runs one table from a claim to the end of the term."""

    def __init__(
        self, context: Context, limits: Limits, desk: AttemptDesk, listeners: Sequence[CommitListener] = ()
    ) -> None:
        self._context = context
        self._limits = limits
        self._desk = desk
        self._listeners = listeners
        self._heartbeat_at_ms = 0
        state = context.fold().state
        self.seen = Observed(tried_before=(state.committed.epoch, state.attempts))
        self.doing: Action = Wait("starting")

    def hurry(self) -> None:
        """The next epoch is planned as soon as something counts."""
        self.seen.planned_at_ms = 0

    def want_rewind(self, reason: str, generation: int) -> None:
        """An owner found that tags of this generation cannot be read back; of an older one it is settled."""
        if generation == self._context.fold().state.generation and self.seen.rewind_due is None:
            self.seen.rewind_due = reason

    def pause(self, paused: bool, reason: str) -> None:
        """Tagging stops or goes on, durably."""
        state = self._context.fold().state
        if state.paused != paused:
            self._context.log.append(TaggingPaused(self._context.term, paused, reason))

    def step(self, poll_s: float = _POLL_S) -> Action:
        """Reads what has arrived and carries out one action; returns it."""
        context = self._context
        self._keep_alive(context.fold().state.planned)
        try:
            context.log.settle()
            context.log.poll(self._poll_s(poll_s))
            self._act()
        except (KafkaError, DeadlineExceededError) as error:
            # Nothing was decided, or nobody knows yet: `settle` will have looked before the next decision.
            if error.kind not in (ErrorKind.RETRYABLE, ErrorKind.CONFLICT):
                raise
            _log.warning("Kafka did not answer, trying again: %s", error)
            context.clock.sleep_ms(_RETRY_MS)
            self.doing = Wait("Kafka did not answer")
        return self.doing

    def _poll_s(self, longest_s: float) -> float:
        if not isinstance(self.doing, Wait):
            return 0.0
        return min(longest_s, _REPORT_POLL_S) if self._context.fold().state.planned is not None else longest_s

    def _act(self) -> None:
        context = self._context
        state = context.fold().state
        if state.coordinator_term != context.term:
            raise SupersededError("a newer coordinator has claimed this table")
        self._desk.collect(self.seen)
        if self.seen.halted is None:
            self.seen.halted = attempts_exhausted(state, self.seen, self._limits)
        now_ms = context.clock.now_ms()
        if not state.tagged or state.planned is not None:
            self.seen.counts_since_ms = None
        elif self.seen.counts_since_ms is None:
            self.seen.counts_since_ms = now_ms
        self.doing = next_action(state, self.seen, self._limits, now_ms)
        try:
            self._carry_out(self.doing)
        except AttemptLostError as error:
            self._lost(error, state.planned)
        except UnsupportedTableError as error:
            # Another engine changed what the table keeps: going on would leave its indexes stale.
            self.seen.halted = str(error)
            _log.error("tagging stops: %s", error)
            if state.planned is not None:
                self._lost(AttemptLostError(str(error), rewind=False), state.planned)
        except LockHeldError:
            # Another writer is busy; what we want is still wanted at the next step.
            context.clock.sleep_ms(_RETRY_MS)

    def _carry_out(self, action: Action) -> None:
        context, seen = self._context, self.seen
        if isinstance(action, Plan):
            seen.planned_at_ms = context.clock.now_ms()
            plan_epoch(context, action)
            self._offer_open()
        elif isinstance(action, OpenAttempt):
            open_planned(context, action)
            self._offer_open()
        elif isinstance(action, CloseEmpty):
            self._tell_committing(action.planned)
            close_empty(context, action)
            self._tell_committed(action.planned, None)
        elif isinstance(action, Decide):
            decide(context, action, self._desk.report_of(action.planned))
        elif isinstance(action, Finish):
            self._desk.offer(None)
            self._tell_committing(action.planned)
            report = finish(context, action)
            took_ms = {**report.timings_ms, **context.steps.take()}
            self._tell_committed(action.planned, replace(report, timings_ms=took_ms))
        elif isinstance(action, VoidAttempt):
            self._desk.offer(None)
            if action.rewind:
                self._tell_rewinding()
            void_attempt(context, action)
            seen.problem = None
        elif isinstance(action, CleanVoided):
            clean_voided(context, action)
            seen.cleaned.update(action.voided)
        elif isinstance(action, Rewind):
            self._tell_rewinding()
            rewind(context, action)
            seen.rewind_due = None

    def _tell_committing(self, planned: EpochPlanned) -> None:
        for listener in self._listeners:
            listener.committing(planned, self._context.fold())

    def _tell_committed(self, planned: EpochPlanned, report: Report | None) -> None:
        for listener in self._listeners:
            listener.committed(planned, report)

    def _tell_rewinding(self) -> None:
        for listener in self._listeners:
            listener.rewinding()

    def _offer_open(self) -> None:
        fold = self._context.fold()
        planned = fold.state.planned
        if planned is None or planned.instant is None:
            return
        self.seen.opened = (planned.epoch, planned.attempt)
        self._desk.offer(OpenAttemptView(planned, self._context.term, tuple(fold.manifest(planned.through))))

    def _lost(self, error: AttemptLostError, planned: EpochPlanned | None) -> None:
        """An effect found that the attempt cannot commit, or that a plan has to wait for a rewind."""
        if planned is None:
            self.seen.rewind_due = error.reason
            return
        self.seen.problem = ((planned.epoch, planned.attempt), AttemptProblem(error.reason, error.rewind))

    def _keep_alive(self, planned: EpochPlanned | None) -> None:
        now_ms = self._context.clock.now_ms()
        if planned is None or planned.instant is None or now_ms - self._heartbeat_at_ms < _HEARTBEAT_MS:
            return
        self._heartbeat_at_ms = now_ms
        if self.seen.opened == (planned.epoch, planned.attempt):
            heartbeat.keep(self._context.storage, planned.instant)
