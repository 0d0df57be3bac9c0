"""Whose user may not write to a topic any more, as when a tool sets ACLs anew, says so."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import Authority
from tests.secured_kafka import Grant, SecuredKafka
from tidemark.commit_coordinator.commit.decisions_log import DecisionsLog
from tidemark.epoch_protocol.entries import TableLocation
from tidemark.ledger_client.fold_reader import FoldReader
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.kafka.confluent.client import ConfluentKafkaClient
from tidemark.stream_runtime.kafka.ports import KafkaConfigError, KafkaError, TopicPartition, TopicSpec
from tidemark.stream_runtime.platform.java import JavaRuntime

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

DECISIONS, LEDGER = TopicPartition("t.epochs", 0), TopicPartition("t.ledger", 0)
LACKS = r"TOPIC_AUTHORIZATION_FAILED.*lacks an ACL"
WAIT_S = 60.0


def soon(action: Callable[[], Any]) -> Any:
    """As soon as the broker knows the user and what it may do."""
    deadline_s = time.monotonic() + WAIT_S
    while True:
        try:
            return action()
        except KafkaError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.2)


class Refused:
    """A broker, and a client of a user that may read decisions and ledger, and begin transactions."""

    def __init__(self, folder: Path, java: JavaRuntime) -> None:
        self._authority = Authority(folder / "pki")
        self.kafka = SecuredKafka(folder / "broker", java, self._authority)

    def begin(self) -> None:
        """Once the broker runs."""
        own = self._authority.issue("coordinator")
        self.plain = ConfluentKafkaClient({"bootstrap.servers": self.kafka.bootstrap_servers})
        self.plain.admin().create_topics([TopicSpec(place.topic, 1) for place in (DECISIONS, LEDGER)])
        grants = [Grant("topic", place.topic, ("DESCRIBE", "READ")) for place in (DECISIONS, LEDGER)]
        grants.append(Grant("group", "tidemark-", ("DESCRIBE",), prefixed=True))
        grants.append(Grant("transactional_id", "t-", ("WRITE",), prefixed=True))
        self.kafka.add_user("coordinator", "hush-hush", grants)
        self.client = ConfluentKafkaClient(
            {
                "bootstrap.servers": self.kafka.secured_servers,
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": "coordinator",
                "sasl.password": "hush-hush",
                "ssl.ca.location": str(self._authority.ca),
                "ssl.certificate.location": str(own.certificate),
                "ssl.key.location": str(own.key),
            }
        )
        soon(lambda: self.client.producer("t-first").init())

    def allow(self) -> None:
        self.kafka.allow("coordinator", [Grant("topic", DECISIONS.topic, ("WRITE",))])

    def write(self, number: int = 1) -> None:
        producer = self.client.producer("t-other")
        try:
            producer.init()
            producer.begin()
            for _ in range(number):
                producer.produce(DECISIONS, b"an entry")
            producer.flush()
            producer.commit()
        finally:
            producer.close()

    def claim(self) -> None:
        clock = SystemClock()
        reader = FoldReader(self.client, LEDGER.topic, DECISIONS.topic, lambda *_: b"", clock)
        log = DecisionsLog(self.client, DECISIONS.topic, "t-coordinator", reader, clock, lambda _: None)
        try:
            reader.catch_up()
            log.claim("owner", "ledger", TableLocation("/t", "1:1"))
        finally:
            log.close()
            reader.close()


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory, java: JavaRuntime) -> Iterator[Refused]:
    made = Refused(tmp_path_factory.mktemp("secured"), java)
    with made.kafka:
        made.begin()
        yield made


def test_who_may_begin_and_not_write_hears_which_right_is_lacking(refused: Refused) -> None:
    """The broker refuses the transaction, and then no message is sent: what it refused is in no report. Of
    many messages the last ones are refused by the client itself.
    """
    for number in (1, 1, 200_000):
        with pytest.raises(KafkaConfigError, match=LACKS):
            refused.write(number)
    # Kafka has no transaction to abort, and the client calls that a fatal error.
    with pytest.raises(KafkaConfigError, match=LACKS):
        refused.claim()
    refused.allow()
    soon(refused.write)
    reader = refused.plain.range_reader()
    assert [message.value for message in reader.read(DECISIONS, 0, 0, WAIT_S)] == [b"an entry"]
    reader.close()
