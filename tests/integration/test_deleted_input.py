"""Input that a real broker deleted unread: two lanes stop, the others go on, a skip goes behind it."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.unit.index_assigner.shuffle_world import order, rules
from tidemark.epoch_protocol.stopped_lanes import SkipOrder, StopReason
from tidemark.index_assigner.input.positions import earliest
from tidemark.index_assigner.shuffle.keyed_rows import RecordKeyer
from tidemark.index_assigner.shuffle.sharded_input_source import ShardedInputSource
from tidemark.index_assigner.shuffle.stage import ShuffleSettings, ShuffleWork
from tidemark.index_assigner.slots.stage_work import Budget
from tidemark.ledger_client.topics import TopicNames
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.ids import SystemIds
from tidemark.stream_runtime.kafka.confluent import ConfluentKafkaClient
from tidemark.stream_runtime.kafka.ports import TopicPartition, TopicSpec
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka

pytestmark = [pytest.mark.kafka]
PLENTY = Budget(1_000_000, 1 << 30)
NAMES = TopicNames("orders")
PARTITIONS, RECORDS, READ, START = 3, 6, 1, 5


@pytest.fixture
def client(kafka: EmbeddedKafka) -> ConfluentKafkaClient:
    return ConfluentKafkaClient({"bootstrap.servers": kafka.bootstrap_servers})


@pytest.fixture
def topic(client: ConfluentKafkaClient) -> str:
    """Partitions 1 and 2 begin at offset 5, and are read up to offset 1."""
    topic = f"deleted-{SystemIds().uuid()[:8]}"
    admin, producer = client.admin(), client.plain_producer()
    admin.create_topics([TopicSpec(topic, PARTITIONS)])
    for partition in range(PARTITIONS):
        values = [(None, order(f"p{partition}-{number}")) for number in range(RECORDS)]
        producer.produce_batch(topic, values, partition)
    producer.flush()
    lost = {TopicPartition(topic, 1): START, TopicPartition(topic, 2): START}
    assert admin.delete_records(lost) == lost
    producer.close()
    admin.close()
    return topic


def until(holds: Callable[[], object], turn: Callable[[], None]) -> None:
    end = time.monotonic() + 180.0
    while not holds():
        assert time.monotonic() < end
        turn()


def test_the_shuffle_stage(client: ConfluentKafkaClient, topic: str) -> None:
    settings = ShuffleSettings(NAMES, earliest, "s", 1 << 20, 1 << 20, 1 << 20)
    work = ShuffleWork(client, RecordKeyer(rules()), settings, SystemClock())
    reached: dict[str, int] = {}

    asked: list[SkipOrder] = []

    def turn() -> None:
        work.skip(asked)
        if work.gather(PLENTY, 0.2).records:
            prepared = work.prepare("nonce")
            reached.update({each.lane: each.next for each in prepared.consumed} if prepared else {})

    work.start({f"{topic}:{partition}": READ for partition in range(PARTITIONS)})
    until(lambda: reached and len(work.stopped_lanes()) == 2, turn)
    assert reached == {f"{topic}:0": RECORDS}
    assert {(each.partition, each.offset, each.reason) for each in work.stopped_lanes()} == {
        (1, READ, StopReason.DELETED),
        (2, READ, StopReason.DELETED),
    }
    asked.append(SkipOrder("asked", f"{topic}:2", READ))
    until(lambda: reached.get(f"{topic}:2") == RECORDS, turn)
    ((_, first, last, failure),) = work.skip_results()
    assert (first, last, failure) == (READ, START - 1, "")
    assert [each.partition for each in work.stopped_lanes()] == [1]
    work.close()


def test_input_partitioned_by_shard(client: ConfluentKafkaClient, topic: str) -> None:
    source = ShardedInputSource(
        client, topic, RecordKeyer(rules()), earliest, NAMES.dead_letter, 1 << 20, SystemClock()
    )
    reached: dict[str, int] = {}

    asked: list[SkipOrder] = []

    def turn() -> None:
        source.skip(asked)
        reached.update({each.lane: each.next for each in source.poll(PLENTY, 0.2)})

    for lane in range(PARTITIONS):
        source.assign(str(lane), READ)
    until(lambda: reached and len(source.stopped_lanes()) == 2, turn)
    assert reached == {"0": RECORDS}
    assert {(each.lane, each.offset, each.reason) for each in source.stopped_lanes()} == {
        ("1", READ, StopReason.DELETED),
        ("2", READ, StopReason.DELETED),
    }
    asked.append(SkipOrder("asked", "2", READ))
    until(lambda: reached.get("2") == RECORDS, turn)
    assert [each.lane for each in source.stopped_lanes()] == ["1"]
    source.close()
