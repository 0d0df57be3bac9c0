"""What the loops of an assigner tell whoever watches (metrics, traces), and what a slot counts."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemark.epoch_protocol.entries import Stage
from tidemark.ledger_client.fold_reader import Applied
from tidemark.stream_runtime.kafka.ledger_transaction import TransactionOutcome


@dataclass(frozen=True)
class CountedTransaction:
    """A transaction of ours that counts: its place in the ledger, and when it was made (epoch ms)."""

    stage: Stage
    slot: int
    offset: int
    records: int
    began_ms: int
    ended_ms: int


class AssignerObserver:
    """Called by the stages' threads; must return at once and never raise."""

    def tier_read(self, tier: str, seconds: float) -> None:
        """One look into a tier, for the keys of one lane of a batch."""

    def transaction(self, stage: Stage, outcome: str, seconds: float) -> None:
        """A Kafka transaction ended; ``outcome``: committed, aborted, unknown. ``seconds`` from its begin."""

    def counted(self, transaction: CountedTransaction) -> None:
        """One of ours was read back, and counts."""

    def applied(self, stage: Stage, applied: Applied) -> None:
        """What a stage's fold took, in order."""


class Several(AssignerObserver):
    """Tells each of them."""

    def __init__(self, *observers: AssignerObserver) -> None:
        self._observers = observers

    def tier_read(self, tier: str, seconds: float) -> None:
        for each in self._observers:
            each.tier_read(tier, seconds)

    def transaction(self, stage: Stage, outcome: str, seconds: float) -> None:
        for each in self._observers:
            each.transaction(stage, outcome, seconds)

    def counted(self, transaction: CountedTransaction) -> None:
        for each in self._observers:
            each.counted(transaction)

    def applied(self, stage: Stage, applied: Applied) -> None:
        for each in self._observers:
            each.applied(stage, applied)


NOBODY = AssignerObserver()


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
