"""Both brokers for the contract tests of the Kafka ports."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stream_runtime.clock import ManualClock, SystemClock
from stream_runtime.ids import SeededIds, SystemIds
from stream_runtime.kafka.confluent import ConfluentKafkaClient
from stream_runtime.kafka.memory import MemoryBroker, MemoryKafkaClient
from tests.contract.kafka_cluster import KafkaCluster

MESSAGE_BYTES_MAX = 2_000_000


@pytest.fixture(params=["memory", pytest.param("confluent", marks=pytest.mark.kafka)])
def cluster(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    if request.param == "memory":
        clock = ManualClock()
        broker = MemoryBroker(clock, SeededIds(1))
        client = MemoryKafkaClient(broker, message_bytes_max=MESSAGE_BYTES_MAX)
        made = KafkaCluster(client, clock, "memory", broker)
    else:
        kafka = request.getfixturevalue("kafka")
        real = ConfluentKafkaClient(
            {"bootstrap.servers": kafka.bootstrap_servers}, message_bytes_max=MESSAGE_BYTES_MAX
        )
        made = KafkaCluster(real, SystemClock(), f"contract-{SystemIds().uuid()[:8]}")
    yield made
    made.close()
