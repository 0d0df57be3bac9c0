"""One transaction with the ledger first and last, so that a torn one is never named.

1. begin; a small message to the ledger; flush                       the ledger is registered with the
transaction now 2. the batches; flush                                                 their offsets are final
now 3. the entry, built from those offsets, to the ledger; flush          refused by the broker when an
earlier end leaked in 4. consumed positions of the input, if any; commit

An end that leaks in from the transaction before (a delayed request) reaches the ledger either before the
entry, and then the broker refuses the entry, or after it, and then entry and batches, all written by then,
share its fate: the broker takes our commit when it was a commit too, and refuses it when it was an abort.

The outcome says what the ledger holds, not what the broker answered:

- COMMITTED: the entry is committed. It may not be readable yet.
- ABORTED: the entry is not, and never will be, in the ledger.
- UNKNOWN: only a reader of the ledger can tell, and only after a new producer's `init()`.

After anything but COMMITTED, and when `replace_producer` is set, make a new producer; after ABORTED and
UNKNOWN claim anew. Source: ARCHITECTURE.md 3.3; seen to hold against a delayed commit and a delayed
abort of the transaction before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from tidemark.stream_runtime.kafka.errors import FencedError, KafkaError
from tidemark.stream_runtime.kafka.ports import Delivery, Headers, TopicPartition, TransactionalProducer

_DOUBTFUL_ABORT_S: Final = 1.0


class TransactionOutcome(Enum):
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """One message to publish in the transaction."""

    topic_partition: TopicPartition
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """`offsets` are the delivered offsets of the messages, in the order given; () unless COMMITTED.

    `error` is what stopped it; a FencedError in it means that a newer owner of the id exists, or that the
    broker's own time-out ended the transaction.
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
    """Runs transactions of one producer against one ledger partition. Payloads are opaque bytes here.

    `reached` is told each step's name before it starts ("begun", "batches", "entry", "commit", "committed"):
    the place for failpoints.
    """

    producer: TransactionalProducer
    ledger: TopicPartition
    flush_timeout_s: float = 10.0
    commit_timeout_s: float = 10.0
    reached: Callable[[str], None] = field(default=lambda _step: None)

    def run(
        self,
        begun: bytes,
        messages: Sequence[OutgoingMessage],
        build_entry: Callable[[Sequence[int]], bytes],
        consumed: Mapping[TopicPartition, int] | None = None,
        group: str | None = None,
        ledger_headers: Headers = (),
    ) -> TransactionResult:
        """Publishes `messages` and the entry that `build_entry` makes from their delivered offsets, or
        nothing of it.

        Kafka's errors become the result; an exception of `build_entry` is raised after the transaction was
        aborted.
        """
        producer = self.producer
        try:
            producer.begin()
            self.reached("begun")
            producer.produce(self.ledger, begun, None, ledger_headers)
            producer.flush(self.flush_timeout_s)
            self.reached("batches")
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
        # Raises for a message whose offset is unknown: the entry could not name it.
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
            self.reached("entry")
            delivery = producer.produce(self.ledger, entry, None, ledger_headers)
            producer.flush(self.flush_timeout_s)
            entry_offset = delivery.offset
            if consumed and group is not None:
                producer.send_offsets(consumed, group, self.commit_timeout_s)
            self.reached("commit")
            producer.commit(self.commit_timeout_s)
            self.reached("committed")
        except KafkaError as error:
            # The entry may be in the log, and an end leaked from the transaction before may have committed
            # it.
            self._abort()
            return TransactionResult(TransactionOutcome.UNKNOWN, True, error=error)
        return TransactionResult(TransactionOutcome.COMMITTED, producer.doubtful, offsets, entry_offset)

    def _abort(self) -> None:
        producer, timeout_s = self.producer, self.commit_timeout_s
        if producer.doubtful:
            # The abort would wait for messages that got no answer; the successor's init() aborts at once.
            timeout_s = min(timeout_s, _DOUBTFUL_ABORT_S)
        try:
            producer.abort(timeout_s)
        except KafkaError:
            # The producer is spent, and says so by `doubtful`; its successor's init() ends what is open.
            return
