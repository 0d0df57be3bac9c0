"""Has the table verified every so many commits and when somebody asks, beside the epochs; raises the alarm.

One verification at a time: when one takes longer than `verify.every_commits` commits the next begins right
after it. It goes on from the last one that found nothing wrong, so it reads what changed since. Who asks
waits for the next one to begin, together with all that ask for the same meanwhile.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Final

import msgspec

from tidemark.commit_coordinator.commit.context import Report
from tidemark.commit_coordinator.verification.process import VerifyProcess
from tidemark.commit_coordinator.verification.verdict import Verdict, VerdictFile
from tidemark.config import TableConfigFile
from tidemark.epoch_protocol.entries import EpochPlanned
from tidemark.epoch_protocol.fold import Fold
from tidemark.stream_runtime.clock import Clock
from tidemark.table_status.status import Differences, LastVerification, VerificationState, VerifiedUpTo
from tidemark.table_status.warnings import StatusWarning, WarningKind

Verify = Callable[[threading.Event, bool], dict[str, Any]]
"""Blocks until there is an answer (see `VerifyProcess.run`); the event ends it early; True: in full."""

_WHAT_TO_DO: Final = (
    "`tidemark verify --full` names all of them, `tidemark pause` stops tagging meanwhile; "
    'docs/failure-walkthrough.md, "When verify finds differences"'
)
_STOP_S: Final = 10.0
_log = logging.getLogger("tidemark.coordinator")


class AskedVerification:
    """One that was asked for. `begun` and `done` are set in this order; `verdict` is None until it is done,
    and stays so when the coordinator stopped first.
    """

    def __init__(self, full: bool) -> None:
        self.full = full
        self.begun = threading.Event()
        self.done = threading.Event()
        self.verdict: Verdict | None = None


class PeriodicVerification:
    """A `CommitListener`; it is told by the coordinator's loop, and verifies on a thread of its own.

    `doing` tells what the verification that runs said last.
    """

    def __init__(
        self,
        every_commits: int,
        verify: Verify,
        clock: Clock,
        doing: Callable[[], str] = str,
        kept: VerdictFile | None = None,
    ) -> None:
        """``kept``: where the last verdict outlives the process."""
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
        self._last: Verdict | None = None
        self._asked: list[AskedVerification] = []
        self._agreed: VerifiedUpTo | None = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    @classmethod
    def of(cls, config: TableConfigFile, clock: Clock) -> PeriodicVerification:
        """As the section `verify` says; `every_commits` 0 is never."""
        folder, timeout_s = config.state.path / "verify", config.verify.timeout_ms / 1000
        process = VerifyProcess(config.table.path, folder, clock, timeout_s)
        kept = VerdictFile(folder / "verdict.json", config.table.path)
        return cls(config.verify.every_commits, process.run, clock, process.newest_line, kept)

    def committing(self, planned: EpochPlanned, fold: Fold) -> None:
        """Nothing to do before a commit."""

    def committed(self, planned: EpochPlanned, report: Report | None) -> None:
        """Counts commits; an epoch without rows has none."""
        if report is None or not self._every:
            return
        with self._changed:
            self._commits += 1
            self._wake()

    def ask(self, full: bool) -> AskedVerification:
        """Has the table verified as soon as no other verification runs; `full`: read every file."""
        with self._changed:
            for each in self._asked:
                if each.full == full:
                    return each
            asked = AskedVerification(full)
            if self._stopped.is_set():
                asked.done.set()
                return asked
            self._asked.append(asked)
            self._wake()
            return asked

    def _wake(self) -> None:
        """The caller holds `_changed`."""
        self._changed.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="verification", daemon=True)
            self._thread.start()

    def rewinding(self) -> None:
        """Concerns what is not committed."""

    def stop(self) -> None:
        """Ends a verification that is under way. Repeatable."""
        self._stopped.set()
        with self._changed:
            self._changed.notify_all()
            for asked in self._asked:
                asked.done.set()
        if self._thread is not None:
            self._thread.join(_STOP_S)

    def state(self) -> VerificationState | None:
        """For `status`; None while it is switched off and nobody asked."""
        with self._changed:
            last = self._last
            if not self._every and last is None and not self._running:
                return None
        return msgspec.structs.replace(self.standing(), last=_ended(last) if last is not None else None)

    def warnings(self) -> list[StatusWarning]:
        """What an operator has to know: differences that stand, a verification without a verdict."""
        with self._changed:
            last, decided = self._last, self._decided
        found = []
        if last is not None and last.agrees is None:
            text = f"the table could not be verified: {last.answer['error']}"
            found.append(StatusWarning(WarningKind.NOT_VERIFIED, text))
        if decided is not None and not decided.agrees:
            found.append(StatusWarning(WarningKind.DIFFERENCES, _alarm(decided)))
        return found

    @property
    def last(self) -> Verdict | None:
        """How the last one of this process ended."""
        with self._changed:
            return self._last

    @property
    def decided(self) -> Verdict | None:
        """The last one that came to a verdict, of a process before this one too: it holds until the next."""
        with self._changed:
            return self._decided

    @property
    def undecided(self) -> int:
        """How many in a row came to none, in this process."""
        with self._changed:
            return self._undecided

    def standing(self) -> VerificationState:
        """How far it came; how the last one ended is not in it."""
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
            verdict = Verdict(answer, seconds, self._clock.now_ms())
            self._take(verdict)
            if asked is not None:
                asked.verdict = verdict
                asked.done.set()
        if asked is not None:
            asked.done.set()

    def _wait_until_due(self) -> AskedVerification | None:
        """What was asked for, None when enough commits came."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped.is_set() or bool(self._asked) or self._is_due())
            asked = self._asked.pop(0) if self._asked else None
            self._commits, self._running = 0, not self._stopped.is_set()
            if asked is not None:
                asked.begun.set()
            return asked

    def _is_due(self) -> bool:
        return bool(self._every) and self._commits >= self._every

    def _take(self, verdict: Verdict) -> None:
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


def _ended(verdict: Verdict) -> LastVerification:
    answer = verdict.answer
    return LastVerification(
        agrees=verdict.agrees,
        as_of=answer.get("as_of"),
        seconds=verdict.seconds,
        ended_ms=verdict.ended_ms,
        differences=msgspec.convert(answer.get("differences", {}), dict[str, Differences]),
        error=answer.get("error"),
    )


def _alarm(verdict: Verdict) -> str:
    kinds = verdict.answer["differences"]
    shown = "; ".join(f"{each['count']} {kind}, as {each['examples'][0]}" for kind, each in kinds.items())
    return (
        f"verification as of {verdict.answer['as_of']} found {verdict.differences} differences in the table: "
        f"{shown}. {_WHAT_TO_DO}"
    )
