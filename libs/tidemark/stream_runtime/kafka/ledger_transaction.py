"""A Kafka transaction that writes to the ledger first and last, so that a committed ledger entry never names
batches that are not committed.

The steps of a transaction:

1. Begin. Send a small message (`TransactionBegun`) to the ledger; flush. From now on the ledger's partition
   belongs to the transaction.
2. Send the batches; flush. From now on their offsets are final.
3. Build the ledger entry from these offsets and send it to the ledger; flush.
4. Add the consumed positions of the input, if there are any. Commit.

Why the ledger comes first: librdkafka has no producer epoch per transaction. So a delayed request that ends
the transaction before (EndTxn) can end this one instead. There are two cases:

- It arrives before the entry. Then the ledger's partition belongs to no transaction any more, and the broker
  refuses the entry (`transaction.partition.verification.enable`). Without step 1 the entry would begin
  another transaction on the broker, and could name batches that were aborted.
- It arrives after the entry. Then it commits or aborts the entry together with the batches, all of which are
  written by then. The broker accepts our commit after a commit, and refuses it after an abort.

The outcome is about the ledger, not about the broker's answer:

- COMMITTED: the entry is committed. Readers may not see it yet.
- ABORTED: the entry is not in the ledger and never will be.
- UNKNOWN: only a reader of the ledger can tell, after a new producer's `init()`.

What to do next: make a new producer after ABORTED and UNKNOWN, and after COMMITTED if `replace_producer` is
set. After ABORTED and UNKNOWN claim the lanes anew.

Sources: ARCHITECTURE.md 3.3; docs/kafka-behaviour.md has what was observed of delayed requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Final

from tidemark.stream_runtime.kafka.errors import FencedError, KafkaError
from tidemark.stream_runtime.kafka.ports import Delivery, Headers, TopicPartition, TransactionalProducer

_DOUBTFUL_ABORT_S: Final = 1.0


class TransactionOutcome(Enum):
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class LedgerStep(StrEnum):
    """The places of a transaction at which `LedgerTransaction.reached` is called."""

    BEGUN = "begun"
    """After the transaction has begun."""
    BATCHES = "batches"
    """Before the batches are sent."""
    ENTRY = "entry"
    """Before the ledger entry is sent."""
    COMMIT = "commit"
    """Before the commit."""
    COMMITTED = "committed"


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """One message to publish in the transaction."""

    topic_partition: TopicPartition
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """How a transaction ended. `offsets` has the offsets of the messages in their order, and `entry_offset`
    that of the entry; they are () and None unless COMMITTED.

    `error` is the error that ended it early. A FencedError means that a newer producer has the transactional
    id, or that the broker ended the transaction after its time-out.
    """

    outcome: TransactionOutcome
    replace_producer: bool
    offsets: tuple[int, ...] = ()
    entry_offset: int | None = None
    error: KafkaError | None = None

    @property
    def fenced(self) -> bool:
        return isinstance(self.error, FencedError)


@dataclass(frozen=True, slots=True)
class LedgerTransaction:
    """Runs transactions of one producer with one ledger partition. It does not look into the messages.

    `reached` is called at each step, for failpoints.
    """

    producer: TransactionalProducer
    ledger: TopicPartition
    flush_timeout_s: float = 10.0
    commit_timeout_s: float = 10.0
    reached: Callable[[LedgerStep], None] = field(default=lambda _step: None)

    def run(
        self,
        begun: bytes,
        messages: Sequence[OutgoingMessage],
        build_entry: Callable[[Sequence[int]], bytes],
        consumed: Mapping[TopicPartition, int] | None = None,
        group: str | None = None,
        ledger_headers: Headers = (),
    ) -> TransactionResult:
        """Publishes `messages`, and the entry that `build_entry` makes from their offsets, or none of them.

        `begun` is the first message to the ledger; `ledger_headers` are those of both ledger messages. Errors
        of Kafka become the result. An exception of `build_entry` is raised after the transaction was aborted.
        """
        producer = self.producer
        try:
            producer.begin()
            self.reached(LedgerStep.BEGUN)
            producer.produce(self.ledger, begun, None, ledger_headers)
            producer.flush(self.flush_timeout_s)
            self.reached(LedgerStep.BATCHES)
            offsets = self._publish(messages)
            entry = build_entry(offsets)
        except KafkaError as error:
            self._abort()
            return TransactionResult(TransactionOutcome.ABORTED, producer.doubtful, error=error)
        except Exception:
            self._abort()
            raise
        return self._finish(entry, offsets, consumed, group, ledger_headers)

    def _publish(self, messages: Sequence[OutgoingMessage]) -> tuple[int, ...]:
        deliveries: list[Delivery] = [
            self.producer.produce(message.topic_partition, message.value, message.key, message.headers)
            for message in messages
        ]
        self.producer.flush(self.flush_timeout_s)
        # `offset` raises if it is unknown, because the entry could not name the message.
        return tuple(delivery.offset for delivery in deliveries)

    def _finish(
        self,
        entry: bytes,
        offsets: tuple[int, ...],
        consumed: Mapping[TopicPartition, int] | None,
        group: str | None,
        ledger_headers: Headers,
    ) -> TransactionResult:
        producer = self.producer
        try:
            self.reached(LedgerStep.ENTRY)
            delivery = producer.produce(self.ledger, entry, None, ledger_headers)
            producer.flush(self.flush_timeout_s)
            entry_offset = delivery.offset
            if consumed and group is not None:
                producer.send_offsets(consumed, group, self.commit_timeout_s)
            self.reached(LedgerStep.COMMIT)
            producer.commit(self.commit_timeout_s)
            self.reached(LedgerStep.COMMITTED)
        except KafkaError as error:
            # The entry may be in the log, and a delayed commit of the transaction before may have committed
            # it.
            self._abort()
            return TransactionResult(TransactionOutcome.UNKNOWN, True, error=error)
        return TransactionResult(TransactionOutcome.COMMITTED, producer.doubtful, offsets, entry_offset)

    def _abort(self) -> None:
        producer, timeout_s = self.producer, self.commit_timeout_s
        if producer.doubtful:
            # The abort would wait for messages without an answer; the next producer's init() aborts at once.
            timeout_s = min(timeout_s, _DOUBTFUL_ABORT_S)
        try:
            producer.abort(timeout_s)
        except KafkaError:
            # The producer is spent now, hence `doubtful`. The next producer's init() ends the transaction.
            return
