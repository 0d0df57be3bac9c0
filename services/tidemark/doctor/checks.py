"""Checks and how they are run: one after the other, each within a time limit.

A check that does not end in time is reported as failed and goes on in its thread, because it has to remove
what it made (files, a topic). After the last check the run waits up to `_GRACE_S` for such threads.
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


class CheckStatus(Enum):
    OK = "ok"
    WARNING = "warning"
    FAILS = "fails"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """One statement of a check. `remedy` says what to do about a warning or a failure."""

    status: CheckStatus
    text: str
    remedy: str = ""


def ok(text: str) -> Finding:
    return Finding(CheckStatus.OK, text)


def warning(text: str, remedy: str) -> Finding:
    return Finding(CheckStatus.WARNING, text, remedy)


def fails(text: str, remedy: str) -> Finding:
    return Finding(CheckStatus.FAILS, text, remedy)


def skipped(text: str) -> Finding:
    return Finding(CheckStatus.SKIPPED, text)


class SkippedError(Exception):
    """The check does not apply here, or needs the result of one that failed; the text says which."""


@dataclass(frozen=True, slots=True)
class Check:
    """One check. An error that `find` raises becomes a finding that fails, with `remedy` as its remedy."""

    name: str
    find: Callable[[], Iterable[Finding]]
    remedy: str


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a check. `findings` has at least one entry; `seconds` is how long the check took."""

    name: str
    findings: tuple[Finding, ...]
    seconds: float

    @property
    def status(self) -> CheckStatus:
        """The worst status of its findings."""
        statuses = {finding.status for finding in self.findings}
        return next(status for status in _WORST_FIRST if status in statuses)

    def document(self) -> dict[str, Any]:
        """The result as a JSON document."""
        findings = [
            {"status": finding.status.value, "text": finding.text, "remedy": finding.remedy or None}
            for finding in self.findings
        ]
        return {
            "check": self.name,
            "status": self.status.value,
            "seconds": round(self.seconds, 3),
            "findings": findings,
        }


_WORST_FIRST: Final = (CheckStatus.FAILS, CheckStatus.WARNING, CheckStatus.OK, CheckStatus.SKIPPED)


def run_checks(checks: Sequence[Check], clock: Clock, limit_s: float) -> Iterator[Result]:
    """Runs the checks and yields their results in the same order. `limit_s` is the time limit of each. Then
    waits for checks that did not end in time, up to `_GRACE_S` in all.
    """
    late: list[threading.Thread] = []
    for check in checks:
        started_s = clock.monotonic_s()
        done: list[tuple[Finding, ...]] = []
        thread = threading.Thread(target=_run_into, args=(check, done), name=check.name, daemon=True)
        thread.start()
        thread.join(limit_s)
        if thread.is_alive():
            late.append(thread)
        findings = done[0] if done else (_no_end(limit_s, check),)
        yield Result(check.name, findings, clock.monotonic_s() - started_s)
    end_s = clock.monotonic_s() + _GRACE_S
    for thread in late:
        thread.join(max(end_s - clock.monotonic_s(), 0.0))


def _run_into(check: Check, done: list[tuple[Finding, ...]]) -> None:
    findings: list[Finding] = []
    try:
        for finding in check.find():
            findings.append(finding)
    except SkippedError as reason:
        findings.append(skipped(str(reason)))
    except Exception as error:
        findings.append(fails(message_of(error, None), check.remedy))
    done.append(tuple(findings) or (ok("nothing to check"),))


def _no_end(limit_s: float, check: Check) -> Finding:
    return fails(f"no answer within {limit_s:g} s (--timeout)", check.remedy)
