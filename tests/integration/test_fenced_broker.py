"""The only broker of a cluster names no broker while it is fenced. A client that asks it then may know no
broker for as long as it lives: in three runs 3, 14 and 8 of 24 clients of librdkafka 2.16 were lost so.

What the test proves: after such moments all readers go on, whatever became of their clients. What it does not
prove: that a client was lost and replaced. How many are lost depends on the moment at which each of them
asks, and a run in which none is lost passes as well. That a reader replaces a lost client, and goes on where
it was, is proven with clients that are always lost, in
tests/unit/stream_runtime/kafka/test_replaced_consumers.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest

from tests.faults.kafka_proxy import KafkaProxy
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.ids import SystemIds
from tidemark.stream_runtime.kafka.confluent import ConfluentKafkaClient
from tidemark.stream_runtime.kafka.errors import KafkaUnavailableError
from tidemark.stream_runtime.kafka.model import TopicSpec
from tidemark.stream_runtime.kafka.ports import PartitionReader, TopicPartition
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka
from tidemark.stream_runtime.retry import Deadline

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
READERS = 24
FENCED_S = (0.3, 4.0, 1.0, 2.0)
"""So long the clients ask in vain, round by round; when they ask decides which of them lose all brokers."""
WAIT_S = 180.0


@pytest.fixture
def proxy(kafka: EmbeddedKafka) -> Iterator[KafkaProxy]:
    made = KafkaProxy(kafka.bootstrap_servers)
    yield made
    made.close()


def test_readers_go_on_after_metadata_without_brokers(kafka: EmbeddedKafka, proxy: KafkaProxy) -> None:
    place = TopicPartition(f"fenced-{SystemIds().uuid()}", 0)
    direct = ConfluentKafkaClient({"bootstrap.servers": kafka.bootstrap_servers})
    with closing(direct.admin()) as admin:
        admin.create_topics([TopicSpec(place.topic, 1)])
    feeder = direct.plain_producer()
    client = ConfluentKafkaClient({"bootstrap.servers": proxy.bootstrap_servers})
    readers = [client.partition_reader(follows=bool(number % 2)) for number in range(READERS)]
    try:
        for reader in readers:
            reader.assign({place: 0})
        for end, fenced_s in enumerate(FENCED_S, 1):
            feeder.produce(place.topic, b"", partition=0)
            feeder.flush()
            read_to(readers, place, end)
            seem_fenced(proxy, readers, fenced_s)
        feeder.produce(place.topic, b"", partition=0)
        feeder.flush()
        read_to(readers, place, len(FENCED_S) + 1)
    finally:
        for reader in readers:
            reader.close()
        feeder.close()


def seem_fenced(proxy: KafkaProxy, readers: Sequence[PartitionReader], fenced_s: float) -> None:
    proxy.is_fenced = True
    for link in proxy.links:
        link.cut()
    deadline = Deadline(SystemClock(), fenced_s)
    while not deadline.is_over:
        poll_all(readers)
    proxy.is_fenced = False


def read_to(readers: Sequence[PartitionReader], place: TopicPartition, end: int) -> None:
    deadline = Deadline(SystemClock(), WAIT_S)
    while behind := [reader for reader in readers if reader.position(place) < end]:
        deadline.check(f"{len(behind)} of {len(readers)} readers to come to {end}")
        poll_all(behind)


def poll_all(readers: Sequence[PartitionReader]) -> None:
    for reader in readers:
        try:
            reader.poll(10, 0.01)
        except KafkaUnavailableError:
            continue
