"""librdkafka's transactions carry no epoch of their own: a delayed end of one ends the next. Our two defences
hold.

A proxy holds one EndTxn request back and cuts the connection. librdkafka connects again, sends it again and
reports success; the held request is let go in the middle of the next transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from stream_runtime.clock import SystemClock
from stream_runtime.ids import SystemIds
from stream_runtime.kafka.confluent import ConfluentKafkaClient
from stream_runtime.kafka.confluent.transactional_producer import ConfluentTransactionalProducer
from stream_runtime.kafka.ledger_transaction import (
    LedgerTransaction,
    OutgoingMessage,
    TransactionOutcome,
    TransactionResult,
)
from stream_runtime.kafka.ports import Isolation, TopicPartition, TopicSpec
from stream_runtime.platform.embedded_kafka import EmbeddedKafka
from stream_runtime.platform.jars import KAFKA, ensure_jars
from stream_runtime.platform.java import JavaRuntime
from stream_runtime.retry import Deadline
from tests.integration.kafka_proxy import KafkaProxy

pytestmark = pytest.mark.kafka

OK = 0
_FENCED = {47, 90}
"""INVALID_PRODUCER_EPOCH, PRODUCER_FENCED"""


class Scene:
    """A broker behind a proxy, with a ledger and a data topic of the test's own."""

    def __init__(self, proxy: KafkaProxy, client: ConfluentKafkaClient) -> None:
        self.proxy = proxy
        self.client = client
        unique = SystemIds().uuid()[:13]
        self.name = f"torn-{unique}"
        self.ledger = TopicPartition(f"ledger-{unique}", 0)
        self.data = TopicPartition(f"data-{unique}", 0)
        client.admin().create_topics([TopicSpec(self.ledger.topic, 1), TopicSpec(self.data.topic, 1)])

    def producer(self) -> ConfluentTransactionalProducer:
        producer = self.client.producer(self.name)
        producer.init()
        return producer

    def run(
        self,
        producer: ConfluentTransactionalProducer,
        value: bytes,
        reached: Callable[[str], None] = lambda step: None,
    ) -> TransactionResult:
        transaction = LedgerTransaction(producer, self.ledger, reached=reached)
        messages = [OutgoingMessage(self.data, value)]
        return transaction.run(b"begun " + value, messages, lambda _: b"entry " + value)

    def visible(self, topic_partition: TopicPartition) -> list[bytes | None]:
        """All that a new reader sees before a message that we commit behind it."""
        sentinel = self.client.producer(f"{self.name}-sentinel")
        sentinel.init()
        sentinel.begin()
        delivery = sentinel.produce(topic_partition, b"sentinel")
        sentinel.flush()
        sentinel.commit()
        start = self.client.admin().start_offset(topic_partition)
        messages = self.client.range_reader().read(topic_partition, start, delivery.offset)
        return [message.value for message in messages[:-1] if message.value != b"sentinel"]


@pytest.fixture(scope="module")
def proxied(java: JavaRuntime, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KafkaProxy, str]]:
    proxy = KafkaProxy()
    advertised = f"127.0.0.1:{proxy.port}"
    settings = {"advertised.listeners": f"PLAINTEXT://{advertised}"}
    kafka = EmbeddedKafka(
        tmp_path_factory.mktemp("torn"), ensure_jars(KAFKA.name, java), java.home, settings=settings
    )
    host, _, port = kafka.bootstrap_servers.rpartition(":")
    proxy.upstream = (host, int(port))
    with kafka:
        assert kafka.bootstrap_servers == f"{host}:{port}"
        yield proxy, advertised
    proxy.close()


@pytest.fixture
def scene(proxied: tuple[KafkaProxy, str]) -> Scene:
    proxy, address = proxied
    return Scene(proxy, ConfluentKafkaClient({"bootstrap.servers": address}))


def first_transaction(scene: Scene, producer: ConfluentTransactionalProducer, commits: bool) -> None:
    """Ends with its EndTxn held back, and sent again by the client."""
    if commits:
        hold = {"commit": scene.proxy.hold_next_end}
        result = scene.run(producer, b"one", lambda step: hold.get(step, lambda: None)())
        assert result.outcome is TransactionOutcome.COMMITTED
    else:
        producer.begin()
        producer.produce(scene.data, b"one")
        producer.flush()
        scene.proxy.hold_next_end()
        producer.abort()
    assert scene.proxy.held.is_set()


@pytest.mark.parametrize("commits", [True, False], ids=["late commit", "late abort"])
def test_lost_connection_at_the_end_makes_doubtful_and_a_new_producer_disarms_the_held_request(
    scene: Scene, commits: bool
):
    producer = scene.producer()
    first_transaction(scene, producer, commits)
    assert producer.doubtful
    producer.close()
    successor = scene.producer()
    codes: list[int] = []
    result = scene.run(
        successor, b"two", lambda step: codes.append(scene.proxy.release()) if step == "entry" else None
    )
    assert codes[0] in _FENCED
    assert result.outcome is TransactionOutcome.COMMITTED
    assert scene.visible(scene.data) == ([b"one"] if commits else []) + [b"two"]


def release_and_await_marker(scene: Scene) -> int:
    """Lets the held request go, and returns when its marker has reached the ledger."""
    admin = scene.client.admin()
    end = admin.end_offset(scene.ledger, Isolation.READ_UNCOMMITTED)
    code = scene.proxy.release()
    deadline = Deadline(SystemClock(), 10.0)
    while admin.end_offset(scene.ledger, Isolation.READ_COMMITTED) <= end:
        deadline.check("the marker in the ledger")
    return code


def entries_after_another_transaction(scene: Scene) -> list[bytes]:
    """All entries of the ledger once a successor has committed one."""
    again = scene.run(scene.producer(), b"three")
    assert again.outcome is TransactionOutcome.COMMITTED
    return [
        value for value in scene.visible(scene.ledger) if value is not None and value.startswith(b"entry")
    ]


@pytest.mark.parametrize("commits", [True, False], ids=["late commit", "late abort"])
@pytest.mark.parametrize("step", ["batches", "entry"])
def test_entry_behind_a_leaked_end_is_refused(scene: Scene, commits: bool, step: str):
    producer = scene.producer()
    first_transaction(scene, producer, commits)
    codes: list[int] = []
    result = scene.run(
        producer,
        b"two",
        lambda reached: codes.append(release_and_await_marker(scene)) if reached == step else None,
    )
    # The held request did end the second transaction: the fault is real.
    assert codes == [OK]
    assert result.outcome is not TransactionOutcome.COMMITTED
    assert result.replace_producer
    producer.close()
    before = [b"entry one"] if commits else []
    assert entries_after_another_transaction(scene) == [*before, b"entry three"]
    leaked = [b"two"] if commits and step == "entry" else []
    assert scene.visible(scene.data) == ([b"one"] if commits else []) + leaked + [b"three"]


@pytest.mark.parametrize("commits", [True, False], ids=["late commit", "late abort"])
@pytest.mark.parametrize("step", ["entry", "commit"])
def test_entry_in_front_of_a_leaked_marker_shares_its_fate_with_its_batches(
    scene: Scene, commits: bool, step: str
):
    producer = scene.producer()
    first_transaction(scene, producer, commits)
    codes: list[int] = []
    result = scene.run(
        producer, b"two", lambda reached: codes.append(scene.proxy.release()) if reached == step else None
    )
    assert codes == [OK]
    assert result.replace_producer
    if not commits:
        assert result.outcome is not TransactionOutcome.COMMITTED
    elif step == "commit":
        assert result.outcome is TransactionOutcome.COMMITTED
    producer.close()
    named = b"entry two" in entries_after_another_transaction(scene)
    # Whoever wins the race between marker and entry: what is reported is so, and what is named is there.
    assert named is (result.outcome is TransactionOutcome.COMMITTED)
    assert b"two" in scene.visible(scene.data) or not named
