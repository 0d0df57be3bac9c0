"""What Tidemark needs of a Kafka broker, as protocols. `confluent` implements them with a real broker, and
`testing/kafka` in memory.

What callers may rely on (tests/contract/test_kafka_*.py):

- Offsets belong to a topic-partition, start at 0 and only grow. Transaction markers take offsets, too, so a
  range of n offsets may hold fewer than n messages: do not count messages by subtracting offsets.
- A read_committed reader sees only messages below the last stable offset (LSO). So an open transaction hides
  all later messages of each partition that it wrote to, also those of committed transactions. Messages of
  aborted transactions are never returned.
- Messages may not be readable yet when `commit()` returns: poll until they come.
- The offset of a `Delivery` is final once `flush()` has returned, before the transaction is committed.
- A reader never jumps: a deleted or missing offset raises.
- Clients do not survive a fork. Make them in the process that uses them.
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
    """A producer of one transactional id. Used by one thread.

    Order of calls: `init`, then any number of (`begin`, `produce`…, `flush`, [`send_offsets`], `commit` or
    `abort`), then `close`. After a `FencedError` or an `OutcomeUnknownError` only `close()` may follow. All
    calls raise KafkaError.
    """

    @property
    def transactional_id(self) -> str:
        """The id by which the broker knows the producer, and fences an older one of the same id."""
        ...

    @property
    def doubtful(self) -> bool:
        """Whether this producer must be replaced before the next transaction.

        It becomes True if a connection was lost or a request timed out since `begin()`, a message was not
        acknowledged in time or was too large for the broker, the end of a transaction took longer than a
        second, or the producer failed for good. The reason: librdkafka has no epoch per transaction, so a
        delayed request that ends one transaction can end the next one. The broker refuses it from a producer
        with an older epoch, and `init()` of a new producer raises the epoch.
        """
        ...

    def init(self, timeout_s: float = 30.0) -> None:
        """Takes the transactional id: fences older producers of the id and ends their open transaction. That
        takes 0.06 s if none is open, else up to 1 s.
        """
        ...

    def begin(self) -> None:
        """Begins a transaction."""
        ...

    def produce(
        self,
        topic_partition: TopicPartition,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers = (),
    ) -> Delivery:
        """Queues one message of the transaction. Raises MessageTooLargeError if it exceeds the producer's
        limit.
        """
        ...

    def flush(self, timeout_s: float = 30.0) -> None:
        """Returns when every message has its offset. Raises the worst error if one was not delivered."""
        ...

    def send_offsets(
        self, offsets: Mapping[TopicPartition, int], group: str, timeout_s: float = 10.0
    ) -> None:
        """Adds consumed positions (the next offsets to read) of a consumer group to the transaction. They are
        only for display and for first starts; the ledger has the positions that count.
        """
        ...

    def commit(self, timeout_s: float = 10.0) -> None:
        """Commits the transaction. Raises OutcomeUnknownError | AbortableError | FencedError."""
        ...

    def abort(self, timeout_s: float = 10.0) -> None:
        """Aborts the transaction, also one whose `commit()` raised AbortableError."""
        ...

    def close(self) -> None:
        """Closes the connection without ending an open transaction. Repeatable."""
        ...


class PlainProducer(Protocol):
    """An idempotent producer without transactions, for input topics and replayed dead letters."""

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int = -1,
        headers: Headers = (),
    ) -> None:
        """Queues one message, and waits if the queue is full. With `partition` -1 the client chooses the
        partition by the key. Raises KafkaError.
        """
        ...

    def produce_batch(
        self, topic: str, records: Iterable[tuple[bytes | None, bytes | None]], partition: int = -1
    ) -> int:
        """Queues (key, value) pairs and returns their number. Much faster than single calls."""
        ...

    def flush(self, timeout_s: float = 30.0) -> None:
        """Returns when all queued messages were acknowledged. Raises the first failure."""
        ...

    def close(self) -> None:
        """Closes the connection; messages that were not flushed are lost."""
        ...


class PartitionReader(Protocol):
    """Reads assigned partitions forward. It is no member of a consumer group, so nothing rebalances."""

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Replaces the assignment. Positions are offsets, `OFFSET_BEGINNING` or `OFFSET_END`."""
        ...

    def add(self, positions: Mapping[TopicPartition, int]) -> None:
        """Adds partitions to the assignment, or sets the position of assigned ones. The others go on."""
        ...

    def remove(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Takes partitions out of the assignment; those that are not assigned are skipped."""
        ...

    def poll(self, max_messages: int, timeout_s: float, max_bytes: int = POLL_BYTES_MAX) -> list[Message]:
        """Waits up to `timeout_s` for messages and returns up to `max_messages` of them, or [].

        The messages of a partition are in offset order. A poll returns fewer messages if they have about
        `max_bytes` of keys and values. Raises OffsetOutOfRangeError | MissingTopicError |
        KafkaUnavailableError | UnreadableBatchError.
        """
        ...

    def position(self, topic_partition: TopicPartition) -> int:
        """The next offset to read: the assigned position, later the offset after the last returned message.

        Once the reader has reached the partition's end, the position is behind the transaction markers and
        aborted messages there, too.
        """
        ...

    def close(self) -> None:
        """Closes the connection. Repeatable."""
        ...


class RangeReader(Protocol):
    """Reads exact ranges of committed messages. It keeps its connection between calls. Used by one thread."""

    def read(
        self, topic_partition: TopicPartition, first: int, last: int, timeout_s: float = 30.0
    ) -> list[Message]:
        """All committed messages with first <= offset <= last, in offset order.

        `last` must be the offset of a committed message and not of a marker, because reading ends with that
        message. Raises DeadlineExceededError if it does not come in time (an open transaction may hide it),
        OffsetOutOfRangeError if the range was deleted, MissingTopicError.
        """
        ...

    def read_many(self, ranges: Sequence[OffsetRange], timeout_s: float = 30.0) -> list[list[Message]]:
        """Reads several ranges at once; one list of messages for each range, in the ranges' order. Ranges may
        share a partition. Raises like `read`.
        """
        ...

    def close(self) -> None:
        """Closes the connection. Repeatable."""
        ...


class Admin(Protocol):
    """Topics and offsets. Every call has a deadline, and raises KafkaUnavailableError after it."""

    def create_topics(self, specs: Iterable[TopicSpec]) -> None:
        """Creates the topics that are missing, and returns when brokers know them. Raises KafkaConfigError if
        one exists with another number of partitions.
        """
        ...

    def delete_topics(self, names: Iterable[str]) -> None:
        """Deletes those that exist, and returns when they are gone, so that they can be created anew."""
        ...

    def partitions(self, topic: str) -> int | None:
        """The number of partitions, or None if there is no such topic."""
        ...

    def topic_states(self, topics: Iterable[str]) -> dict[str, TopicState]:
        """Partitions and id of each topic, by one request. Topics that do not exist are left out."""
        ...

    def describe(self, topic: str) -> TopicDescription:
        """Partitions, replicas and settings of a topic. Raises MissingTopicError."""
        ...

    def topic_settings(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """The settings of each topic, by one request. Topics that do not exist, and those whose settings this
        user may not see, are left out.
        """
        ...

    def configure_topic(self, topic: str, settings: Mapping[str, str]) -> None:
        """Changes these settings of a topic and no others. Raises MissingTopicError."""
        ...

    def default_replication(self) -> int:
        """The brokers' `default.replication.factor`; the least if they differ."""
        ...

    def default_segment_bytes(self) -> int:
        """The brokers' `log.segment.bytes`; the least if they differ."""
        ...

    def delete_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Deletes all messages below the given offsets and returns the new start offsets.

        Raises KafkaConfigError for a negative offset: with -1 Kafka deletes up to the high watermark, also
        messages of open transactions.
        """
        ...

    def start_offset(self, topic_partition: TopicPartition, timeout_s: float | None = None) -> int:
        """The first offset that still exists. `timeout_s`: after so long no leader is asked any more, which
        has a few seconds for its answer; None: as long as other calls.
        """
        ...

    def end_offset(self, topic_partition: TopicPartition, isolation: Isolation) -> int:
        """The high watermark, or with READ_COMMITTED the last stable offset."""
        ...

    def offsets_for_time(
        self, topic_partitions: Iterable[TopicPartition], timestamp_ms: int
    ) -> dict[TopicPartition, int]:
        """For each partition the first offset with a timestamp at or after `timestamp_ms` (milliseconds since
        1970), or the high watermark if there is none.
        """
        ...

    def committed_offsets(
        self, group: str, topic_partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The group's positions that `send_offsets` committed; partitions without one are left out. They are
        not the positions that count: those are in the ledger.
        """
        ...

    def check_broker(self) -> None:
        """Raises KafkaConfigError if a broker has a setting with which transactions are not safe:
        `transaction.partition.verification.enable` must be true, and `transaction.max.timeout.ms` not less
        than our `limits.transaction_timeout`.
        """
        ...

    def close(self) -> None:
        """Closes the connection; later calls raise KafkaUnavailableError. Repeatable."""
        ...


class KafkaClient(Protocol):
    """Makes clients of one cluster. It is the only thing of Kafka that a service gets."""

    def producer(self, transactional_id: str) -> TransactionalProducer:
        """A new producer, on which `init()` was not called yet."""
        ...

    def plain_producer(self) -> PlainProducer:
        """A new producer without transactions."""
        ...

    def partition_reader(
        self,
        isolation: Isolation = Isolation.READ_COMMITTED,
        group: str | None = None,
        follows: bool = False,
    ) -> PartitionReader:
        """A new reader without an assignment. `group` is only its name; it joins no consumer group.

        `follows`: for a reader that is kept for long. While nothing comes it asks the broker two times a
        second, not ten. Messages come as soon as otherwise; up to half a second later come those of a
        partition that was added beside others, and a position behind markers alone.
        """
        ...

    def range_reader(self) -> RangeReader:
        """A new reader of ranges of committed messages."""
        ...

    def admin(self) -> Admin:
        """A new client for topics and offsets."""
        ...

    def last_of_batch(self, topic_partition: TopicPartition, offset: int) -> int:
        """The last offset of the unreadable record batch that holds `offset`; `offset` itself if its record
        can be read. Takes seconds. Raises KafkaUnavailableError.
        """
        ...
