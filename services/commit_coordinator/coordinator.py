"""The coordinator's loop: read, decide the next action, carry it out; one thread, one action at a time.

Everything it must remember is in the two topics and on the table's timelines; `Observed` is what it has
seen in this life. gRPC threads hand the writer's reports in through `AttemptDesk` and read the fold through
`view`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

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
from commit_coordinator.errors import AttemptLostError
from epoch_protocol.entries import EpochPlanned, TaggingPaused
from epoch_protocol.fold import Fold
from epoch_protocol.state import CountedTagged
from hudi_format.commit import heartbeat
from hudi_format.errors import LockHeldError
from stream_runtime.kafka.ports import KafkaUnavailableError

_POLL_S: Final = 0.02
_HEARTBEAT_MS: Final = 20_000
_LOCK_RETRY_MS: Final = 500
_log = logging.getLogger("tidemark.coordinator")


@dataclass(frozen=True)
class OpenAttemptView:
    """The attempt that the writer may write now."""

    planned: EpochPlanned
    term: int
    manifest: tuple[CountedTagged, ...]


class AttemptDesk:
    """Where the loop and the writer's calls meet: the open attempt on one side, its report on the other."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._open: OpenAttemptView | None = None
        self._report: tuple[tuple[int, int], Report] | None = None
        self._problem: tuple[tuple[int, int], AttemptProblem] | None = None

    def offer(self, attempt: OpenAttemptView | None) -> None:
        """The loop opens an attempt, or takes the offer back."""
        with self._changed:
            self._open = attempt
            self._changed.notify_all()

    def wait_for_unreported(self, timeout_s: float) -> OpenAttemptView | None:
        """The open attempt without a report, waiting up to ``timeout_s`` for one."""
        with self._changed:
            self._changed.wait_for(lambda: self._unreported() is not None, timeout_s)
            return self._unreported()

    def open_attempt(self, epoch: int, attempt: int) -> OpenAttemptView | None:
        """The open attempt if it is this one."""
        with self._changed:
            view = self._open
            return view if view and (view.planned.epoch, view.planned.attempt) == (epoch, attempt) else None

    def report(self, epoch: int, attempt: int, instant: str, report: Report) -> bool:
        """Takes the statuses; False for any other attempt or instant. A second report changes nothing."""
        with self._changed:
            if not self._is_open(epoch, attempt, instant):
                return False
            if self._report is None or self._report[0] != (epoch, attempt):
                self._report = ((epoch, attempt), report)
            return True

    def fail(self, epoch: int, attempt: int, instant: str, problem: AttemptProblem) -> bool:
        """Takes the reason why the attempt cannot be written; False for any other attempt or instant."""
        with self._changed:
            if not self._is_open(epoch, attempt, instant):
                return False
            self._problem = ((epoch, attempt), problem)
            return True

    def collect(self, seen: Observed) -> None:
        """Copies what came in since into what the loop has observed."""
        with self._changed:
            if self._report is not None:
                seen.reported = self._report[0]
            if self._problem is not None:
                seen.problem, self._problem = self._problem, None

    def report_of(self, planned: EpochPlanned) -> Report:
        """The held statuses of the attempt."""
        with self._changed:
            assert self._report is not None
            assert self._report[0] == (planned.epoch, planned.attempt)
            return self._report[1]

    def _unreported(self) -> OpenAttemptView | None:
        view = self._open
        if view is None:
            return None
        reported = self._report is not None and self._report[0] == (view.planned.epoch, view.planned.attempt)
        return None if reported else view

    def _is_open(self, epoch: int, attempt: int, instant: str) -> bool:
        view = self._open
        return view is not None and (view.planned.epoch, view.planned.attempt, view.planned.instant) == (
            epoch,
            attempt,
            instant,
        )


class CommitListener(Protocol):
    """Told of every epoch that this coordinator commits, before and after."""

    def committing(self, planned: EpochPlanned, fold: Fold) -> None:
        """The fold still holds the epoch's transactions."""
        ...

    def committed(self, planned: EpochPlanned, report: Report | None) -> None:
        """It is committed; no report for an epoch without rows."""
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
        self.seen = Observed()
        self.doing: Action = Wait("starting")

    def hurry(self) -> None:
        """The next epoch is planned as soon as something counts."""
        self.seen.planned_at_ms = 0

    def pause(self, paused: bool, reason: str) -> None:
        """Tagging stops or goes on, durably."""
        state = self._context.fold().state
        if state.paused != paused:
            self._context.log.append(TaggingPaused(self._context.term, paused, reason))

    def step(self, poll_s: float = _POLL_S) -> Action:
        """Reads what has arrived and carries out one action; returns it."""
        context = self._context
        self._read(poll_s if isinstance(self.doing, Wait) else 0.0)
        self._desk.collect(self.seen)
        state = context.fold().state
        if self.seen.halted is None:
            self.seen.halted = attempts_exhausted(state, self._limits)
        self._keep_alive(state.planned)
        self.doing = next_action(state, self.seen, self._limits, context.clock.now_ms())
        try:
            self._carry_out(self.doing)
        except AttemptLostError as error:
            self._lost(error, state.planned)
        except LockHeldError:
            # Another writer is busy; what we want is still wanted at the next step.
            context.clock.sleep_ms(_LOCK_RETRY_MS)
        return self.doing

    def _read(self, poll_s: float) -> None:
        try:
            self._context.log.poll(poll_s)
        except KafkaUnavailableError as error:
            # Said once per outage; nothing is decided meanwhile, so going on reading is all there is to do.
            _log.warning("Kafka cannot be reached: %s", error)

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
            self._tell_committed(action.planned, finish(context, action))
        elif isinstance(action, VoidAttempt):
            self._desk.offer(None)
            void_attempt(context, action)
            seen.problem = None
        elif isinstance(action, CleanVoided):
            clean_voided(context, action)
            seen.cleaned.update(action.voided)
        elif isinstance(action, Rewind):
            rewind(context, action)
            seen.rewind_due = None

    def _tell_committing(self, planned: EpochPlanned) -> None:
        for listener in self._listeners:
            listener.committing(planned, self._context.fold())

    def _tell_committed(self, planned: EpochPlanned, report: Report | None) -> None:
        for listener in self._listeners:
            listener.committed(planned, report)

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
            heartbeat.beat(self._context.storage, planned.instant)
