"""A table's topics as the broker takes them: created from a configuration, and used up to the size limit."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from tidemark.config import TableConfigFile, load_config
from tidemark.ledger_client.topics import TopicNames, input_topic_specs, topic_specs
from tidemark.stream_runtime.ids import SystemIds
from tidemark.stream_runtime.kafka.confluent import ConfluentKafkaClient
from tidemark.stream_runtime.kafka.errors import MessageTooLargeError
from tidemark.stream_runtime.kafka.ledger_transaction import (
    LedgerTransaction,
    OutgoingMessage,
    TransactionOutcome,
)
from tidemark.stream_runtime.kafka.ports import TopicPartition
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka

pytestmark = pytest.mark.kafka


@pytest.fixture
def config(tmp_path: Path) -> TableConfigFile:
    (tmp_path / "s.avsc").write_text(json.dumps({"type": "record", "fields": [{"name": "k"}]}))
    (tmp_path / "c.yaml").write_text(
        f"table: {{name: t-{SystemIds().uuid()[:13]}, path: ./t, record_key: [k], schema: s.avsc}}\n"
        f"input: {{topics: [in-{SystemIds().uuid()[:13]}], partitions: 3}}\n"
        "kafka: {bootstrap.servers: embedded}\nstate: {path: ./state}\n"
    )
    return load_config(tmp_path / "c.yaml", {})


def test_topics_of_a_configuration_take_messages_up_to_the_limit(
    kafka: EmbeddedKafka, config: TableConfigFile
):
    client = ConfluentKafkaClient.from_config(config, kafka.bootstrap_servers)
    admin = client.admin()
    for _ in range(2):
        admin.create_topics([*topic_specs(config), *input_topic_specs(config)])
    names = TopicNames(config.table.name)
    for spec in [*topic_specs(config), *input_topic_specs(config)]:
        described = admin.describe(spec.name)
        assert described.partitions == spec.partitions
        assert {key: described.config[key] for key in spec.config} == spec.config

    # The limit counts the message with its framing, so a value of exactly that size is too large.
    limit = config.limits.message_bytes
    noise = Random(1).randbytes(limit - 1_000)
    data = TopicPartition(names.data, 2)
    producer = client.producer(f"{config.table.name}-assigner-0")
    producer.init()
    transaction = LedgerTransaction(producer, names.ledger_partition)
    result = transaction.run(b"begun", [OutgoingMessage(data, noise)], lambda offsets: repr(offsets).encode())
    assert result.outcome is TransactionOutcome.COMMITTED
    (message,) = client.range_reader().read(data, result.offsets[0], result.offsets[0])
    assert message.value == noise
    reader = client.partition_reader()
    reader.assign({data: 0})
    assert [len(message.value or b"") for message in reader.poll(10, 10.0)] == [len(noise)]
    producer.begin()
    with pytest.raises(MessageTooLargeError):
        producer.produce(data, bytes(limit + 1))
    producer.abort()
    reader.close()
    producer.close()
