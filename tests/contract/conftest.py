"""Both brokers for the contract tests of the Kafka ports, and both with faults; and every storage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testing.clock import ManualClock
from testing.faulty_storage import FaultyStorage
from testing.ids import SeededIds
from testing.kafka import MemoryBroker, MemoryKafkaClient
from testing.memory_storage import InMemoryStorage
from tests.contract.fault_cluster import (
    HASTY_TIMEOUT_S,
    TRANSACTION_TIMEOUT_S,
    FaultCluster,
    MemoryFaultCluster,
    ProxiedFaultCluster,
)
from tests.contract.kafka_cluster import KafkaCluster
from tests.faults.kafka_proxy import KafkaProxy
from tests.own_ports import with_own_ports
from tidemark.hudi_format.storage.base import FolderStorage
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.ids import SystemIds
from tidemark.stream_runtime.kafka.confluent import ConfluentKafkaClient, transactional_producer
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka
from tidemark.stream_runtime.platform.jars import KAFKA, ensure_jars
from tidemark.stream_runtime.platform.java import JavaRuntime

MESSAGE_BYTES_MAX = 2_000_000
_TIMEOUTS_S = (TRANSACTION_TIMEOUT_S, HASTY_TIMEOUT_S)


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
        unique, servers = f"contract-{SystemIds().uuid()[:8]}", kafka.bootstrap_servers
        made = KafkaCluster(real, SystemClock(), unique, bootstrap_servers=servers)
    yield made
    made.close()


@pytest.fixture(scope="session")
def own_kafka(java: JavaRuntime, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """A broker that may be killed."""
    folder = with_own_ports(tmp_path_factory.mktemp("faults"))
    with EmbeddedKafka(folder, ensure_jars(KAFKA.name, java), java.home) as broker:
        yield broker


@pytest.fixture(params=["memory", pytest.param("confluent", marks=pytest.mark.kafka)])
def fault_cluster(request: pytest.FixtureRequest) -> Iterator[FaultCluster]:
    """A cluster whose faults can be ordered."""
    if request.param == "memory":
        clock = ManualClock()
        broker = MemoryBroker(clock, SeededIds(1))
        calm, hasty = (MemoryKafkaClient(broker, transaction_timeout_s=each) for each in _TIMEOUTS_S)
        made: FaultCluster = MemoryFaultCluster(calm, clock, "memory", broker, hasty=hasty)
    else:
        kafka: EmbeddedKafka = request.getfixturevalue("own_kafka")
        proxy = KafkaProxy(kafka.bootstrap_servers)
        section = {"bootstrap.servers": proxy.bootstrap_servers}
        real, hasty_real = (
            ConfluentKafkaClient(section, transaction_timeout_ms=int(each * 1000)) for each in _TIMEOUTS_S
        )
        name = f"faults-{SystemIds().uuid()[:8]}"
        made = ProxiedFaultCluster(real, SystemClock(), name, hasty=hasty_real, proxy=proxy, kafka=kafka)
    yield made
    made.close()


@pytest.fixture
def unhurried_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """No end is a slow one on a slow machine: only what the test orders makes producers doubtful."""
    monkeypatch.setattr(transactional_producer, "SLOW_END_S", 300.0)


@pytest.fixture(params=["local", "memory", "faulty-over-memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> FolderStorage:
    make: dict[str, Callable[[], FolderStorage]] = {
        "local": lambda: LocalStorage(tmp_path / "table"),
        "memory": InMemoryStorage,
        "faulty-over-memory": lambda: FaultyStorage(InMemoryStorage()),
    }
    return make[request.param]()
