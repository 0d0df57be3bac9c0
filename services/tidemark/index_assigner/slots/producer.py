"""The one transactional producer of a slot.

It is made at its first use, and replaced after any transaction that leaves its state unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidemark.epoch_protocol.entries import LedgerEntry, Stage, TransactionBegun, encode_entry
from tidemark.errors import ErrorKind
from tidemark.index_assigner.failpoints import claim_failpoint, failpoint_of
from tidemark.ledger_client.topics import TopicNames
from tidemark.stream_runtime.failpoint import FailpointRegistry
from tidemark.stream_runtime.kafka.errors import KafkaError, KafkaUnavailableError
from tidemark.stream_runtime.kafka.ledger_transaction import (
    LedgerStep,
    LedgerTransaction,
    OutgoingMessage,
    TransactionResult,
)
from tidemark.stream_runtime.kafka.ports import KafkaClient, TransactionalProducer


class SlotProducer:
    """Runs ledger transactions under the slot's transactional id, ``<table>-<stage>-<slot>``."""

    def __init__(
        self, client: KafkaClient, topics: TopicNames, stage: Stage, failpoints: FailpointRegistry
    ) -> None:
        self._client = client
        self._topics = topics
        self._stage = stage
        self._failpoints = failpoints
        self._producer: TransactionalProducer | None = None
        self.slot = -1

    def change_slot(self, slot: int) -> None:
        """Closes the producer; the next one gets the transactional id of ``slot``."""
        self.close()
        self.slot = slot

    def ready(self) -> TransactionalProducer:
        """Returns the initialised producer, a new one if there is none.

        A new one fences older producers of the same transactional id, and aborts the transaction that they
        left open. Raises KafkaUnavailableError when the id cannot be initialised now; KafkaError of kind
        INVALID unchanged, because waiting does not help against it.
        """
        if self._producer is None:
            name = f"{self._topics.table}-{self._stage.value}-{self.slot}"
            producer = self._client.producer(name)
            try:
                producer.init()
            except KafkaError as error:
                producer.close()
                if error.kind is ErrorKind.INVALID:
                    raise
                raise KafkaUnavailableError(f"{name} cannot be taken yet: {error}") from error
            self._producer = producer
        return self._producer

    def run(
        self,
        nonce: str,
        messages: Sequence[OutgoingMessage],
        build_entry: Callable[[Sequence[int]], LedgerEntry],
    ) -> TransactionResult:
        """Runs one transaction: begin entry, messages, and the entry that ``build_entry`` makes of their
        offsets.

        Closes the producer afterwards if it must not be used again. Raises the error of a transaction that
        can never succeed unchanged: a message above the topic's limit, a topic that is gone.
        """
        transaction = LedgerTransaction(self.ready(), self._topics.ledger_partition, reached=self._hit)
        begun = encode_entry(TransactionBegun(self._stage, self.slot, nonce))
        result = transaction.run(begun, messages, lambda offsets: encode_entry(build_entry(offsets)))
        if result.replace_producer:
            self.close()
        if result.error is not None and result.error.kind is ErrorKind.INVALID:
            raise result.error
        return result

    def hit_before_claim(self) -> None:
        """Hits the stage's failpoint before lanes are claimed."""
        self._failpoints.hit(claim_failpoint(self._stage))

    def _hit(self, step: LedgerStep) -> None:
        self._failpoints.hit(failpoint_of(self._stage, step))

    def close(self) -> None:
        """Closes the producer, if there is one. The next `ready` aborts a transaction that it left open."""
        if self._producer is not None:
            self._producer.close()
            self._producer = None
