"""What an assigner did for an epoch as one span: from its first transaction to its last, with an event each.

Sent when the epoch is committed: only then is it sure which transactions it covers. Of many transactions in
one epoch the first ones stand as events, all are in the counts.
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
    """Told by the assign stage's thread alone; what the shuffle stage says is passed over."""

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
            self._counted = deque((each for each in self._counted if each.offset <= entry.to), _KEPT_MAX)
        elif isinstance(entry, EpochCommitted) and self._planned is not None:
            self._send(self._planned)

    def _send(self, planned: EpochPlanned) -> None:
        done = [each for each in self._counted if each.offset <= planned.through]
        self._counted = deque((each for each in self._counted if each.offset > planned.through), _KEPT_MAX)
        if not done:
            return
        events = [
            SpanEvent("transaction", each.ended_ms, {"tidemark.records": each.records})
            for each in done[:_EVENTS_MAX]
        ]
        attributes = {
            "tidemark.slot": done[-1].slot,
            "tidemark.transactions": len(done),
            "tidemark.records": sum(each.records for each in done),
        }
        span = SpanFacts(
            "assign", min(e.began_ms for e in done), max(e.ended_ms for e in done), attributes, events
        )
        self._traces.part(AttemptKey(self._table, planned.epoch, planned.attempt, planned.instant), span)
