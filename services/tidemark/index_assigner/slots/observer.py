"""What the stages of an assigner report while they run, for metrics and traces."""

from __future__ import annotations

from dataclasses import dataclass

from tidemark.epoch_protocol.entries import Stage
from tidemark.ledger_client.fold_reader import Applied


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


class Several(AssignerObserver):
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


NOBODY = AssignerObserver()
"""For a stage that nothing watches."""
