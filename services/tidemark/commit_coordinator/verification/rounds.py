"""Verifies the table after every `verify.every_commits` commits, and on request, while epochs go on.

One verification runs at a time. If it takes longer than `verify.every_commits` commits, the next one begins
right after it. A verification continues from the last one that found no difference, and so reads only what
changed since. A request waits until no other verification runs; requests of the same kind share one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Final

import msgspec

from tidemark.commit_coordinator.commit.context import Report
from tidemark.commit_coordinator.verification.process import VerifyProcess
from tidemark.commit_coordinator.verification.verdict import VerdictFile, VerificationResult
from tidemark.config import TableConfigFile
from tidemark.epoch_protocol.entries import EpochPlanned
from tidemark.epoch_protocol.fold import Fold
from tidemark.stream_runtime.clock import Clock
from tidemark.table_status.status import Differences, LastVerification, VerificationState, VerifiedUpTo
from tidemark.table_status.warnings import StatusWarning, WarningKind

Verify = Callable[[threading.Event, bool], dict[str, Any]]
"""(stopped, full) -> the answer, as `VerifyProcess.run` gives it. Blocks; setting ``stopped`` ends it early.
"""

_WHAT_TO_DO: Final = (
    "`tidemark verify --full` names all of them, `tidemark pause` stops tagging meanwhile; "
    'docs/failure-walkthrough.md, "When verify finds differences"'
)
_STOP_S: Final = 10.0
_log = logging.getLogger("tidemark.coordinator")


class AskedVerification:
    """A requested verification. `begun` is set first, then `done`.

    `verdict` is None until `done` is set. It stays None when the coordinator stopped before the end.
    """

    def __init__(self, full: bool) -> None:
        self.full = full
        self.begun = threading.Event()
        self.done = threading.Event()
        self.verdict: VerificationResult | None = None


class PeriodicVerification:
    """A `CommitListener` that verifies the table on its own thread.

    `doing`: the last line of output of the running verification.
    """

    def __init__(
        self,
        every_commits: int,
        verify: Verify,
        clock: Clock,
        doing: Callable[[], str] = str,
        kept: VerdictFile | None = None,
    ) -> None:
        """``every_commits``: 0 for requests only. ``kept``: a file in which the last verdict is stored."""
        self.doing = doing
        self._kept = kept
        self._decided = kept.load() if kept is not None else None
        self._undecided = 0
        self._every = every_commits
        self._verify = verify
        self._clock = clock
        self._changed = threading.Condition()
        self._commits = 0
        self._running = False
        self._last: VerificationResult | None = None
        self._asked: list[AskedVerification] = []
        self._agreed: VerifiedUpTo | None = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    @classmethod
    def of(cls, config: TableConfigFile, clock: Clock) -> PeriodicVerification:
        """Makes it from the configuration's section `verify`."""
        folder, timeout_s = config.state.path / "verify", config.verify.timeout_ms / 1000
        process = VerifyProcess(config.table.path, folder, clock, timeout_s)
        kept = VerdictFile(folder / "verdict.json", config.table.path)
        return cls(config.verify.every_commits, process.run, clock, process.newest_line, kept)

    def committing(self, planned: EpochPlanned, fold: Fold) -> None:
        """Does nothing: commits are counted when they are made."""

    def committed(self, planned: EpochPlanned, report: Report | None) -> None:
        """Counts the commit, and verifies when enough were made. An epoch without rows makes none."""
        if report is None or not self._every:
            return
        with self._changed:
            self._commits += 1
            self._wake()

    def ask(self, full: bool) -> AskedVerification:
        """Requests a verification as soon as no other one runs. `full`: read every file."""
        with self._changed:
            for waiting in self._asked:
                if waiting.full == full:
                    return waiting
            asked = AskedVerification(full)
            if self._stopped.is_set():
                asked.done.set()
                return asked
            self._asked.append(asked)
            self._wake()
            return asked

    def _wake(self) -> None:
        """Wakes the thread, or starts it at the first call. The caller holds `_changed`."""
        self._changed.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="verification", daemon=True)
            self._thread.start()

    def rewinding(self) -> None:
        """Does nothing: a rewind changes nothing that is committed."""

    def stop(self) -> None:
        """Ends the running verification and releases all that wait for one. Repeatable."""
        self._stopped.set()
        with self._changed:
            self._changed.notify_all()
            for asked in self._asked:
                asked.done.set()
        if self._thread is not None:
            self._thread.join(_STOP_S)

    def state(self) -> VerificationState | None:
        """For `tidemark status`; None if `verify.every_commits` is 0 and none was requested."""
        with self._changed:
            last = self._last
            if not self._every and last is None and not self._running:
                return None
        return msgspec.structs.replace(self.standing(), last=_ended(last) if last is not None else None)

    def warnings(self) -> list[StatusWarning]:
        """Warnings: the last verdict found differences, or the last verification came to no verdict."""
        with self._changed:
            last, decided = self._last, self._decided
        warnings = []
        if last is not None and last.agrees is None:
            text = f"the table could not be verified: {last.answer['error']}"
            warnings.append(StatusWarning(WarningKind.NOT_VERIFIED, text))
        if decided is not None and not decided.agrees:
            warnings.append(StatusWarning(WarningKind.DIFFERENCES, _alarm(decided)))
        return warnings

    @property
    def last(self) -> VerificationResult | None:
        """The result of this process's last verification, also one without a verdict."""
        with self._changed:
            return self._last

    @property
    def decided(self) -> VerificationResult | None:
        """The last result that has a verdict, also that of a process before; it holds until the next one."""
        with self._changed:
            return self._decided

    @property
    def undecided(self) -> int:
        """How many verifications in a row came to no verdict, in this process."""
        with self._changed:
            return self._undecided

    def standing(self) -> VerificationState:
        """How far the table is verified, and whether one runs; without the last result."""
        with self._changed:
            return VerificationState(self._every, self._commits, self._running, self._agreed)

    def _run(self) -> None:
        while True:
            asked = self._wait_until_due()
            if self._stopped.is_set():
                break
            began_s = self._clock.monotonic_s()
            answer = self._verify(self._stopped, asked is not None and asked.full)
            if self._stopped.is_set():
                break
            seconds = round(self._clock.monotonic_s() - began_s, 3)
            verdict = VerificationResult(answer, seconds, self._clock.now_ms())
            self._take(verdict)
            if asked is not None:
                asked.verdict = verdict
                asked.done.set()
        if asked is not None:
            asked.done.set()

    def _wait_until_due(self) -> AskedVerification | None:
        """Waits until a verification is due; the request that it is for, None after enough commits."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped.is_set() or bool(self._asked) or self._is_due())
            asked = self._asked.pop(0) if self._asked else None
            self._commits, self._running = 0, not self._stopped.is_set()
            if asked is not None:
                asked.begun.set()
            return asked

    def _is_due(self) -> bool:
        return bool(self._every) and self._commits >= self._every

    def _take(self, verdict: VerificationResult) -> None:
        with self._changed:
            self._last, self._running = verdict, False
            if verdict.agrees is None:
                self._undecided += 1
            else:
                self._decided, self._undecided = verdict, 0
            if verdict.agrees:
                epoch = verdict.answer["commits"]["last_epoch"]
                self._agreed = VerifiedUpTo(verdict.answer["as_of"], epoch)
        if self._kept is not None and verdict.agrees is not None:
            self._kept.save(verdict)
        if verdict.agrees:
            _log.info(
                "verified as of %s in %.1f s: rows, record index and files agree",
                verdict.answer["as_of"],
                verdict.seconds,
            )
        elif verdict.agrees is None:
            _log.warning("the table could not be verified: %s", verdict.answer["error"])
        else:
            _log.error("%s", _alarm(verdict))


def _ended(verdict: VerificationResult) -> LastVerification:
    answer = verdict.answer
    return LastVerification(
        agrees=verdict.agrees,
        as_of=answer.get("as_of"),
        seconds=verdict.seconds,
        ended_ms=verdict.ended_ms,
        differences=msgspec.convert(answer.get("differences", {}), dict[str, Differences]),
        error=answer.get("error"),
    )


def _alarm(verdict: VerificationResult) -> str:
    kinds = verdict.answer["differences"]
    shown = "; ".join(f"{of['count']} {kind}, as {of['examples'][0]}" for kind, of in kinds.items())
    return (
        f"verification as of {verdict.answer['as_of']} found {verdict.differences} differences in the table: "
        f"{shown}. {_WHAT_TO_DO}"
    )
