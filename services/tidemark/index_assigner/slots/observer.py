"""What the loops of an assigner tell whoever watches: metrics, traces. This one watches nothing."""

from __future__ import annotations

from dataclasses import dataclass

from tidemark.epoch_protocol.entries import Stage
from tidemark.ledger_client.fold_reader import Applied


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


class CompositeObserver(AssignerObserver):
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


NULL_OBSERVER = AssignerObserver()
