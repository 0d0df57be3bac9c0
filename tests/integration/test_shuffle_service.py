"""The shuffle stage as a service: real Kafka, real coordinator, its own gRPC, table and topics."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from epoch_protocol.entries import BatchShuffled, Stage
from epoch_protocol.fold import Verdict
from index_assigner.errors import SetupError
from index_assigner.failpoints import AssignerFailpoint
from index_assigner.shuffle.keyed_source import Budget
from index_assigner.shuffle.keyed_topic_source import KeyedTopicSource
from stream_runtime.failpoint import FailpointHitError
from stream_runtime.ids import SystemIds
from stream_runtime.kafka.ports import OFFSET_BEGINNING, Isolation, TopicPartition, TopicSpec
from stream_runtime.platform.broker_files import free_ports
from stream_runtime.platform.embedded_kafka import EmbeddedKafka
from tests.integration.service_threads import Running, ServiceThreads

pytestmark = pytest.mark.kafka

SCHEMA = {
    "type": "record",
    "name": "orders",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "day", "type": "string"},
        {"name": "at", "type": "long"},
    ],
}


class Table(ServiceThreads):
    def __init__(self, kafka: EmbeddedKafka, folder: Path, name: str) -> None:
        self.input = f"{name}-in"
        coordinator, metrics = free_ports(2, SystemIds().random())
        (folder / "orders.avsc").write_text(json.dumps(SCHEMA))
        (folder / "orders.yaml").write_text(
            f"""
table:
  name: {name}
  path: ./warehouse
  record_key: [id]
  partition: [day]
  ordering: at
  schema: orders.avsc
  index: {{shards: 4, lanes: 2}}
input: {{topics: [{self.input}], partitions: 4}}
kafka: {{bootstrap.servers: "{kafka.bootstrap_servers}"}}
state: {{path: ./state}}
services: {{coordinator: "127.0.0.1:{coordinator}", metrics: "127.0.0.1:{metrics}"}}
limits: {{transaction_interval: 50ms, transaction_records: 2000, transaction_timeout: 2s}}
"""
        )
        super().__init__(folder / "orders.yaml")
        self.sent: list[str] = []
        self.bad = 0

    def shuffler(self, place: AssignerFailpoint | None = None, nth: int = 1) -> Running:
        return self.assigner(Stage.SHUFFLE, place=place, nth=nth)

    def produce(self, count: int) -> None:
        producer = self.client.plain_producer()
        for partition in range(4):
            records: list[tuple[bytes | None, bytes | None]] = []
            for _ in range(count // 4):
                key = f"{partition}-{len(self.sent)}"
                self.sent.append(key)
                value = json.dumps({"id": key, "day": f"d{len(self.sent) % 7}", "at": len(self.sent)})
                records.append((None, value.encode()))
            records.append((None, b"{broken"))
            self.bad += 1
            producer.produce_batch(self.input, records, partition)
        producer.flush()
        producer.close()

    def create_input(self) -> None:
        admin = self.client.admin()
        admin.create_topics([TopicSpec(self.input, 4, 1)])
        admin.close()

    def wait_until_shuffled(self, timeout_s: float = 60.0) -> list[BatchShuffled]:
        """Counting entries, once they cover all that was sent."""
        folds = self.fold_reader()
        counted: list[BatchShuffled] = []
        wanted = len(self.sent) + self.bad
        end = time.monotonic() + timeout_s
        folds.start()
        while sum(entry.records for entry in counted) < wanted:
            assert time.monotonic() < end, (
                f"{sum(e.records for e in counted)} of {wanted} after {timeout_s} s"
            )
            for applied in folds.poll(0.1):
                if isinstance(applied.entry, BatchShuffled) and applied.verdict is Verdict.COUNTS:
                    counted.append(applied.entry)
        folds.close()
        return counted

    def keyed(self) -> list[str]:
        folds = self.fold_reader()
        folds.start()
        folds.catch_up()
        source = KeyedTopicSource(
            self.client, self.names.keyed, folds, self.names.ledger_partition, 1 << 25, 1 << 20
        )
        keys: list[str] = []
        for lane in range(2):
            source.assign(str(lane), 0)
        idle_from = time.monotonic()
        while time.monotonic() - idle_from < 2.0:
            folds.poll(0.0)
            for slice_ in source.poll(Budget(100_000, 1 << 24), 0.1):
                idle_from = time.monotonic()
                for batch in slice_.batches:
                    keys += batch.column("_tm_key").to_pylist()
        source.close()
        folds.close()
        return keys

    def dead_letters(self) -> int:
        reader = self.client.partition_reader(Isolation.READ_COMMITTED)
        reader.assign({TopicPartition(self.names.dead_letter, 0): OFFSET_BEGINNING})
        found = 0
        while messages := reader.poll(1_000, 2.0):
            found += len(messages)
        reader.close()
        return found

    def check(self, counted: list[BatchShuffled]) -> None:
        assert sum(entry.records for entry in counted) == len(self.sent) + self.bad
        assert sum(entry.dead_letters for entry in counted) == self.bad
        assert Counter(self.keyed()) == Counter(self.sent)


@pytest.fixture
def table(kafka: EmbeddedKafka, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Table]:
    made = Table(kafka, tmp_path, re.sub("[^a-z]+", "-", request.node.name)[:40].strip("-"))
    yield made
    made.close()


def test_two_shufflers_and_one_that_leaves(table: Table):
    table.create_input()
    table.coordinator()
    first, second = table.shuffler(), table.shuffler()
    table.produce(20_000)
    table.wait_until_shuffled()
    second.end()
    table.produce(8_000)
    counted = table.wait_until_shuffled()
    assert not first.errors
    assert not second.errors
    table.check(counted)
    assert table.dead_letters() == table.bad
    assert len({entry.slot for entry in counted}) == 2


@pytest.mark.parametrize(
    "place",
    [
        AssignerFailpoint.SHUFFLE_BATCHES,
        AssignerFailpoint.SHUFFLE_COMMIT,
        AssignerFailpoint.SHUFFLE_COMMITTED,
    ],
)
def test_killed(table: Table, place: AssignerFailpoint):
    table.create_input()
    table.coordinator()
    dying = table.shuffler(place, nth=4)
    table.produce(12_000)
    dying.thread.join(60.0)
    assert [type(error) for error in dying.errors] == [FailpointHitError]
    table.shuffler()
    table.produce(4_000)
    table.check(table.wait_until_shuffled())


def test_without_topics_it_says_what_to_do(table: Table):
    coordinator = table.coordinator()
    shuffler = table.shuffler()
    end = time.monotonic() + 90.0
    admin = table.client.admin()
    while admin.partitions(table.names.keyed) is None:
        assert time.monotonic() < end, coordinator.errors
        time.sleep(0.05)
    admin.close()
    shuffler.end()
    record = Path(table.config.table.path) / ".hoodie/.aux/tidemark/topics.json"
    while not record.exists():
        assert time.monotonic() < end, coordinator.errors
        time.sleep(0.05)
    record.write_text(json.dumps({**json.loads(record.read_text()), table.names.keyed: 5}))
    refused = table.shuffler()
    refused.thread.join(30.0)
    assert isinstance(refused.errors[0], SetupError)
    assert "5" in str(refused.errors[0])
    assert "--new-ledger" in str(refused.errors[0])
