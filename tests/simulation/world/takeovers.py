"""Who began something and who finished it, as the table, the topics and the calls show it."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from tests.simulation.world.checkers.judge import Judge
from tests.simulation.world.checkers.topics import Entry

_REPORTS: Final = frozenset({"ReportWritten", "ReportWrittenInParts"})


class Takeovers:
    """Counts in ``reached``. Processes go by their names."""

    def __init__(self, judge: Judge, reached: Counter[str]) -> None:
        self._judge, self._reached = judge, reached
        self._completed_by: dict[str, str] = {}
        self._committed: set[str] = set()
        self._begun_by: dict[tuple[int, int], set[str]] = {}
        self._ledger = self._decisions = 0
        self._term = -1
        self._planned_in: int | None = None
        self._decided_in: int | None = None

    def stored(self, process: str) -> None:
        """The process, one of ours, changed a timeline."""
        judge = self._judge
        for instant in judge._metadata.completed.keys() - self._completed_by.keys():
            self._completed_by[instant] = process
        for instant in judge._timeline.completed.keys() - self._committed:
            self._committed.add(instant)
            if self._completed_by.get(instant, process) != process:
                self._reached["takeover between our two commits"] += 1

    def answered(self, process: str, method: str, request: Any) -> None:
        """The coordinator did what the process asked for."""
        if method == "Begin":
            self._begun_by.setdefault((request.epoch, request.attempt), set()).add(process)
        elif method in _REPORTS:
            report = request[0] if isinstance(request, tuple) else request
            if self._begun_by.get((report.epoch, report.attempt), set()) - {process}:
                self._reached["takeover of an attempt by another writer"] += 1

    def happened(self) -> None:
        """After an event: what is new in the topics, which the judge has read."""
        topics = self._judge.topics
        for _, entry in topics.ledger[self._ledger :]:
            if entry["type"] == "lanes_claimed" and entry["stage"] == "assign":
                self._claimed(entry)
        for offset, entry in topics.decisions[self._decisions :]:
            if entry["type"] == "coordinator_claimed":
                self._term = offset
            elif entry["term"] == self._term:
                self._decide(entry)
        self._ledger, self._decisions = len(topics.ledger), len(topics.decisions)

    def _claimed(self, entry: Entry) -> None:
        decisions, counted = self._judge.topics.counted()
        held = {part["lane"] for o, e in counted.tagged if o > decisions.through for part in e["consumed"]}
        if held.intersection(entry["lanes"]):
            self._reached["takeover of a lane with uncommitted rows"] += 1

    def _decide(self, entry: Entry) -> None:
        kind, term = entry["type"], self._term
        if kind == "epoch_planned":
            self._planned_in, self._decided_in = term, None
        elif kind == "commit_decided":
            self._decided_in = term
        elif kind == "epoch_committed":
            if self._decided_in not in (None, term):
                self._reached["takeover of a decided epoch"] += 1
            elif self._planned_in not in (None, term):
                self._reached["takeover of a planned epoch"] += 1
            self._planned_in = self._decided_in = None
