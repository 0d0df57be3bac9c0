"""The port `RangeReader` on a real broker: reads exact ranges of committed messages with one consumer.

Between calls no partition is assigned, so librdkafka fetches nothing in advance. Ranges of different
partitions are read at the same time, ranges of one partition one after the other.

The consumer is replaced when nothing came of it for `QUIET_S`, neither a message nor an end, and when it does
not answer: it may know no broker any more, for as long as it lives (`silence`). The new one reads on behind
the last message that came of each range. So pauses that are longer, because the broker throttles or an open
transaction hides the rest, cost a new client each ten seconds and no message.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Final

from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.errors import DeadlineExceededError
from tidemark.stream_runtime.kafka.confluent.consumer import AssignedConsumer, replaced_if_silent
from tidemark.stream_runtime.kafka.confluent.settings import ClientSettings
from tidemark.stream_runtime.kafka.confluent.silence import QUIET_S
from tidemark.stream_runtime.kafka.errors import OffsetOutOfRangeError
from tidemark.stream_runtime.kafka.ports import Message, OffsetRange, TopicPartition

_POLL_MESSAGES: Final = 500
_POLL_TIMEOUT_S: Final = 0.1


class _RangeRead:
    """The state of one `read_many`: the range of each partition that is read now, and the messages so far."""

    def __init__(self, ranges: Sequence[OffsetRange]) -> None:
        self.answers: list[list[Message]] = [[] for _ in ranges]
        self._ranges = ranges
        self._waiting: dict[TopicPartition, deque[int]] = defaultdict(deque)
        for index, wanted in enumerate(ranges):
            self._waiting[wanted.topic_partition].append(index)

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """By partition the next offset of the range that is to be read now: its first, or the one behind the
        last message that came of it.
        """
        return {tp: self._position(indexes[0]) for tp, indexes in self._waiting.items()}

    def _position(self, index: int) -> int:
        came = self.answers[index]
        return came[-1].offset + 1 if came else self._ranges[index].first

    def is_done(self) -> bool:
        """Whether all ranges are complete."""
        return not self._waiting

    def missing(self) -> str:
        """Partition and last offset of a range that is not complete, for an error text."""
        topic_partition, indexes = next(iter(self._waiting.items()))
        last = self._ranges[indexes[0]].last
        return f"{topic_partition.topic}[{topic_partition.partition}] offset {last}"

    def take(self, message: Message) -> bool:
        """Keeps the message if it belongs to its partition's current range. True if that completes the range.

        Raises OffsetOutOfRangeError for a message behind the range: then the last one does not exist.
        """
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
        """Takes the news that nothing is readable at `end`. At or before `last` the message may still come;
        behind it the message does not exist, and OffsetOutOfRangeError is raised.
        """
        indexes = self._waiting.get(topic_partition)
        if indexes is not None and end > self._ranges[indexes[0]].last:
            raise self._no_such_message(self._ranges[indexes[0]])

    def next_range(self, topic_partition: TopicPartition) -> int | None:
        """Goes on to the partition's next range and returns its first offset, None if there is none."""
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
    """Implements `RangeReader`."""

    def __init__(self, settings: ClientSettings, clock: Clock) -> None:
        self._settings = settings
        self._consumer = self._new_consumer()
        self._clock = clock
        self._heard_s = 0.0

    def _new_consumer(self) -> AssignedConsumer:
        return AssignedConsumer(self._settings.range_reader(), "range reader")

    def read(
        self, topic_partition: TopicPartition, first: int, last: int, timeout_s: float = 30.0
    ) -> list[Message]:
        return self.read_many([OffsetRange(topic_partition, first, last)], timeout_s)[0]

    def read_many(self, ranges: Sequence[OffsetRange], timeout_s: float = 30.0) -> list[list[Message]]:
        deadline_s = self._clock.monotonic_s() + timeout_s
        reading = _RangeRead(ranges)
        if reading.is_done():
            return []
        with replaced_if_silent(self._replace):
            self._consumer.check_exists(reading.positions)
        self._consumer.assign(reading.positions)
        self._heard_s = self._clock.monotonic_s()
        try:
            while not reading.is_done():
                self._step(reading, deadline_s)
        finally:
            self._consumer.unassign()
        return reading.answers

    def _replace(self) -> None:
        former, self._consumer = self._consumer, self._new_consumer()
        former.close()

    def _step(self, reading: _RangeRead, deadline_s: float) -> None:
        remaining_s = deadline_s - self._clock.monotonic_s()
        if remaining_s <= 0:
            raise DeadlineExceededError(f"{reading.missing()} is not readable yet")
        messages, ends, failure = self._consumer.poll(_POLL_MESSAGES, min(_POLL_TIMEOUT_S, remaining_s))
        now_s = self._clock.monotonic_s()
        if messages or ends:
            self._heard_s = now_s
        elif now_s - self._heard_s >= QUIET_S:
            self._replace()
            self._consumer.assign(reading.positions)
            self._heard_s = now_s
        completed: set[TopicPartition] = set()
        for message in messages:
            # Messages behind a completed range are dropped; the next range's are fetched anew.
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
