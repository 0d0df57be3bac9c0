"""What a contract test of the Kafka ports gets: one cluster, real or in memory, and topics of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import TopicPartition as ClientTopicPartition

from testing.kafka import MemoryBroker
from tests.grown_topic import grow_topic
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.kafka.ports import (
    Admin,
    Delivery,
    Isolation,
    KafkaClient,
    Message,
    PartitionReader,
    TopicPartition,
    TopicSpec,
    TopicState,
    TransactionalProducer,
)
from tidemark.stream_runtime.retry import Deadline

WAIT_S = 180.0
"""A limit that only what is broken reaches: slow machines pause for longer than the clients' defaults."""


@dataclass
class KafkaCluster:
    """`memory` is the broker itself when it is the in-memory one."""

    client: KafkaClient
    clock: Clock
    unique: str
    memory: MemoryBroker | None = None
    bootstrap_servers: str = ""
    _closing: list[Callable[[], None]] = field(default_factory=list)
    _topics: int = 0
    _looking: Admin | None = None

    def admin(self) -> Admin:
        admin: Admin = self._track(self.client.admin())
        return admin

    def topic(self, partitions: int = 1, **config: str) -> str:
        self._topics += 1
        name = f"{self.unique}-{self._topics}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        self.admin().create_topics([TopicSpec(name, partitions, 1, settings)])
        return name

    def partition(self) -> TopicPartition:
        return TopicPartition(self.topic(), 0)

    def transactional_id(self) -> str:
        self._topics += 1
        return f"{self.unique}-id-{self._topics}"

    def producer(self, transactional_id: str | None = None) -> TransactionalProducer:
        """An initialised producer."""
        producer = self.uninitialised(transactional_id)
        producer.init(WAIT_S)
        return producer

    def uninitialised(self, transactional_id: str | None = None) -> TransactionalProducer:
        producer: TransactionalProducer = self._track(
            self.client.producer(transactional_id or self.transactional_id())
        )
        return producer

    def plain(self):
        return self._track(self.client.plain_producer())

    def reader(self, **arguments) -> PartitionReader:
        reader: PartitionReader = self._track(self.client.partition_reader(**arguments))
        return reader

    def ranges(self):
        return self._track(self.client.range_reader())

    def _track(self, thing: Any) -> Any:
        self._closing.append(thing.close)
        return thing

    def close(self) -> None:
        for close in reversed(self._closing):
            close()

    def read_until(self, reader: PartitionReader, count: int) -> list[Message]:
        """Polls until `count` messages came; fails loudly when they do not."""
        messages: list[Message] = []
        deadline_s = self.clock.monotonic_s() + WAIT_S
        while len(messages) < count:
            assert self.clock.monotonic_s() < deadline_s, f"only {len(messages)} of {count} messages came"
            messages += reader.poll(count - len(messages), 0.2)
        return messages

    def end_of(self, topic_partition: TopicPartition) -> int:
        return self._looks().end_offset(topic_partition, Isolation.READ_UNCOMMITTED)

    def stable_end_of(self, topic_partition: TopicPartition) -> int:
        return self._looks().end_offset(topic_partition, Isolation.READ_COMMITTED)

    def await_end(self, what: str, is_so: Callable[[], bool]) -> None:
        """Markers reach partitions after the answer to the end."""
        deadline = Deadline(self.clock, WAIT_S)
        while not is_so():
            deadline.check(what)
            deadline.sleep(0.02)

    def await_position(self, group: str, topic_partition: TopicPartition, position: int) -> None:
        """Kafka answers a commit before it writes the group's marker; until then the group has its old
        position, or none.
        """
        wanted = {topic_partition: position}
        self.await_end(
            f"position {position} of {group}",
            lambda: self._looks().committed_offsets(group, [topic_partition]) == wanted,
        )

    def _looks(self) -> Admin:
        """One client for all looks of a wait: each new one costs threads until the test ends."""
        if self._looking is None:
            self._looking = self.admin()
        return self._looking

    def stop_fetching(self, reader: PartitionReader, topic_partition: TopicPartition) -> None:
        """The client reads nothing more of the partition, without a word. The in-memory one cannot stop."""
        if self.memory is None:
            consumer: Any = reader
            consumer._consumer._consumer.pause([ClientTopicPartition(*topic_partition)])

    def grow(self, topic: str, partitions: int) -> None:
        """Adds partitions, as an operator does it."""
        if self.memory is not None:
            self.memory.grow_topic(topic, partitions)
        else:
            grow_topic(self.bootstrap_servers, topic, partitions)

    def wait_partitions(self, topic: str, partitions: int) -> TopicState:
        """The controller answers before every broker's metadata says so."""
        admin, deadline_s = self.admin(), self.clock.monotonic_s() + WAIT_S
        while (state := admin.topic_states([topic])[topic]).partitions != partitions:
            assert self.clock.monotonic_s() < deadline_s, f"{topic} stays at {state}"
            self.clock.sleep(0.05)
        return state

    def wait_position(self, reader: PartitionReader, topic_partition: TopicPartition, position: int) -> None:
        """Polls, expecting nothing, until the reader stands at `position`."""
        deadline_s = self.clock.monotonic_s() + WAIT_S
        while reader.position(topic_partition) != position:
            assert self.clock.monotonic_s() < deadline_s, (
                f"reader stays at {reader.position(topic_partition)}"
            )
            assert reader.poll(10, 0.2) == []


def send(producer: TransactionalProducer, topic_partition: TopicPartition, *values: bytes) -> list[Delivery]:
    """Produces within an open transaction, and flushes."""
    deliveries = [producer.produce(topic_partition, value) for value in values]
    producer.flush(WAIT_S)
    return deliveries


def commit(producer: TransactionalProducer, topic_partition: TopicPartition, *values: bytes) -> list[int]:
    """A whole transaction; returns the delivered offsets."""
    producer.begin()
    deliveries = send(producer, topic_partition, *values)
    producer.commit(WAIT_S)
    return [delivery.offset for delivery in deliveries]


def abort(producer: TransactionalProducer, topic_partition: TopicPartition, *values: bytes) -> None:
    producer.begin()
    send(producer, topic_partition, *values)
    producer.abort(WAIT_S)
