"""Reads assigned partitions forward from a real broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidemark.stream_runtime.kafka.confluent.consumer import AssignedConsumer
from tidemark.stream_runtime.kafka.confluent.settings import ClientSettings
from tidemark.stream_runtime.kafka.errors import KafkaError
from tidemark.stream_runtime.kafka.ports import POLL_BYTES_MAX, Isolation, Message, TopicPartition


class ConfluentPartitionReader:
    def __init__(self, settings: ClientSettings, isolation: Isolation, group: str) -> None:
        self._consumer = AssignedConsumer(settings.partition_reader(isolation, group), f"reader {group}")
        self._positions: dict[TopicPartition, int] = {}
        self._failure: KafkaError | None = None

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        self._consumer.check_exists(positions)
        self._positions = {tp: self._consumer.resolve(tp, position) for tp, position in positions.items()}
        self._failure = None
        self._consumer.assign(self._positions)

    def add(self, positions: Mapping[TopicPartition, int]) -> None:
        self._consumer.check_exists(positions)
        known = [topic_partition for topic_partition in positions if topic_partition in self._positions]
        self._consumer.remove(known)
        resolved = {tp: self._consumer.resolve(tp, position) for tp, position in positions.items()}
        self._positions.update(resolved)
        self._consumer.add(resolved)

    def remove(self, topic_partitions: Iterable[TopicPartition]) -> None:
        known = [
            topic_partition for topic_partition in topic_partitions if topic_partition in self._positions
        ]
        for topic_partition in known:
            del self._positions[topic_partition]
        self._consumer.remove(known)

    def poll(self, max_messages: int, timeout_s: float, max_bytes: int = POLL_BYTES_MAX) -> list[Message]:
        held_back = self._failure
        if held_back is not None:
            self._failure = None
            raise held_back
        messages, ends, failure = self._consumer.poll(max_messages, timeout_s, max_bytes)
        for message in messages:
            self._positions[message.topic_partition] = message.offset + 1
        for topic_partition, offset in ends.items():
            # The end lies past markers and aborted messages; an older event must not move us back.
            self._positions[topic_partition] = max(offset, self._positions.get(topic_partition, 0))
        if failure is not None and not messages:
            raise failure
        self._failure = failure
        return messages

    def position(self, topic_partition: TopicPartition) -> int:
        return self._positions[topic_partition]

    def close(self) -> None:
        self._consumer.close()
