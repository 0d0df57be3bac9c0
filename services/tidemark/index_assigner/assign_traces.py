"""One trace span per committed epoch: from this assigner's first transaction in it to its last.

The span is sent when the epoch is committed, because only then is it certain which transactions the epoch
covers. Each of the first 32 transactions is an event of the span; the counts cover all of them.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from tidemark.epoch_protocol.entries import EpochCommitted, EpochPlanned, Rewound, Stage
from tidemark.epoch_protocol.fold import Verdict
from tidemark.index_assigner.slots.observer import AssignerObserver, CountedTransaction
from tidemark.ledger_client.fold_reader import Applied
from tidemark.stream_runtime.tracing import AttemptKey, SpanEvent, SpanFacts, Traces

_KEPT_MAX: Final = 10_000
_EVENTS_MAX: Final = 32


class AssignTraces(AssignerObserver):
    """Records what the assign stage reports, on its thread; ignores what the shuffle stage reports."""

    def __init__(self, table: str, traces: Traces) -> None:
        self._table, self._traces = table, traces
        self._counted: deque[CountedTransaction] = deque(maxlen=_KEPT_MAX)
        self._planned: EpochPlanned | None = None

    def counted(self, transaction: CountedTransaction) -> None:
        if transaction.stage is Stage.ASSIGN:
            self._counted.append(transaction)

    def applied(self, stage: Stage, applied: Applied) -> None:
        entry = applied.entry
        if stage is not Stage.ASSIGN or applied.verdict is not Verdict.APPLIED:
            return
        if isinstance(entry, EpochPlanned):
            self._planned = entry
        elif isinstance(entry, Rewound):
            self._counted = deque((one for one in self._counted if one.offset <= entry.to), _KEPT_MAX)
        elif isinstance(entry, EpochCommitted) and self._planned is not None:
            self._send(self._planned)

    def _send(self, planned: EpochPlanned) -> None:
        covered = [one for one in self._counted if one.offset <= planned.through]
        self._counted = deque((one for one in self._counted if one.offset > planned.through), _KEPT_MAX)
        if not covered:
            return
        events = [
            SpanEvent("transaction", one.ended_ms, {"tidemark.records": one.records})
            for one in covered[:_EVENTS_MAX]
        ]
        attributes = {
            "tidemark.slot": covered[-1].slot,
            "tidemark.transactions": len(covered),
            "tidemark.records": sum(one.records for one in covered),
        }
        began_ms, ended_ms = min(one.began_ms for one in covered), max(one.ended_ms for one in covered)
        span = SpanFacts("assign", began_ms, ended_ms, attributes, events)
        self._traces.part(AttemptKey(self._table, planned.epoch, planned.attempt, planned.instant), span)
