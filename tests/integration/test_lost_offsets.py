"""An answer about offsets or settings that gets lost is asked for again, and never taken for an offset."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.kafka_proxy import Fault, KafkaProxy
from tests.faults.kafka_wire import Api
from tidemark.stream_runtime.ids import SystemIds
from tidemark.stream_runtime.kafka.confluent import ConfluentKafkaClient
from tidemark.stream_runtime.kafka.ports import Isolation, TopicPartition, TopicSpec
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka

pytestmark = pytest.mark.kafka


@pytest.fixture
def proxy(kafka: EmbeddedKafka) -> Iterator[KafkaProxy]:
    made = KafkaProxy(kafka.bootstrap_servers)
    yield made
    made.close()


@pytest.mark.parametrize("fault", [Fault.LOSE_ANSWER_AND_CUT, Fault.DROP_AND_CUT, Fault.LOSE_ANSWER])
def test_offsets_and_settings_whose_answer_is_lost_are_asked_for_again(proxy: KafkaProxy, fault: Fault):
    client = ConfluentKafkaClient(
        {"bootstrap.servers": proxy.bootstrap_servers}, transaction_timeout_ms=2_000
    )
    admin, at = client.admin(), TopicPartition(f"offsets-{SystemIds().uuid()[:8]}", 0)
    admin.create_topics([TopicSpec(at.topic, 1)])
    producer = client.plain_producer()
    producer.produce_batch(at.topic, [(b"k", b"v")] * 3, 0)
    producer.flush()
    producer.close()
    asks = {
        3: lambda: admin.end_offset(at, Isolation.READ_UNCOMMITTED),
        0: lambda: admin.start_offset(at),
    }
    for offset, ask in asks.items():
        rule = proxy.on(Api.LIST_OFFSETS, fault)
        assert ask() == offset
        assert rule.happened.is_set()
    rule = proxy.on(Api.LIST_OFFSETS, fault)
    assert admin.offsets_for_time([at], 0) == {at: 0}
    assert rule.happened.is_set()
    rule = proxy.on(Api.DESCRIBE_CONFIGS, fault)
    assert admin.describe(at.topic).config["cleanup.policy"] == "delete"
    assert rule.happened.is_set()
    admin.close()
