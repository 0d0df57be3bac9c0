"""What Tidemark needs of a Kafka broker, as protocols. `confluent` and `memory` implement them alike.

Invariants every implementation keeps (tests/contract/test_kafka_*.py):

- Offsets are per topic-partition, start at 0, only grow. Transaction markers use offsets too, so a range of n
  offsets may hold fewer than n messages: never count by subtracting offsets.
- A read_committed reader sees messages below the last stable offset (LSO) only: an open transaction hides
  everything behind it in each partition it has written to, committed or not. Messages of aborted transactions
  are never delivered.
- `commit()` returning does not mean readable: poll until seen.
- Offsets in a `Delivery` are final once `flush()` has returned, before the transaction commits.
- A reader never jumps: a deleted or missing offset raises.
- Clients must not cross a fork. Make them in the process, and in the worker, that uses them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from tidemark.stream_runtime.kafka.errors import (
    AbortableError,
    FencedError,
    KafkaConfigError,
    KafkaError,
    KafkaUnavailableError,
    MessageTooLargeError,
    MissingTopicError,
    OffsetOutOfRangeError,
    OutcomeUnknownError,
    ProducerFatalError,
    UnreadableBatchError,
)
from tidemark.stream_runtime.kafka.model import (
    OFFSET_BEGINNING,
    OFFSET_END,
    POLL_BYTES_MAX,
    Delivery,
    Headers,
    Isolation,
    Message,
    OffsetRange,
    TopicDescription,
    TopicPartition,
    TopicSpec,
    TopicState,
)

__all__ = [
    "OFFSET_BEGINNING",
    "OFFSET_END",
    "POLL_BYTES_MAX",
    "AbortableError",
    "Admin",
    "Delivery",
    "FencedError",
    "Headers",
    "Isolation",
    "KafkaClient",
    "KafkaConfigError",
    "KafkaError",
    "KafkaUnavailableError",
    "Message",
    "MessageTooLargeError",
    "MissingTopicError",
    "OffsetOutOfRangeError",
    "OffsetRange",
    "OutcomeUnknownError",
    "PartitionReader",
    "PlainProducer",
    "ProducerFatalError",
    "RangeReader",
    "TopicDescription",
    "TopicPartition",
    "TopicSpec",
    "TopicState",
    "TransactionalProducer",
    "UnreadableBatchError",
]


class TransactionalProducer(Protocol):
    """One producer bound to one transactional id. Used by one thread.

    Order of calls: init, then any number of (begin, produce…, flush, [send_offsets], commit | abort), then
    close. After a `FencedError` only `close()` may follow. After an `OutcomeUnknownError` the producer is
    spent as well.
    """

    @property
    def transactional_id(self) -> str: ...

    @property
    def doubtful(self) -> bool:
        """True once this producer must be replaced before the next transaction.

        Set by a logged disconnect since `begin()`, a second attempt, an end that took over one second, a
        message the broker found too large, an abort that failed, or any fatal or unknown outcome. librdkafka
        speaks the transaction protocol without an epoch per transaction: a delayed end of one transaction can
        end the next; a new producer's epoch stops it.
        """
        ...

    def init(self, timeout_s: float = 30.0) -> None:
        """Takes the transactional id: fences older producers and ends their open transaction (0.06 s idle, up
        to 1 s).
        """
        ...

    def begin(self) -> None: ...

    def produce(
        self,
        topic_partition: TopicPartition,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers = (),
    ) -> Delivery:
        """Queues one message. Raises `MessageTooLargeError` when it exceeds the producer's own limit."""
        ...

    def flush(self, timeout_s: float = 30.0) -> None:
        """Returns when every message has its offset. Raises the worst error when any was not delivered."""
        ...

    def send_offsets(
        self, offsets: Mapping[TopicPartition, int], group: str, timeout_s: float = 10.0
    ) -> None:
        """Adds consumed positions (next offset to read) to the transaction; for display and first starts
        only.
        """
        ...

    def commit(self, timeout_s: float = 10.0) -> None:
        """Ends the transaction. Raises OutcomeUnknownError | AbortableError | FencedError."""
        ...

    def abort(self, timeout_s: float = 10.0) -> None:
        """Ends the transaction without effect; also right after a failed `commit()` that asked for it."""
        ...

    def close(self) -> None:
        """Lets the connection go without ending an open transaction. Idempotent."""
        ...


class PlainProducer(Protocol):
    """An idempotent producer without transactions, for input topics and dead letters replayed by hand."""

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int = -1,
        headers: Headers = (),
    ) -> None:
        """Queues one message; `partition` -1 lets the broker's client choose by key. Waits when the queue is
        full.
        """
        ...

    def produce_batch(
        self, topic: str, records: Iterable[tuple[bytes | None, bytes | None]], partition: int = -1
    ) -> int:
        """Queues (key, value) pairs and returns how many; much faster than single calls."""
        ...

    def flush(self, timeout_s: float = 30.0) -> None:
        """Returns when everything queued was acknowledged; raises the first failure."""
        ...

    def close(self) -> None: ...


class PartitionReader(Protocol):
    """Reads assigned partitions forward; no consumer group membership, so nothing rebalances."""

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Replaces the assignment. Positions are offsets, `OFFSET_BEGINNING` or `OFFSET_END`."""
        ...

    def add(self, positions: Mapping[TopicPartition, int]) -> None:
        """Adds partitions without disturbing the others."""
        ...

    def remove(self, topic_partitions: Iterable[TopicPartition]) -> None: ...

    def poll(self, max_messages: int, timeout_s: float, max_bytes: int = POLL_BYTES_MAX) -> list[Message]:
        """Up to `max_messages` in offset order per partition; [] after `timeout_s` without any. About
        `max_bytes` of keys and values end it earlier.

        Raises OffsetOutOfRangeError | MissingTopicError | KafkaUnavailableError | UnreadableBatchError.
        """
        ...

    def position(self, topic_partition: TopicPartition) -> int:
        """The offset after the last message handed out, or past markers and aborted messages behind it once
        they were seen.

        The assigned position before the first message.
        """
        ...

    def close(self) -> None: ...


class RangeReader(Protocol):
    """Reads ranges of committed messages exactly. Keeps its connection between calls. Used by one thread."""

    def read(
        self, topic_partition: TopicPartition, first: int, last: int, timeout_s: float = 30.0
    ) -> list[Message]:
        """All visible messages with first <= offset <= last, in order.

        `last` must be the offset of a delivered, committed message (not a marker): reading stops when it is
        seen. Raises DeadlineExceededError when it does not appear in time (an open transaction may hide it),
        OffsetOutOfRangeError when the range was deleted, MissingTopicError.
        """
        ...

    def read_many(self, ranges: Sequence[OffsetRange], timeout_s: float = 30.0) -> list[list[Message]]:
        """Like `read` for several ranges at once, answers in the order asked. Two ranges may share a
        partition.
        """
        ...

    def close(self) -> None: ...


class Admin(Protocol):
    """Topics and offsets. All calls have a deadline and raise KafkaUnavailableError after it."""

    def create_topics(self, specs: Iterable[TopicSpec]) -> None:
        """Creates what is missing. An existing topic with another partition count is a KafkaConfigError."""
        ...

    def delete_topics(self, names: Iterable[str]) -> None:
        """Deletes those that exist; returns when they are gone, so that they can be created anew."""
        ...

    def partitions(self, topic: str) -> int | None:
        """The number of partitions, or None when there is no such topic."""
        ...

    def topic_states(self, topics: Iterable[str]) -> dict[str, TopicState]:
        """Partitions and id of each topic, in one question; topics that do not exist are left out."""
        ...

    def describe(self, topic: str) -> TopicDescription:
        """Raises MissingTopicError."""
        ...

    def configure_topic(self, topic: str, settings: Mapping[str, str]) -> None:
        """Sets these settings of a topic, and leaves the others. Raises MissingTopicError."""
        ...

    def default_replication(self) -> int:
        """How many replicas a topic gets that does not say: the least of any broker."""
        ...

    def default_segment_bytes(self) -> int:
        """How large segments of a topic get that does not say: the least of any broker."""
        ...

    def delete_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Deletes everything below the given offsets, and returns the new start offsets.

        Explicit offsets only: -1 would delete past open transactions and is refused.
        """
        ...

    def start_offset(self, topic_partition: TopicPartition) -> int:
        """The first offset that still exists."""
        ...

    def end_offset(self, topic_partition: TopicPartition, isolation: Isolation) -> int:
        """The high watermark, or with READ_COMMITTED the last stable offset."""
        ...

    def offsets_for_time(
        self, topic_partitions: Iterable[TopicPartition], timestamp_ms: int
    ) -> dict[TopicPartition, int]:
        """Per partition the first offset with a timestamp at or after `timestamp_ms`; the end offset when
        there is none.
        """
        ...

    def committed_offsets(
        self, group: str, topic_partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """What `send_offsets` committed; partitions without are left out. Not the position of record: the
        ledger has it.
        """
        ...

    def check_broker(self) -> None:
        """Raises KafkaConfigError when a broker setting that safety rests on is wrong.

        (`transaction.partition.verification.enable` must be true, `transaction.max.timeout.ms` at least our
        timeout.)
        """
        ...

    def close(self) -> None: ...


class KafkaClient(Protocol):
    """Makes clients of one cluster; the only thing a service gets to know of Kafka."""

    def producer(self, transactional_id: str) -> TransactionalProducer:
        """A new producer, not yet initialised: call `init()`."""
        ...

    def plain_producer(self) -> PlainProducer: ...

    def partition_reader(
        self, isolation: Isolation = Isolation.READ_COMMITTED, group: str | None = None
    ) -> PartitionReader: ...

    def range_reader(self) -> RangeReader: ...

    def admin(self) -> Admin: ...

    def last_of_batch(self, topic_partition: TopicPartition, offset: int) -> int:
        """The last offset of the record batch that holds this one, where nobody can read it; the offset
        itself where its record can be read. Takes seconds; raises KafkaUnavailableError.
        """
        ...
