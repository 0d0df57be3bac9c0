"""The values that the Kafka ports take and return: partitions, messages, deliveries, topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from tidemark.stream_runtime.kafka.errors import AbortableError, KafkaError

Headers = tuple[tuple[str, bytes], ...]
OFFSET_BEGINNING: Final = -2
"""Position for `assign`: the first offset that still exists."""
OFFSET_END: Final = -1
"""Position for `assign`: the first offset that a reader of its isolation level cannot see yet."""

POLL_BYTES_MAX: Final = 64 << 20
"""The default for how many bytes of keys and values one poll returns."""


class Isolation(Enum):
    """Which messages a reader sees. The values are those of Kafka's setting `isolation.level`."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int


class Message(NamedTuple):
    """One record as a reader gets it.

    `value` None is a Kafka tombstone. `timestamp_ms` is in milliseconds since 1970, -1 for a record without a
    timestamp. `headers_unreadable`: the record has headers, but the client cannot decode them because a name
    is not UTF-8; `headers` is empty then.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int = -1
    headers_unreadable: bool = False

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class OffsetRange(NamedTuple):
    """The offsets of the first and the last message of a range, both inclusive. `last` is a message's offset,
    never a transaction marker's.
    """

    topic_partition: TopicPartition
    first: int
    last: int


class TopicState(NamedTuple):
    """A topic as it is now. Kafka gives it the ``id`` when it is created (KIP-516), so a topic that was
    deleted and created again has another one. It is "" for brokers before Kafka 2.8, which have no ids.
    """

    partitions: int
    id: str


@dataclass(slots=True)
class Delivery:
    """The broker's answer about one produced message. It is final when `flush()` has returned."""

    topic_partition: TopicPartition
    acknowledged_offset: int | None = None
    error: KafkaError | None = None

    @property
    def offset(self) -> int:
        """The message's offset.

        Raises the delivery's error, or `AbortableError` if the offset is not known: then the transaction must
        be aborted.
        """
        if self.error is not None:
            raise self.error
        if self.acknowledged_offset is None:
            topic, partition = self.topic_partition
            raise AbortableError(
                f"the offset of a message to {topic}[{partition}] is unknown: flush first, or abort"
            )
        return self.acknowledged_offset


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic to create. `replication_factor` -1 is the broker's default. `config` has Kafka's own texts, for
    instance {"retention.ms": "-1"}.
    """

    name: str
    partitions: int
    replication_factor: int = -1
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as it is on the broker. `config` has all settings in effect, defaults included."""

    name: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str]
