"""What a check is, and how checks are run: one after the other, each with a limit of time.

A check that does not end in time is reported as failed and left alone; whatever it put somewhere it removes
itself, so the run waits a while for those at its end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from tidemark.console.errors import message_of
from tidemark.stream_runtime.clock import Clock

_GRACE_S: Final = 20.0


class Status(Enum):
    OK = "ok"
    WARNING = "warning"
    FAILS = "fails"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found; `remedy` says what to do where it is not as it should be."""

    status: Status
    text: str
    remedy: str = ""


def ok(text: str) -> Finding:
    return Finding(Status.OK, text)


def warning(text: str, remedy: str) -> Finding:
    return Finding(Status.WARNING, text, remedy)


def fails(text: str, remedy: str) -> Finding:
    return Finding(Status.FAILS, text, remedy)


def skipped(text: str) -> Finding:
    return Finding(Status.SKIPPED, text)


class SkippedError(Exception):
    """The check has no meaning here, or rests on one that failed; the text says which."""


@dataclass(frozen=True, slots=True)
class Check:
    """`find` raises, too: an error is a finding that fails. `remedy` goes with an error."""

    name: str
    find: Callable[[], Iterable[Finding]]
    remedy: str


@dataclass(frozen=True, slots=True)
class Result:
    """One check, done. `findings` has at least one."""

    name: str
    findings: tuple[Finding, ...]
    seconds: float

    @property
    def status(self) -> Status:
        """The worst of its findings."""
        found = {each.status for each in self.findings}
        return next(status for status in _WORST_FIRST if status in found)

    def document(self) -> dict[str, Any]:
        """As JSON."""
        findings = [
            {"status": each.status.value, "text": each.text, "remedy": each.remedy or None}
            for each in self.findings
        ]
        return {
            "check": self.name,
            "status": self.status.value,
            "seconds": round(self.seconds, 3),
            "findings": findings,
        }


_WORST_FIRST: Final = (Status.FAILS, Status.WARNING, Status.OK, Status.SKIPPED)


def run_checks(checks: Sequence[Check], clock: Clock, limit_s: float) -> Iterator[Result]:
    """The results in the order of the checks. Ends when none is at work any more, or the grace is over."""
    late: list[threading.Thread] = []
    for check in checks:
        started_s = clock.monotonic_s()
        found: list[tuple[Finding, ...]] = []
        thread = threading.Thread(target=_run_into, args=(check, found), name=check.name, daemon=True)
        thread.start()
        thread.join(limit_s)
        if thread.is_alive():
            late.append(thread)
        findings = found[0] if found else (_no_end(limit_s, check),)
        yield Result(check.name, findings, clock.monotonic_s() - started_s)
    end_s = clock.monotonic_s() + _GRACE_S
    for thread in late:
        thread.join(max(end_s - clock.monotonic_s(), 0.0))


def _run_into(check: Check, found: list[tuple[Finding, ...]]) -> None:
    findings: list[Finding] = []
    try:
        for finding in check.find():
            findings.append(finding)
    except SkippedError as reason:
        findings.append(skipped(str(reason)))
    except Exception as error:
        findings.append(fails(message_of(error, None), check.remedy))
    found.append(tuple(findings) or (ok("nothing to check"),))


def _no_end(limit_s: float, check: Check) -> Finding:
    return fails(f"no answer within {limit_s:g} s (--timeout)", check.remedy)
