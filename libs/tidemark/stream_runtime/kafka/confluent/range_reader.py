"""Reads exact ranges of committed messages with one cached consumer.

Between calls nothing is assigned, so that nothing is fetched ahead. Ranges of different partitions are read
side by side, ranges of one partition one after the other.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Final

from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.errors import DeadlineExceededError
from tidemark.stream_runtime.kafka.confluent.consumer import AssignedConsumer
from tidemark.stream_runtime.kafka.confluent.settings import ClientSettings
from tidemark.stream_runtime.kafka.errors import OffsetOutOfRangeError
from tidemark.stream_runtime.kafka.ports import Message, OffsetRange, TopicPartition

_POLL_MESSAGES: Final = 500
_POLL_TIMEOUT_S: Final = 0.1


class _RangeRead:
    """The state of one call: which range of each partition is being read, and what came."""

    def __init__(self, ranges: Sequence[OffsetRange]) -> None:
        self.answers: list[list[Message]] = [[] for _ in ranges]
        self._ranges = ranges
        self._waiting: dict[TopicPartition, deque[int]] = defaultdict(deque)
        for index, wanted in enumerate(ranges):
            self._waiting[wanted.topic_partition].append(index)

    @property
    def current(self) -> dict[TopicPartition, int]:
        """Where to read: the first offset of each partition's current range."""
        return {tp: self._ranges[indexes[0]].first for tp, indexes in self._waiting.items()}

    def is_done(self) -> bool:
        return not self._waiting

    def missing(self) -> str:
        """The first range that is not complete, for an error text."""
        topic_partition, indexes = next(iter(self._waiting.items()))
        last = self._ranges[indexes[0]].last
        return f"{topic_partition.topic}[{topic_partition.partition}] offset {last}"

    def take(self, message: Message) -> bool:
        """Keeps a message of a current range; True when that completed the range."""
        indexes = self._waiting.get(message.topic_partition)
        if indexes is None:
            return False
        wanted = self._ranges[indexes[0]]
        if wanted.first <= message.offset <= wanted.last:
            self.answers[indexes[0]].append(message)
        if message.offset > wanted.last:
            raise self._no_such_message(wanted)
        return message.offset == wanted.last

    def check_end(self, topic_partition: TopicPartition, end: int) -> None:
        """A partition end in front of `last` means wait; behind it, that no such message exists."""
        indexes = self._waiting.get(topic_partition)
        if indexes is not None and end > self._ranges[indexes[0]].last:
            raise self._no_such_message(self._ranges[indexes[0]])

    def next_range(self, topic_partition: TopicPartition) -> int | None:
        """Goes on to the partition's next range: its first offset, or None when there is none."""
        indexes = self._waiting[topic_partition]
        indexes.popleft()
        if indexes:
            return self._ranges[indexes[0]].first
        del self._waiting[topic_partition]
        return None

    @staticmethod
    def _no_such_message(wanted: OffsetRange) -> OffsetOutOfRangeError:
        topic, partition = wanted.topic_partition
        return OffsetOutOfRangeError(f"{topic}[{partition}] has no committed message at {wanted.last}")


class ConfluentRangeReader:
    def __init__(self, settings: ClientSettings, clock: Clock) -> None:
        self._consumer = AssignedConsumer(settings.range_reader(), "range reader")
        self._clock = clock

    def read(
        self, topic_partition: TopicPartition, first: int, last: int, timeout_s: float = 30.0
    ) -> list[Message]:
        return self.read_many([OffsetRange(topic_partition, first, last)], timeout_s)[0]

    def read_many(self, ranges: Sequence[OffsetRange], timeout_s: float = 30.0) -> list[list[Message]]:
        deadline_s = self._clock.monotonic_s() + timeout_s
        reading = _RangeRead(ranges)
        if reading.is_done():
            return []
        self._consumer.check_exists(reading.current)
        self._consumer.assign(reading.current)
        try:
            while not reading.is_done():
                self._step(reading, deadline_s)
        finally:
            self._consumer.unassign()
        return reading.answers

    def _step(self, reading: _RangeRead, deadline_s: float) -> None:
        remaining_s = deadline_s - self._clock.monotonic_s()
        if remaining_s <= 0:
            raise DeadlineExceededError(f"{reading.missing()} is not readable yet")
        messages, ends, failure = self._consumer.poll(_POLL_MESSAGES, min(_POLL_TIMEOUT_S, remaining_s))
        completed: set[TopicPartition] = set()
        for message in messages:
            # What was fetched behind a completed range belongs to no range; the next one is fetched anew.
            if message.topic_partition not in completed and reading.take(message):
                completed.add(message.topic_partition)
        for topic_partition in completed:
            self._consumer.remove([topic_partition])
            first = reading.next_range(topic_partition)
            if first is not None:
                self._consumer.add({topic_partition: first})
        for topic_partition, end in ends.items():
            if topic_partition not in completed:
                reading.check_end(topic_partition, end)
        if failure is not None:
            raise failure

    def close(self) -> None:
        self._consumer.close()
