"""The client side of reading from the in-memory broker. Waiting goes through the broker's clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from testing.kafka.broker import MemoryBroker
from tidemark.stream_runtime.errors import DeadlineExceededError
from tidemark.stream_runtime.kafka.errors import (
    KafkaError,
    KafkaUnavailableError,
    MissingTopicError,
    OffsetOutOfRangeError,
)
from tidemark.stream_runtime.kafka.ports import (
    OFFSET_BEGINNING,
    OFFSET_END,
    POLL_BYTES_MAX,
    Isolation,
    Message,
    OffsetRange,
    TopicPartition,
)

_WAIT_STEP_S: Final = 0.005
_CHUNK_MESSAGES: Final = 1_000


class MemoryPartitionReader:
    def __init__(self, broker: MemoryBroker, isolation: Isolation) -> None:
        self._broker = broker
        self._isolation = isolation
        self._positions: dict[TopicPartition, int] = {}
        self._next = 0

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        self._positions = {}
        self.add(positions)

    def add(self, positions: Mapping[TopicPartition, int]) -> None:
        with self._broker.lock:
            for topic_partition, position in positions.items():
                log = self._broker.log(topic_partition)
                if position == OFFSET_BEGINNING:
                    position = log.start
                elif position == OFFSET_END:
                    position = log.end_for(self._isolation)
                self._positions[topic_partition] = position

    def remove(self, topic_partitions: Iterable[TopicPartition]) -> None:
        for topic_partition in topic_partitions:
            self._positions.pop(topic_partition, None)

    def poll(self, max_messages: int, timeout_s: float, max_bytes: int = POLL_BYTES_MAX) -> list[Message]:
        clock = self._broker.clock
        deadline_s = clock.monotonic_s() + timeout_s
        while True:
            messages = self._take(max_messages)
            if not messages:
                self._broker.raise_unreadable(self._positions)
            remaining_s = deadline_s - clock.monotonic_s()
            if messages or remaining_s <= 0:
                return messages
            clock.sleep(min(_WAIT_STEP_S, remaining_s))

    def _take(self, max_messages: int) -> list[Message]:
        """From each partition in turn, starting with another one each time, so that none starves."""
        order = list(self._positions)
        start = self._next % len(order) if order else 0
        self._next += 1
        messages: list[Message] = []
        for topic_partition in order[start:] + order[:start]:
            if len(messages) >= max_messages:
                break
            position = self._positions[topic_partition]
            try:
                found, self._positions[topic_partition] = self._broker.read(
                    topic_partition, position, self._isolation, max_messages - len(messages)
                )
            except KafkaError:
                if messages:
                    # They are handed out first: the error comes when this partition's turn is the first.
                    break
                raise
            messages.extend(found)
        return messages

    def position(self, topic_partition: TopicPartition) -> int:
        return self._positions[topic_partition]

    def close(self) -> None:
        self._positions = {}


class MemoryRangeReader:
    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker

    def read(
        self, topic_partition: TopicPartition, first: int, last: int, timeout_s: float = 30.0
    ) -> list[Message]:
        return self.read_many([OffsetRange(topic_partition, first, last)], timeout_s)[0]

    def read_many(self, ranges: Sequence[OffsetRange], timeout_s: float = 30.0) -> list[list[Message]]:
        deadline_s = self._broker.clock.monotonic_s() + timeout_s
        return [self._read(wanted, deadline_s) for wanted in ranges]

    def _read(self, wanted: OffsetRange, deadline_s: float) -> list[Message]:
        topic_partition, position, last = wanted
        messages: list[Message] = []
        clock = self._broker.clock
        while True:
            try:
                messages_read, position = self._broker.read(
                    topic_partition, position, Isolation.READ_COMMITTED, _CHUNK_MESSAGES
                )
            except (KafkaUnavailableError, MissingTopicError):
                if clock.monotonic_s() >= deadline_s:
                    raise
                messages_read = []
            messages.extend(message for message in messages_read if message.offset <= last)
            if messages and messages[-1].offset == last:
                return messages
            if position > last:
                raise OffsetOutOfRangeError(
                    f"{topic_partition.topic}[{topic_partition.partition}] has no committed message at {last}"
                )
            if not messages_read and clock.monotonic_s() >= deadline_s:
                raise DeadlineExceededError(
                    f"{topic_partition.topic}[{topic_partition.partition}] offset {last} is not readable yet"
                )
            if not messages_read:
                clock.sleep(min(_WAIT_STEP_S, max(deadline_s - clock.monotonic_s(), 0.0)))

    def close(self) -> None:
        return None
