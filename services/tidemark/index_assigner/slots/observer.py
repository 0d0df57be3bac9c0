"""What the stages of an assigner report while they run, for metrics and traces, and what a slot counts."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemark.epoch_protocol.entries import Stage
from tidemark.ledger_client.fold_reader import Applied
from tidemark.stream_runtime.kafka.ledger_transaction import TransactionOutcome


@dataclass(frozen=True)
class CountedTransaction:
    """An own transaction that counts: its ledger offset, and when it began and ended (ms since 1970)."""

    stage: Stage
    slot: int
    offset: int
    records: int
    began_ms: int
    ended_ms: int


class AssignerObserver:
    """Does nothing; subclasses override what they watch.

    The stages' threads call it: its methods must return at once and never raise.
    """

    def tier_read(self, tier: str, seconds: float) -> None:
        """One lookup in a tier took ``seconds``, for the keys of one lane of a batch."""

    def transaction(self, stage: Stage, outcome: str, seconds: float) -> None:
        """A Kafka transaction ended; ``outcome``: committed, aborted, unknown. ``seconds``: since its
        begin.
        """

    def counted(self, transaction: CountedTransaction) -> None:
        """The entry of an own transaction was read back, and counts."""

    def applied(self, stage: Stage, applied: Applied) -> None:
        """A stage's fold applied an entry. Called once per entry, in their order."""


class CompositeObserver(AssignerObserver):
    """Passes each call on to several observers, in their order."""

    def __init__(self, *observers: AssignerObserver) -> None:
        self._observers = observers

    def tier_read(self, tier: str, seconds: float) -> None:
        for observer in self._observers:
            observer.tier_read(tier, seconds)

    def transaction(self, stage: Stage, outcome: str, seconds: float) -> None:
        for observer in self._observers:
            observer.transaction(stage, outcome, seconds)

    def counted(self, transaction: CountedTransaction) -> None:
        for observer in self._observers:
            observer.counted(transaction)

    def applied(self, stage: Stage, applied: Applied) -> None:
        for observer in self._observers:
            observer.applied(stage, applied)


NULL_OBSERVER = AssignerObserver()
"""For a stage that nothing watches."""


@dataclass
class SlotCounters:
    """``aborted``: transactions that did not commit; ``unknown``: those whose outcome the producer did not
    learn. Both include claims. ``doubts``: how often lanes' memory was dropped, by reason. ``input_waits``:
    records cannot be decoded yet, because something other than Kafka (a schema registry) does not answer.
    ``kafka_refuses``: Kafka refuses this process a right, its login or a topic; it tries again.
    """

    claims: int = 0
    transactions: int = 0
    counted: int = 0
    not_counted: int = 0
    aborted: int = 0
    unknown: int = 0
    doubts: dict[str, int] = field(default_factory=dict)
    input_waits: bool = False
    kafka_refuses: bool = False

    def doubt(self, reason: str) -> None:
        """Counts a doubt under the text before the reason's first colon: what follows differs each time."""
        kind = reason.split(":")[0]
        self.doubts[kind] = self.doubts.get(kind, 0) + 1

    def ended(self, outcome: TransactionOutcome) -> None:
        """Counts a transaction that did not commit."""
        self.aborted += outcome is TransactionOutcome.ABORTED
        self.unknown += outcome is TransactionOutcome.UNKNOWN

    def stats(self) -> dict[str, float]:
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
            "kafka_refuses": float(self.kafka_refuses),
        }
