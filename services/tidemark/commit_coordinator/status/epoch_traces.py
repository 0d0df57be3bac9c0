"""The coordinator's spans of an attempt: a root span, in it plan, decide and commit, in those their steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from tidemark.commit_coordinator.commit.step_times import StepSpan
from tidemark.epoch_protocol.entries import AttemptVoided, EpochCommitted, EpochPlanned
from tidemark.epoch_protocol.fold import Verdict
from tidemark.ledger_client.fold_reader import Applied
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.tracing import AttemptKey, SpanFacts, Traces

_PARTS: Final = ("plan", "decide", "commit")
# While a lock is waited for, steps are repeated without end: only the newest are kept.
_STEPS_MAX: Final = 500


class EpochTraces:
    """Collects steps until the attempt ends, then sends its spans. Used by the coordinator's thread."""

    def __init__(self, table: str, traces: Traces, clock: Clock) -> None:
        self._table, self._traces, self._clock = table, traces, clock
        self._planned: EpochPlanned | None = None
        self._steps: deque[StepSpan] = deque(maxlen=_STEPS_MAX)

    def step(self, step: StepSpan) -> None:
        """Keeps a step that has ended."""
        if self._traces.enabled:
            self._steps.append(step)

    def observe(self, applied: Applied, own_term: int) -> None:
        """Takes an applied entry; one that ends an attempt of this coordinator's term sends its spans."""
        entry = applied.entry
        if not self._traces.enabled or applied.verdict is not Verdict.APPLIED:
            return
        if isinstance(entry, EpochPlanned):
            self._planned = entry
        elif isinstance(entry, EpochCommitted | AttemptVoided):
            planned, self._planned = self._planned, None
            steps = list(self._steps)
            self._steps.clear()
            if planned is not None and entry.term == own_term:
                self._send(planned, entry, steps)

    def _send(
        self, planned: EpochPlanned, entry: EpochCommitted | AttemptVoided, steps: Sequence[StepSpan]
    ) -> None:
        key = AttemptKey(self._table, planned.epoch, planned.attempt, planned.instant)
        parts = [part for name in _PARTS if (part := _part(name, steps)) is not None]
        began_ms = min([planned.planned_ms, *(part.began_ms for part in parts)])
        failed = entry.reason if isinstance(entry, AttemptVoided) else None
        attributes = {"tidemark.term": entry.term, "tidemark.generation": planned.generation}
        self._traces.root(
            key,
            SpanFacts("epoch", began_ms, self._clock.now_ms(), attributes, failed=failed, children=parts),
        )


def _part(name: str, steps: Sequence[StepSpan]) -> SpanFacts | None:
    """The span around all steps whose names begin with ``name``, None when there is no such step."""
    inside = [
        SpanFacts(step.name, step.began_ms, step.began_ms + step.took_ms)
        for step in steps
        if step.name.startswith(name)
    ]
    if not inside:
        return None
    ended_ms = max(span.ended_ms for span in inside)
    return SpanFacts(name, min(span.began_ms for span in inside), ended_ms, children=inside)
