"""Three brokers, three replicas, two in sync: leaders and coordinators die, freeze and move; nothing is lost.

Everything reaches the cluster through a proxy, which follows the brokers' addresses wherever leaders go.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.faults.kafka_proxy import OK, Fault, KafkaProxy
from tests.faults.kafka_wire import Api
from tests.integration.assign_world import ServedTable
from tests.integration.test_assign_service import Records, check, random_records
from tests.own_ports import with_own_ports
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.ids import SystemIds
from tidemark.stream_runtime.kafka.confluent import ConfluentKafkaClient
from tidemark.stream_runtime.kafka.confluent.admin import ConfluentAdmin
from tidemark.stream_runtime.kafka.errors import KafkaError
from tidemark.stream_runtime.kafka.ledger_transaction import (
    LedgerTransaction,
    OutgoingMessage,
    TransactionOutcome,
    TransactionResult,
)
from tidemark.stream_runtime.kafka.ports import Isolation, TopicPartition, TopicSpec
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka
from tidemark.stream_runtime.platform.jars import KAFKA, ensure_jars
from tidemark.stream_runtime.platform.java import JavaRuntime
from tidemark.stream_runtime.retry import Deadline

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
_log = logging.getLogger("tidemark.test")

COMMITTED, ABORTED, UNKNOWN = TransactionOutcome
_GOING_ON_S = 180.0
_PATIENCE_S = 120.0


class Cluster:
    """The brokers, and who of them leads what."""

    def __init__(self, kafka: EmbeddedKafka) -> None:
        self.kafka = kafka
        self._frozen: set[int] = set()

    def _topics(self) -> dict[str, Any]:
        """A frozen broker would keep a client waiting: each look is a new one, at a broker that answers."""
        servers = self.kafka.bootstrap_servers.split(",")
        awake = [address for node, address in enumerate(servers, start=1) if node not in self._frozen]
        admin = AdminClient({"bootstrap.servers": ",".join(awake), "log_level": 0})
        found: dict[str, Any] = admin.list_topics(timeout=60.0).topics
        return found

    def leader(self, topic_partition: TopicPartition) -> int:
        """A slow machine may leave the partition without one for a moment."""
        topic, partition = topic_partition
        deadline = Deadline(SystemClock(), 180.0)
        while (leader := int(self._topics()[topic].partitions[partition].leader)) < 1:
            deadline.check(f"a leader of {topic}")
            deadline.sleep(0.1)
        return leader

    def coordinator(self, transactional_id: str) -> int:
        """The leader of the id's partition of the transaction log: Java's hash of the string says which."""
        hashed = 0
        for character in transactional_id:
            hashed = (31 * hashed + ord(character)) & 0xFFFFFFFF
        topic = "__transaction_state"
        count = len(self._topics()[topic].partitions)
        return self.leader(TopicPartition(topic, (hashed & 0x7FFFFFFF) % count))

    def freeze(self, node: int) -> None:
        self._frozen.add(node)
        os.kill(self.kafka.pids[node], signal.SIGSTOP)

    def thaw(self, node: int) -> None:
        os.kill(self.kafka.pids[node], signal.SIGCONT)
        self._frozen.discard(node)

    def start(self, node: int) -> None:
        """Again, and waits until every replica is in sync, so that the next one may die."""
        self.kafka.start_node(node)
        deadline = Deadline(SystemClock(), 180.0)
        while not self._is_whole():
            deadline.check("all replicas in sync")
            deadline.sleep(0.1)

    def start_all(self) -> None:
        """Those that a test left dead."""
        for node in {1, 2, 3} - self.kafka.pids.keys():
            self.start(node)

    def _is_whole(self) -> bool:
        topics = self._topics().values()
        return all(len(each.isrs) == 3 for topic in topics for each in topic.partitions.values())


@pytest.fixture(scope="module")
def cluster(java: JavaRuntime, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("three")
    jars = ensure_jars(KAFKA.name, java)
    with EmbeddedKafka(with_own_ports(folder, 3), jars, java.home, nodes=3, heap_mb=160) as kafka:
        yield Cluster(kafka)


@pytest.fixture
def proxy(cluster: Cluster) -> Iterator[KafkaProxy]:
    cluster.start_all()
    made = KafkaProxy(cluster.kafka.bootstrap_servers)
    yield made
    made.close()


class Scene:
    """A ledger and a data topic, written by ledger transactions; a producer is replaced after any doubt."""

    def __init__(self, proxy: KafkaProxy) -> None:
        unique = SystemIds().uuid()[:8]
        self.name = f"slot-{unique}"
        self.ledger, self.data = (TopicPartition(f"{role}-{unique}", 0) for role in ("ledger", "data"))
        section = {"bootstrap.servers": proxy.bootstrap_servers}
        self.client = ConfluentKafkaClient(section, transaction_timeout_ms=int(_PATIENCE_S * 1000))
        admin = self.client.admin()
        admin.create_topics([TopicSpec(tp.topic, 1) for tp in (self.ledger, self.data)])
        admin.close()
        self.producer = self.new_producer()
        self.named: list[bytes] = []
        self.unknown: list[bytes] = []

    def new_producer(self):
        producer = self.client.producer(self.name)
        producer.init()
        return producer

    def admin_at(self, controller: int) -> ConfluentAdmin:
        """One that takes this broker for the controller: brokers name any of them that lives."""
        deadline = Deadline(SystemClock(), 180.0)
        admin = self.client.admin()
        while admin._admin.list_topics(timeout=60.0).controller_id != controller:
            deadline.check(f"broker {controller} as the controller")
            admin.close()
            admin = self.client.admin()
        return admin

    def run(
        self, value: bytes, reached: Callable[[str], None] = lambda _: None, timeout_s: float = 10.0
    ) -> TransactionResult:
        """`timeout_s` is for a flush and for an end: short where a broker is away."""
        transaction = LedgerTransaction(self.producer, self.ledger, timeout_s, timeout_s, reached)
        messages = [OutgoingMessage(self.data, value)]
        result = transaction.run(b"begun " + value, messages, lambda _: b"entry " + value)
        if result.outcome is COMMITTED:
            self.named.append(value)
        if result.outcome is UNKNOWN:
            self.unknown.append(value)
        return result

    def go_on(self, value: bytes) -> float:
        """The next transaction that commits, whatever it takes; returns after how many seconds."""
        started_s = time.monotonic()
        deadline = Deadline(SystemClock(), _GOING_ON_S)
        while True:
            deadline.check("a transaction that commits")
            try:
                self.producer.close()
                self.producer = self.new_producer()
            except KafkaError as error:
                _log.info("init: %s", error)
                continue
            if self.run(value).outcome is COMMITTED:
                return time.monotonic() - started_s

    def check(self) -> None:
        """What is named = what was reported committed, in order; data = what is named."""
        entries = [each.split()[1] for each in self._visible(self.ledger) if each.startswith(b"entry")]
        assert [each for each in entries if each not in self.unknown] == self.named
        assert len(entries) == len(set(entries))
        assert self._visible(self.data) == entries

    def _visible(self, topic_partition: TopicPartition) -> list[bytes]:
        admin, reader = self.client.admin(), self.client.partition_reader()
        end = admin.end_offset(topic_partition, Isolation.READ_UNCOMMITTED)
        reader.assign({topic_partition: 0})
        values: list[bytes] = []
        deadline = Deadline(SystemClock(), 180.0)
        while reader.position(topic_partition) < end:
            deadline.check(f"the end of {topic_partition.topic}")
            values += [message.value or b"" for message in reader.poll(100, 0.2)]
        reader.close()
        admin.close()
        return values


def at(step: str, act: Callable[[], object]) -> Callable[[str], None]:
    def reached(name: str) -> None:
        if name == step:
            act()

    return reached


class FlowingTable:
    """A whole table beside it: coordinator, both stages, writer."""

    def __init__(self, cluster: Cluster, proxy: KafkaProxy, folder: Path) -> None:
        name = f"three-{SystemIds().uuid()[:8]}"
        self.table = ServedTable(proxy, folder, name, direct=cluster.kafka)
        self.sent: Records = []
        self._dice = random.Random(1)

    def start(self) -> None:
        self.table.coordinator()
        self.table.assigner()
        self.table.writer()
        self.feed()
        self.table.wait_until_committed()

    def feed(self) -> None:
        records = random_records(self._dice, 300, True)
        self.table.produce(records)
        self.sent += records

    def check(self) -> None:
        check(self.table, self.sent)


@pytest.fixture
def flowing(cluster: Cluster, proxy: KafkaProxy, tmp_path: Path) -> Iterator[FlowingTable]:
    made = FlowingTable(cluster, proxy, tmp_path)
    yield made
    made.table.close()


def test_brokers_that_die_in_turn_cost_seconds_and_nothing_else(
    cluster: Cluster, proxy: KafkaProxy, flowing: FlowingTable
):
    flowing.start()
    names = flowing.table.names
    scene = Scene(proxy)
    assert scene.run(b"zero", timeout_s=_PATIENCE_S).outcome is COMMITTED
    admin = scene.client.admin()
    end = admin.end_offset(scene.ledger, Isolation.READ_UNCOMMITTED)
    kills: list[tuple[bytes, str, Callable[[], int]]] = [
        (b"one", "entry", lambda: cluster.leader(names.ledger_partition)),
        (b"two", "commit", lambda: cluster.coordinator(scene.name)),
    ]
    for value, step, victim in kills:
        node = victim()
        asking = scene.admin_at(node)
        assert asking.topic_states([scene.data.topic])
        flowing.feed()
        started_s = time.monotonic()
        result = scene.run(value, at(step, partial(cluster.kafka.kill, node)))
        ended_s = time.monotonic()
        assert result.replace_producer or result.outcome is COMMITTED
        scene.go_on(value + b"-again")
        went_on_s = time.monotonic()
        # Clients that knew the dead leader, or took the dead broker for the controller, find another one.
        assert asking.topic_states([scene.data.topic])
        ends, end = end, admin.end_offset(scene.ledger, Isolation.READ_UNCOMMITTED)
        assert end > ends
        flowing.table.wait_until_committed()
        _log.info(
            "killed at %s: %s after %.1f s (%s), the next one after %.1f s, the table's epochs after %.1f s",
            step,
            result.outcome.value,
            ended_s - started_s,
            result.error,
            went_on_s - started_s,
            time.monotonic() - started_s,
        )
        asking.close()
        flowing.feed()
        cluster.start(node)
        assert sorted(cluster.kafka.pids) == [1, 2, 3]
    admin.close()
    scene.check()
    flowing.check()


def test_late_commit_at_a_coordinator_that_was_frozen_and_replaced_has_no_effect(
    cluster: Cluster, proxy: KafkaProxy
):
    scene = Scene(proxy)
    assert scene.run(b"one", timeout_s=_PATIENCE_S).outcome is COMMITTED
    node = cluster.coordinator(scene.name)
    late = proxy.on(Api.END_TXN, Fault.HOLD_AND_CUT, transactional_id=scene.name)
    started_s = time.monotonic()
    codes: list[list[int]] = []

    def thaw_and_release() -> None:
        cluster.thaw(node)
        codes.append(late.release())

    try:
        result = scene.run(b"two", at("commit", partial(cluster.freeze, node)))
        ended_s = time.monotonic()
        late.wait()
        scene.go_on(b"three")
        _log.info(
            "frozen at commit: %s after %.1f s (%s), the next one after %.1f s",
            result.outcome.value,
            ended_s - started_s,
            result.error,
            time.monotonic() - started_s,
        )
        assert cluster.coordinator(scene.name) != node
        assert scene.run(b"four", at("entry", thaw_and_release), _PATIENCE_S).outcome is COMMITTED
    finally:
        cluster.thaw(node)
    _log.info("the old coordinator, thawed, answered %s to the late commit", codes)
    assert codes != [[OK]]
    scene.go_on(b"five")
    scene.check()
