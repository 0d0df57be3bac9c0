"""The values that pass between us and a broker: where messages are, what they hold, how topics are made."""

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
"""Position for `assign`: the first offset a reader of this isolation cannot see yet."""

POLL_BYTES_MAX: Final = 64 << 20
"""Of keys and values that one poll hands out, where the caller names no bound of its own."""


class Isolation(Enum):
    """Which messages a reader sees; values are Kafka's `isolation.level`."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int


class Message(NamedTuple):
    """One record as a reader gets it. `value` None is a Kafka tombstone; `timestamp_ms` is -1 when the record
    has none. `headers_unreadable`: it has headers that the client cannot hand out (a name is not UTF-8), and
    `headers` is empty.
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
    """The first and last *delivered* offset of messages in a topic-partition, both inclusive."""

    topic_partition: TopicPartition
    first: int
    last: int


class TopicState(NamedTuple):
    """A topic as the cluster shows it now. ``id``: given when the topic was made, so a topic that was deleted
    and made again has another one (KIP-516); "" when the broker tells none (before Kafka 2.8).
    """

    partitions: int
    id: str


@dataclass(slots=True)
class Delivery:
    """The broker's answer about one produced message; settled when `flush()` has returned."""

    topic_partition: TopicPartition
    acknowledged_offset: int | None = None
    error: KafkaError | None = None

    @property
    def offset(self) -> int:
        """The message's final offset.

        Raises the delivery's own error, or `AbortableError` when the offset is unknown: an unknown offset
        means abort.
        """
        if self.error is not None:
            raise self.error
        if self.acknowledged_offset is None:
            topic, partition = self.topic_partition
            raise AbortableError(
                f"offset of a message to {topic}[{partition}] is unknown: flush first, else abort"
            )
        return self.acknowledged_offset


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic to create. `config` values are Kafka's own strings, e.g. {"retention.ms": "-1"}."""

    name: str
    partitions: int
    replication_factor: int = -1
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as the broker has it. `config` holds all effective settings."""

    name: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str]
