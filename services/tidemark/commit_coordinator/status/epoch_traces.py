"""An attempt as the coordinator's spans: the root, and in it plan, decide and commit with their steps."""

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
# Waiting for a lock makes steps without end.
_STEPS_MAX: Final = 500


class EpochTraces:
    """Told by the coordinator's thread. `steps` are those since the last call that took some."""

    def __init__(self, table: str, traces: Traces, clock: Clock) -> None:
        self._table, self._traces, self._clock = table, traces, clock
        self._planned: EpochPlanned | None = None
        self._steps: deque[StepSpan] = deque(maxlen=_STEPS_MAX)

    def step(self, step: StepSpan) -> None:
        """A step of the coordinator has ended."""
        if self._traces.enabled:
            self._steps.append(step)

    def observe(self, applied: Applied, own_term: int) -> None:
        """An entry of the decisions: what ends an attempt of this coordinator's term sends its trace."""
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
    inside = [
        SpanFacts(each.name, each.began_ms, each.began_ms + each.took_ms)
        for each in steps
        if each.name.startswith(name)
    ]
    if not inside:
        return None
    ended_ms = max(each.ended_ms for each in inside)
    return SpanFacts(name, min(each.began_ms for each in inside), ended_ms, children=inside)
