"""Counters of one slot since its process started, for `tidemark status`, metrics and tests."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemark.stream_runtime.kafka.ledger_transaction import TransactionOutcome


@dataclass
class SlotCounters:
    """``aborted``: transactions that did not commit; ``unknown``: those whose outcome the producer did not
    learn. Both include claims. ``doubts``: how often lanes' memory was dropped, by reason. ``input_waits``:
    records cannot be decoded yet, because something other than Kafka (a schema registry) does not answer.
    """

    claims: int = 0
    transactions: int = 0
    counted: int = 0
    not_counted: int = 0
    aborted: int = 0
    unknown: int = 0
    doubts: dict[str, int] = field(default_factory=dict)
    input_waits: bool = False

    def doubt(self, reason: str) -> None:
        """Counts a doubt under the text before the reason's first colon: what follows differs each time."""
        kind = reason.split(":")[0]
        self.doubts[kind] = self.doubts.get(kind, 0) + 1

    def ended(self, outcome: TransactionOutcome) -> None:
        """Counts a transaction that did not commit."""
        self.aborted += outcome is TransactionOutcome.ABORTED
        self.unknown += outcome is TransactionOutcome.UNKNOWN

    def figures(self) -> dict[str, float]:
        """The counters by their name in reports."""
        return {
            "claims": float(self.claims),
            "transactions": float(self.transactions),
            "transactions_counted": float(self.counted),
            "transactions_not_counted": float(self.not_counted),
            "transactions_aborted": float(self.aborted),
            "transactions_unknown": float(self.unknown),
            "doubts": float(sum(self.doubts.values())),
            "input_waits": float(self.input_waits),
        }
