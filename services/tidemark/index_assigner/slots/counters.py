"""What happened so far in a slot, for `tidemark status` and tests."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemark.stream_runtime.kafka.ledger_transaction import TransactionOutcome


@dataclass
class SlotCounters:
    """``aborted``, ``unknown``: transactions, claims among them, that did not commit, or nobody knows.
    ``doubts``: why everything held was dropped, and how often. ``input_waits``: records wait for something
    else than Kafka before they can be decoded.
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
        """Counts under what stands before the first colon."""
        kind = reason.split(":")[0]
        self.doubts[kind] = self.doubts.get(kind, 0) + 1

    def ended(self, outcome: TransactionOutcome) -> None:
        """Counts a transaction that did not commit."""
        self.aborted += outcome is TransactionOutcome.ABORTED
        self.unknown += outcome is TransactionOutcome.UNKNOWN

    def figures(self) -> dict[str, float]:
        """Name -> value."""
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
