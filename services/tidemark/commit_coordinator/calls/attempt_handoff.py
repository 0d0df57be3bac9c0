"""Hands the open attempt from the coordinator's loop to the writer's calls, and the report back.

1. The loop offers the open attempt: `offer`.
2. A writer waits for it in `NextEpoch`: `wait_for_unreported`; then reads it in `Begin`: `open_attempt`.
3. The writer reports success or failure: `report`, `fail`.
4. The loop waits for that (`wait_for_news`), and takes it between two actions: `collect`, `report_of`.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from tidemark.commit_coordinator.commit.context import Report
from tidemark.commit_coordinator.commit.reported_indexes import check_reported_indexes
from tidemark.commit_coordinator.domain.next_action import AttemptProblem, Observed
from tidemark.epoch_protocol.entries import EpochPlanned
from tidemark.epoch_protocol.state import CountedTagged


@dataclass(frozen=True)
class OpenAttemptView:
    """The attempt that the writer may write now; with ``token`` it prepares files."""

    planned: EpochPlanned
    token: str
    manifest: tuple[CountedTagged, ...]


class AttemptHandoff:
    """The open attempt and its report, shared by the loop and gRPC threads; thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._asked = 0
        self._writer = ""
        self._open: OpenAttemptView | None = None
        self._report: tuple[tuple[int, int], Report] | None = None
        self._problem: tuple[tuple[int, int], AttemptProblem] | None = None
        self._has_news = False

    def offer(self, attempt: OpenAttemptView | None) -> None:
        """The loop offers its open attempt to writers; None: there is none any more."""
        with self._changed:
            self._open = attempt
            self._changed.notify_all()

    def came(self, writer_id: str) -> None:
        """Notes that this writer asks for work."""
        with self._changed:
            self._writer = writer_id

    @property
    def writer(self) -> str:
        """The id of the writer that asked last; "" when none has."""
        with self._changed:
            return self._writer

    def unreported(self) -> OpenAttemptView | None:
        """The open attempt if its report has not come, else None."""
        with self._changed:
            return self._unreported()

    def wait_for_unreported(self, timeout_s: float) -> OpenAttemptView | None:
        """Waits up to ``timeout_s`` for an open attempt without a report; None if there is none."""
        with self._changed:
            self._asked += 1
            self._changed.wait_for(lambda: self._unreported() is not None, timeout_s)
            return self._unreported()

    @property
    def asked(self) -> int:
        """How often a writer has asked for an attempt, since the start of this coordinator."""
        with self._changed:
            return self._asked

    def open_attempt(self, epoch: int, attempt: int) -> OpenAttemptView | None:
        """The open attempt if it is the given one, else None."""
        with self._changed:
            view = self._open
            return view if view and (view.planned.epoch, view.planned.attempt) == (epoch, attempt) else None

    def report(self, epoch: int, attempt: int, instant: str, report: Report) -> bool:
        """Takes the report; False if another attempt or none is open. A second report changes nothing.

        Raises StatsLeftOutError and EntriesLeftOutError for one that lacks what the plan asks for.
        """
        with self._changed:
            if self._open is None or not self._is_open(epoch, attempt, instant):
                return False
            check_reported_indexes(self._open.planned, report)
            if self._report is None or self._report[0] != (epoch, attempt):
                self._report = ((epoch, attempt), report)
                self._tell()
            return True

    def fail(self, epoch: int, attempt: int, instant: str, problem: AttemptProblem) -> bool:
        """Takes the reason why the attempt could not be written; False if another attempt or none is open.

        Changes nothing if the attempt was already reported as written: then another run of the writer failed.
        """
        with self._changed:
            if not self._is_open(epoch, attempt, instant):
                return False
            if self._unreported() is None:
                return True
            self._problem = ((epoch, attempt), problem)
            # The loop will void it. Offered until then, a writer would only fail with it again.
            self._open = None
            self._tell()
            return True

    def wait_for_news(self, timeout_s: float) -> None:
        """Waits up to ``timeout_s`` for a report or failure that `collect` has not copied."""
        with self._changed:
            self._changed.wait_for(lambda: self._has_news, timeout_s)

    def collect(self, seen: Observed) -> None:
        """Copies the latest report and failure into what the loop has observed."""
        with self._changed:
            self._has_news = False
            if self._report is not None:
                seen.reported = self._report[0]
            if self._problem is not None:
                seen.problem, self._problem = self._problem, None

    def report_of(self, planned: EpochPlanned) -> Report:
        """The report of the attempt, which `collect` has announced before."""
        with self._changed:
            assert self._report is not None
            assert self._report[0] == (planned.epoch, planned.attempt)
            return self._report[1]

    def _tell(self) -> None:
        self._has_news = True
        self._changed.notify_all()

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
