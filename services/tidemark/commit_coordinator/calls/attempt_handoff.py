"""Where the coordinator's loop and the writer's calls meet: the open attempt on one side, its report on the
other.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from tidemark.commit_coordinator.commit.context import Report
from tidemark.commit_coordinator.domain.next_action import AttemptProblem, Observed
from tidemark.epoch_protocol.entries import EpochPlanned
from tidemark.epoch_protocol.state import CountedTagged


@dataclass(frozen=True)
class OpenAttemptView:
    """The attempt that the writer may write now; ``token``: what it makes files with."""

    planned: EpochPlanned
    token: str
    manifest: tuple[CountedTagged, ...]


class AttemptHandoff:
    """Where the loop and the writer's calls meet: the open attempt on one side, its report on the other."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._asked = 0
        self._writer = ""
        self._open: OpenAttemptView | None = None
        self._report: tuple[tuple[int, int], Report] | None = None
        self._problem: tuple[tuple[int, int], AttemptProblem] | None = None

    def offer(self, attempt: OpenAttemptView | None) -> None:
        """The loop opens an attempt, or takes the offer back."""
        with self._changed:
            self._open = attempt
            self._changed.notify_all()

    def came(self, writer_id: str) -> None:
        """A writer asks for work."""
        with self._changed:
            self._writer = writer_id

    @property
    def writer(self) -> str:
        """Who asked last; "" when nobody has."""
        with self._changed:
            return self._writer

    def unreported(self) -> OpenAttemptView | None:
        """The open attempt whose report has not come."""
        with self._changed:
            return self._unreported()

    def wait_for_unreported(self, timeout_s: float) -> OpenAttemptView | None:
        """The open attempt without a report, waiting up to ``timeout_s`` for one."""
        with self._changed:
            self._asked += 1
            self._changed.wait_for(lambda: self._unreported() is not None, timeout_s)
            return self._unreported()

    @property
    def asked(self) -> int:
        """How often a writer asked for an attempt; 0: none has come yet."""
        with self._changed:
            return self._asked

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
        """Takes the reason why the attempt cannot be written; False for any other attempt or instant.

        Of one that was reported as written it is too late: another run of the writer has failed.
        """
        with self._changed:
            if not self._is_open(epoch, attempt, instant):
                return False
            if self._unreported() is None:
                return True
            self._problem = ((epoch, attempt), problem)
            # It will be voided: handed out once more it would only fail once more.
            self._open = None
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
