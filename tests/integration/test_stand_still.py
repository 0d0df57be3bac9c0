"""What a failed round of the kill campaign tells of Kafka: who holds a transaction open, and where."""

from __future__ import annotations

import re

import pytest

from tests.chaos.cluster import TABLE
from tests.chaos.stand_still import kafka_now
from tidemark.stream_runtime.ids import SystemIds
from tidemark.stream_runtime.kafka.confluent import ConfluentKafkaClient
from tidemark.stream_runtime.kafka.model import TopicSpec
from tidemark.stream_runtime.kafka.ports import TopicPartition
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka

pytestmark = pytest.mark.kafka


def test_an_open_transaction_is_told_with_its_producer_and_its_place(kafka: EmbeddedKafka):
    topic, identity = f"{TABLE}.{SystemIds().uuid()}", SystemIds().uuid()
    client = ConfluentKafkaClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin, producer = client.admin(), client.producer(identity)
    try:
        admin.create_topics([TopicSpec(topic, 2)])
        producer.init()
        producer.begin()
        producer.produce(TopicPartition(topic, 0), b"committed")
        producer.commit()
        producer.begin()
        producer.produce(TopicPartition(topic, 0), b"open")
        producer.flush()
        said = kafka_now(kafka.bootstrap_servers)
        producer.abort()
    finally:
        producer.close()
        admin.close()
    (number,) = re.findall(f"{identity}: Ongoing, producer ([0-9]+)", said)
    assert f"{topic}:0: 2 of 3 can be read" in said
    assert f"{topic}:0: open since offset 2 by producer {number}, epoch 0" in said
    assert f"{topic}:1: open" not in said
