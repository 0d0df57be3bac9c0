"""A producer whose user may not write to a topic, as when a tool sets ACLs anew: it says so."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import Authority
from tests.secured_kafka import Grant, SecuredKafka
from tidemark.stream_runtime.kafka.confluent.client import ConfluentKafkaClient
from tidemark.stream_runtime.kafka.ports import KafkaConfigError, KafkaError, TopicPartition, TopicSpec
from tidemark.stream_runtime.platform.java import JavaRuntime

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

PLACE = TopicPartition("decisions", 0)
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


def test_a_producer_that_may_begin_and_not_write_says_which_right_it_lacks(
    tmp_path: Path, java: JavaRuntime
) -> None:
    """The broker refuses the transaction, and then no message is sent: what it refused is in no report."""
    authority = Authority(tmp_path / "pki")
    own = authority.issue("coordinator")
    kafka = SecuredKafka(tmp_path / "broker", java, authority)
    with kafka:
        plain = ConfluentKafkaClient({"bootstrap.servers": kafka.bootstrap_servers})
        plain.admin().create_topics([TopicSpec(PLACE.topic, 1)])
        kafka.add_user(
            "coordinator",
            "hush-hush",
            [
                Grant("topic", PLACE.topic, ("DESCRIBE", "READ")),
                Grant("transactional_id", "t-", ("WRITE",), prefixed=True),
            ],
        )
        client = ConfluentKafkaClient(
            {
                "bootstrap.servers": kafka.secured_servers,
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": "coordinator",
                "sasl.password": "hush-hush",
                "ssl.ca.location": str(authority.ca),
                "ssl.certificate.location": str(own.certificate),
                "ssl.key.location": str(own.key),
            }
        )

        def written() -> None:
            producer = client.producer("t-coordinator")
            try:
                producer.init()
                producer.begin()
                producer.produce(PLACE, b"an entry")
                producer.flush()
                producer.commit()
            finally:
                producer.close()

        soon(lambda: client.producer("t-first").init())
        for _ in range(2):
            with pytest.raises(KafkaConfigError, match=r"TOPIC_AUTHORIZATION_FAILED.*lacks an ACL"):
                written()
        kafka.allow("coordinator", [Grant("topic", PLACE.topic, ("WRITE",))])
        soon(written)
        reader = plain.range_reader()
        assert [message.value for message in reader.read(PLACE, 0, 0, WAIT_S)] == [b"an entry"]
        reader.close()
