"""The port `PartitionReader` on a real broker; and `AssignedConsumer`, which it shares with `RangeReader`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from operator import methodcaller
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import TopicPartition as ClientTopicPartition

from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.kafka.confluent.connection_log import ConnectionLog
from tidemark.stream_runtime.kafka.confluent.settings import ClientSettings
from tidemark.stream_runtime.kafka.confluent.silence import Silence
from tidemark.stream_runtime.kafka.confluent.translate import (
    UNAVAILABLE,
    client_error,
    translate,
    translate_read,
)
from tidemark.stream_runtime.kafka.errors import (
    REFUSED,
    KafkaConfigError,
    KafkaError,
    KafkaUnavailableError,
    LeaderChangingError,
    MissingTopicError,
)
from tidemark.stream_runtime.kafka.ports import (
    OFFSET_BEGINNING,
    OFFSET_END,
    POLL_BYTES_MAX,
    Isolation,
    Message,
    TopicPartition,
)

_logger = logging.getLogger("tidemark.kafka")
_METADATA_TIMEOUT_S: Final = 10.0
_END_TIMEOUT_S: Final = 1.0
_FIRST_CHUNK: Final = 16
# If a header's name is not UTF-8, the client's method returns a result *and* leaves an exception set.
# The interpreter's fast call of a method does not check for that, so the exception would appear in some later
# call. `methodcaller` checks, and raises it here.
_headers: Final = methodcaller("headers")


class Events(NamedTuple):
    """The events of one poll, sorted. `ends`: partition -> the offset at which nothing more is readable now.
    `error` is the first error.
    """

    messages: list[Message]
    ends: dict[TopicPartition, int]
    error: KafkaError | None


class AssignedConsumer:
    """A librdkafka consumer that is only used with explicit assignments, never with subscriptions. Its events
    come sorted (`Events`).
    """

    def __init__(self, settings: dict[str, Any], name: str) -> None:
        self._outage: Any = None
        self._partitions: dict[str, int] = {}
        try:
            self._consumer: Any = Consumer(
                {**settings, "error_cb": self._on_error}, logger=ConnectionLog(name)
            )
        except KafkaException as error:
            raise KafkaConfigError(f"kafka section: {client_error(error).str()}") from None

    def _on_error(self, error: Any) -> None:
        if error.code() == ClientError._ALL_BROKERS_DOWN:
            self._outage = error

    def check_exists(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Raises MissingTopicError for a partition that does not exist. librdkafka would report nothing at
        all about an assigned partition of a missing topic.
        """
        for topic, partition in topic_partitions:
            if partition >= self._partitions.get(topic, 0):
                self._partitions[topic] = self._count_partitions(topic)
            if partition >= self._partitions[topic]:
                raise MissingTopicError(f"there is no {topic}[{partition}]")

    def _count_partitions(self, topic: str) -> int:
        try:
            metadata = self._consumer.list_topics(topic, timeout=_METADATA_TIMEOUT_S).topics[topic]
        except KafkaException as error:
            raise translate(client_error(error), f"metadata of {topic}") from None
        if metadata.error is not None and metadata.error.code() != ClientError.UNKNOWN_TOPIC_OR_PART:
            raise translate(metadata.error, f"metadata of {topic}")
        return len(metadata.partitions)

    def resolve(self, topic_partition: TopicPartition, position: int) -> int:
        """The offset that OFFSET_BEGINNING or OFFSET_END stands for now; other positions are offsets already.
        For a read_committed consumer OFFSET_END is the last stable offset (LSO).
        """
        if position not in (OFFSET_BEGINNING, OFFSET_END):
            return position
        try:
            low, high = self._watermarks(topic_partition, _METADATA_TIMEOUT_S)
        except KafkaException as error:
            topic, partition = topic_partition
            raise translate(client_error(error), f"offsets of {topic}[{partition}]") from None
        return low if position == OFFSET_BEGINNING else high

    def end(self, topic_partition: TopicPartition) -> int | None:
        """Up to which offset the partition can be read now; None if Kafka does not say within a second."""
        try:
            return self._watermarks(topic_partition, _END_TIMEOUT_S)[1]
        except KafkaException:
            return None

    def _watermarks(self, topic_partition: TopicPartition, timeout_s: float) -> tuple[int, int]:
        """First offset and end, as the broker says now."""
        client = _client(topic_partition)
        low, high = self._consumer.get_watermark_offsets(client, timeout=timeout_s, cached=False)
        return int(low), int(high)

    def assign(self, positions: dict[TopicPartition, int]) -> None:
        self._consumer.assign([_client(tp, offset) for tp, offset in positions.items()])

    def add(self, positions: dict[TopicPartition, int]) -> None:
        if positions:
            self._consumer.incremental_assign([_client(tp, offset) for tp, offset in positions.items()])

    def remove(self, topic_partitions: Iterable[TopicPartition]) -> None:
        clients = [_client(topic_partition) for topic_partition in topic_partitions]
        if clients:
            self._consumer.incremental_unassign(clients)

    def unassign(self) -> None:
        self._consumer.unassign()

    def poll(self, max_messages: int, timeout_s: float, max_bytes: int = POLL_BYTES_MAX) -> Events:
        """Waits up to `timeout_s` for the first event, then takes those that are there without waiting.
        (`consume` alone would wait until it has `max_messages`.)

        It takes 16 events, then 32, 64 …, and stops once it has `max_bytes`. So it does not take thousands of
        messages of a megabyte each before it looks at their size.
        """
        first = self._consumer.poll(timeout_s)
        if first is None:
            outage, self._outage = self._outage, None
            return Events([], {}, None if outage is None else translate(outage, "poll"))
        batch, size, chunk = [first], _size(first), _FIRST_CHUNK
        while len(batch) < max_messages and size < max_bytes:
            wanted = min(chunk, max_messages - len(batch))
            events = self._consumer.consume(wanted, 0)
            batch += events
            if len(events) < wanted:
                break
            size += sum(map(_size, events))
            chunk *= 2
        self._outage = None
        return self._sort(batch)

    def _sort(self, batch: list[Any]) -> Events:
        messages: list[Message] = []
        ends: dict[TopicPartition, int] = {}
        failure: KafkaError | None = None
        for event in batch:
            error = event.error()
            if error is None:
                messages.append(_message(event))
            elif error.code() == ClientError._PARTITION_EOF:
                ends[TopicPartition(event.topic(), event.partition())] = event.offset()
            elif error.code() not in UNAVAILABLE and failure is None:
                failure = translate_read(event, error)
        return Events(messages, ends, failure)

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None


def _client(topic_partition: TopicPartition, offset: int = -1001) -> ClientTopicPartition:
    return ClientTopicPartition(topic_partition.topic, topic_partition.partition, offset)


def _message(event: Any) -> Message:
    kind, timestamp_ms = event.timestamp()
    try:
        headers, unreadable = _headers(event), False
    except (SystemError, UnicodeDecodeError, KafkaException):
        headers, unreadable = None, True
    return Message(
        event.topic(),
        event.partition(),
        event.offset(),
        event.key(),
        event.value(),
        tuple(headers) if headers else (),
        timestamp_ms if kind else -1,
        unreadable,
    )


def _size(event: Any) -> int:
    return len(event)


@contextmanager
def replaced_if_silent(replace: Callable[[], None]) -> Iterator[None]:
    """In its block a client is asked. One that does not answer is replaced; one that answers that a leader
    changes is kept, with all that it holds of other partitions. Raises what the block raises.
    """
    try:
        yield
    except LeaderChangingError:
        raise
    except KafkaUnavailableError:
        replace()
        raise


class ConfluentPartitionReader:
    """Implements `PartitionReader`. If a poll has messages and an error, it returns the messages, and the
    next poll raises the error. A consumer that stopped reading a partition, or does not answer, is replaced
    (`silence`).
    """

    def __init__(
        self,
        settings: ClientSettings,
        isolation: Isolation,
        group: str,
        clock: Clock,
        follows: bool = False,
    ) -> None:
        self._section = settings.partition_reader(isolation, group, follows)
        self._name = f"reader {group}"
        self._clock = clock
        self._consumer = AssignedConsumer(self._section, self._name)
        self._silence = Silence()
        self._positions: dict[TopicPartition, int] = {}
        self._failure: KafkaError | None = None
        self._refused = False

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        self._positions = self._resolved(positions)
        self._failure = None
        self._consumer.assign(self._positions)
        self._silence = Silence()
        self._silence.begin(self._positions, self._clock.monotonic_s())

    def add(self, positions: Mapping[TopicPartition, int]) -> None:
        resolved = self._resolved(positions)
        known = [topic_partition for topic_partition in positions if topic_partition in self._positions]
        self._consumer.remove(known)
        self._positions.update(resolved)
        self._consumer.add(resolved)
        self._silence.begin(resolved, self._clock.monotonic_s())

    def _resolved(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The positions as offsets. A client that does not answer is replaced, for the next call."""
        with replaced_if_silent(self._replace):
            self._consumer.check_exists(positions)
            return {tp: self._consumer.resolve(tp, position) for tp, position in positions.items()}

    def remove(self, topic_partitions: Iterable[TopicPartition]) -> None:
        known = [
            topic_partition for topic_partition in topic_partitions if topic_partition in self._positions
        ]
        for topic_partition in known:
            del self._positions[topic_partition]
        self._consumer.remove(known)
        self._silence.forget(known)

    def poll(self, max_messages: int, timeout_s: float, max_bytes: int = POLL_BYTES_MAX) -> list[Message]:
        if self._refused:
            # A client that may not even see a topic says nothing of it.
            with replaced_if_silent(self._replace):
                self._consumer.check_exists(self._positions)
            self._refused = False
        held_back = self._failure
        if held_back is not None:
            self._failure = None
            raise self._told(held_back)
        messages, ends, failure = self._consumer.poll(max_messages, timeout_s, max_bytes)
        for message in messages:
            self._positions[message.topic_partition] = message.offset + 1
        for topic_partition, offset in ends.items():
            # The end is behind markers and aborted messages. An older event must not move the position back,
            # and one of a partition that was removed meanwhile must not bring it back.
            if topic_partition in self._positions:
                self._positions[topic_partition] = max(offset, self._positions[topic_partition])
        if failure is not None and not messages:
            raise self._told(failure)
        self._failure = failure
        self._watch(messages, ends)
        return messages

    def _told(self, failure: KafkaError) -> KafkaError:
        """The failure. A client tells once that it may not read a topic, or that there is none, and is silent
        from then on: another one tells it again for as long as it is so.
        """
        if isinstance(failure, REFUSED):
            self._refused = True
            self._replace()
        return failure

    def _watch(self, messages: list[Message], ends: Mapping[TopicPartition, int]) -> None:
        now_s = self._clock.monotonic_s()
        if messages or ends:
            came = {message.topic_partition for message in messages} | (ends.keys() & self._positions.keys())
            self._silence.read(came, now_s)
        else:
            self._silence.nothing_came()
        stuck = self._silence.stuck(self._positions.__getitem__, self._consumer.end, now_s)
        if stuck is not None:
            _logger.warning(
                "%s: nothing came of %s[%d] at offset %d, although more can be read, or the client does not "
                "answer: read with a new client",
                self._name,
                *stuck,
                self._positions[stuck],
            )
            self._replace()

    def _replace(self) -> None:
        """Reads on with another consumer, from the same positions: what the former holds is fetched anew."""
        former, self._consumer = self._consumer, AssignedConsumer(self._section, self._name)
        try:
            self._consumer.assign(self._positions)
            self._silence.begin(self._positions, self._clock.monotonic_s())
        finally:
            former.close()

    def position(self, topic_partition: TopicPartition) -> int:
        return self._positions[topic_partition]

    def close(self) -> None:
        self._consumer.close()
