"""Clients of the in-memory broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from testing.kafka.broker import MemoryBroker
from testing.kafka.producers import MemoryPlainProducer, MemoryTransactionalProducer
from testing.kafka.readers import MemoryPartitionReader, MemoryRangeReader
from tidemark.stream_runtime.kafka.errors import KafkaConfigError, MissingTopicError
from tidemark.stream_runtime.kafka.ports import (
    Isolation,
    TopicDescription,
    TopicPartition,
    TopicSpec,
    TopicState,
)

MESSAGE_BYTES_MAX: Final = 16 << 20
TRANSACTION_TIMEOUT_S: Final = 10.0
_TIMEOUT_S: Final = 15.0


class MemoryAdmin:
    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker

    def create_topics(self, specs: Iterable[TopicSpec]) -> None:
        for spec in specs:
            self._broker.create_topic(spec)

    def delete_topics(self, names: Iterable[str]) -> None:
        for name in names:
            self._broker.delete_topic(name)

    def partitions(self, topic: str) -> int | None:
        spec = self._broker.topic(topic)
        return spec.partitions if spec is not None else None

    def topic_states(self, topics: Iterable[str]) -> dict[str, TopicState]:
        found = {topic: self._broker.topic_state(topic) for topic in topics}
        return {topic: state for topic, state in found.items() if state is not None}

    def describe(self, topic: str) -> TopicDescription:
        spec = self._broker.topic(topic)
        if spec is None:
            raise MissingTopicError(f"there is no topic {topic}")
        return TopicDescription(topic, spec.partitions, max(spec.replication_factor, 1), dict(spec.config))

    def topic_settings(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        specs = {topic: self._broker.topic(topic) for topic in topics}
        return {topic: dict(spec.config) for topic, spec in specs.items() if spec is not None}

    def configure_topic(self, topic: str, settings: Mapping[str, str]) -> None:
        self._broker.configure_topic(topic, settings)

    def default_replication(self) -> int:
        return 1

    def default_segment_bytes(self) -> int:
        return 1 << 30

    def delete_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        for (topic, partition), offset in offsets.items():
            if offset < 0:
                raise KafkaConfigError(
                    f"delete_records of {topic}[{partition}] needs an explicit offset, not {offset}"
                )
        with self._broker.lock:
            return {tp: self._broker.log(tp).delete_below(offset) for tp, offset in offsets.items()}

    def start_offset(self, topic_partition: TopicPartition, timeout_s: float | None = None) -> int:
        self._broker.await_leader(topic_partition.topic, _TIMEOUT_S if timeout_s is None else timeout_s)
        with self._broker.lock:
            return self._broker.log(topic_partition).start

    def end_offset(self, topic_partition: TopicPartition, isolation: Isolation) -> int:
        self._broker.await_leader(topic_partition.topic, _TIMEOUT_S)
        with self._broker.lock:
            return self._broker.log(topic_partition).end_for(isolation)

    def offsets_for_time(
        self, topic_partitions: Iterable[TopicPartition], timestamp_ms: int
    ) -> dict[TopicPartition, int]:
        with self._broker.lock:
            return {tp: self._broker.log(tp).offset_for_time(timestamp_ms) for tp in topic_partitions}

    def committed_offsets(
        self, group: str, topic_partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        return self._broker.committed_offsets(group, topic_partitions)

    def check_broker(self) -> None:
        with self._broker.lock:
            self._broker.check_running()

    def close(self) -> None:
        return None


class MemoryKafkaClient:
    """The `KafkaClient` of one in-memory broker; any number of them may share it."""

    def __init__(
        self,
        broker: MemoryBroker,
        transaction_timeout_s: float = TRANSACTION_TIMEOUT_S,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
    ) -> None:
        self._broker = broker
        self._transaction_timeout_s = transaction_timeout_s
        self._message_bytes_max = message_bytes_max

    def producer(self, transactional_id: str) -> MemoryTransactionalProducer:
        return MemoryTransactionalProducer(
            self._broker, transactional_id, self._transaction_timeout_s, self._message_bytes_max
        )

    def plain_producer(self) -> MemoryPlainProducer:
        return MemoryPlainProducer(self._broker, self._message_bytes_max)

    def partition_reader(
        self,
        isolation: Isolation = Isolation.READ_COMMITTED,
        group: str | None = None,
        follows: bool = False,
    ) -> MemoryPartitionReader:
        return MemoryPartitionReader(self._broker, isolation)

    def range_reader(self) -> MemoryRangeReader:
        return MemoryRangeReader(self._broker)

    def last_of_batch(self, topic_partition: TopicPartition, offset: int) -> int:
        return self._broker.faults.unreadable_to(topic_partition, offset)

    def admin(self) -> MemoryAdmin:
        return MemoryAdmin(self._broker)
