"""A broker that is killed and comes back: what is acknowledged stays, what is ambiguous says so, clients go
on.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.own_ports import with_own_ports
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.kafka.confluent import ConfluentKafkaClient
from tidemark.stream_runtime.kafka.errors import KafkaUnavailableError
from tidemark.stream_runtime.kafka.ledger_transaction import (
    LedgerTransaction,
    OutgoingMessage,
    TransactionOutcome,
)
from tidemark.stream_runtime.kafka.ports import Message, TopicPartition, TopicSpec
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka
from tidemark.stream_runtime.platform.jars import KAFKA, ensure_jars
from tidemark.stream_runtime.platform.java import JavaRuntime
from tidemark.stream_runtime.retry import Deadline

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

_WAIT_S = 120.0
LEDGER, DATA = TopicPartition("ledger", 0), TopicPartition("data", 0)


@pytest.fixture
def own_kafka(java: JavaRuntime, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    folder = tmp_path_factory.mktemp("outage")
    with EmbeddedKafka(with_own_ports(folder), ensure_jars(KAFKA.name, java), java.home) as broker:
        yield broker


def test_killed_broker_at_commit_gives_unknown_and_the_ledger_tells_after_it_is_back(
    own_kafka: EmbeddedKafka,
):
    client = ConfluentKafkaClient(
        {"bootstrap.servers": own_kafka.bootstrap_servers}, transaction_timeout_ms=60_000
    )
    client.admin().create_topics([TopicSpec(LEDGER.topic, 1, 1), TopicSpec(DATA.topic, 1, 1)])
    reader = client.partition_reader()
    reader.assign({LEDGER: 0})
    producer = client.producer("assigner-0")
    producer.init()
    first = LedgerTransaction(producer, LEDGER, _WAIT_S, _WAIT_S).run(
        b"begun 1", [OutgoingMessage(DATA, b"1")], lambda _: b"entry 1"
    )
    assert first.outcome is TransactionOutcome.COMMITTED
    seen = read(reader, 2)

    def kill_at_commit(step: str) -> None:
        if step == "commit":
            own_kafka.kill()

    transaction = LedgerTransaction(producer, LEDGER, _WAIT_S, 2.0, kill_at_commit)
    second = transaction.run(b"begun 2", [OutgoingMessage(DATA, b"2")], lambda _: b"entry 2")
    assert second.outcome is TransactionOutcome.UNKNOWN
    assert second.replace_producer
    producer.close()
    with pytest.raises(KafkaUnavailableError):
        poll_until_it_raises(reader)

    own_kafka.start_node(1)
    successor = client.producer("assigner-0")
    successor.init(_WAIT_S)
    third = LedgerTransaction(successor, LEDGER, _WAIT_S, _WAIT_S).run(
        b"begun 3", [OutgoingMessage(DATA, b"3")], lambda _: b"entry 3"
    )
    assert third.outcome is TransactionOutcome.COMMITTED
    # The request cannot have reached a dead broker: the second transaction was aborted by the successor's
    # init.
    seen += read(reader, 2)
    assert [message.value for message in seen] == [b"begun 1", b"entry 1", b"begun 3", b"entry 3"]
    data = client.range_reader().read(DATA, 0, third.offsets[0])
    assert [message.value for message in data] == [b"1", b"3"]
    reader.close()
    successor.close()


def poll_until_it_raises(reader) -> None:
    deadline = Deadline(SystemClock(), _WAIT_S)
    while True:
        deadline.check("the reader's word that no broker is there")
        assert reader.poll(10, 0.2) == []


def read(reader, count: int) -> list[Message]:
    """Messages in order, whatever outages are reported meanwhile."""
    deadline = Deadline(SystemClock(), _WAIT_S)
    messages: list[Message] = []
    while len(messages) < count:
        deadline.check(f"{count} messages")
        try:
            messages += reader.poll(count - len(messages), 0.2)
        except KafkaUnavailableError:
            continue
    return messages
