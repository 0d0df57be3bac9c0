"""The shuffle stage as a service: real Kafka, real coordinator, its own gRPC, table and topics."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from tests.integration.service_threads import Running, ServiceThreads
from tests.own_ports import own_ports
from tidemark.epoch_protocol.entries import BatchShuffled, Stage
from tidemark.epoch_protocol.fold import Verdict
from tidemark.index_assigner.failpoints import AssignerFailpoint
from tidemark.index_assigner.shuffle.keyed_topic_source import KeyedTopicSource
from tidemark.index_assigner.slots.stage_work import Budget
from tidemark.record_formats.errors import SetupError
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.failpoint import FailpointHitError
from tidemark.stream_runtime.kafka.ports import OFFSET_BEGINNING, Isolation, TopicPartition, TopicSpec
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka
from tidemark.stream_runtime.retry import Deadline

pytestmark = pytest.mark.kafka
_WAIT_S: Final = 240.0

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
        coordinator, metrics = own_ports(2)
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
limits: {{transaction_interval: 50ms, transaction_records: 2000}}
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

    def wait_until_spread(self, *shares: int) -> None:
        """Returns when the claims that count give so many input partitions to one slot each."""
        deadline = Deadline(SystemClock(), _WAIT_S)
        with closing(self.fold_reader()) as folds:
            folds.start()
            while True:
                folds.poll(0.05)
                owners = Counter(lane.slot for lane in folds.fold.state.shuffle_lanes.values())
                if sorted(owners.values()) == sorted(shares):
                    return
                deadline.check(f"{shares} lanes a slot, not {dict(owners)}; {self.ended()}")

    def wait_until_shuffled(self) -> list[BatchShuffled]:
        """Counting entries, once they cover all that was sent."""
        counted: list[BatchShuffled] = []
        wanted = len(self.sent) + self.bad
        deadline = Deadline(SystemClock(), _WAIT_S)
        with closing(self.fold_reader()) as folds:
            folds.start()
            while (done := sum(entry.records for entry in counted)) < wanted:
                deadline.check(f"{wanted} records shuffled, {done} are; {self.ended()}")
                for applied in folds.poll(0.05):
                    if isinstance(applied.entry, BatchShuffled) and applied.verdict is Verdict.COUNTS:
                        counted.append(applied.entry)
        return counted

    def ended(self) -> list[object]:
        return [(each.errors, each.restarts) for each in self.running]

    def keyed(self) -> list[str]:
        """Every key that the assign stage would get."""
        keys: list[str] = []
        deadline = Deadline(SystemClock(), _WAIT_S)
        with closing(self.fold_reader()) as folds:
            folds.start()
            folds.catch_up()
            source = KeyedTopicSource(
                self.client, self.names.keyed, folds, self.names.ledger_partition, 1 << 25, 1 << 20
            )
            with closing(source):
                for lane in range(2):
                    source.assign(str(lane), 0)
                while any(source.lags().values()):
                    deadline.check(f"the ends of {self.names.keyed}: {source.lags()}")
                    folds.poll(0.0)
                    for slice_ in source.poll(Budget(100_000, 1 << 24), 0.1):
                        for batch in slice_.batches:
                            keys += batch.column("_tm_key").to_pylist()
        return keys

    def dead_letters(self) -> int:
        place = TopicPartition(self.names.dead_letter, 0)
        admin = self.client.admin()
        end = admin.end_offset(place, Isolation.READ_COMMITTED)
        admin.close()
        found = 0
        deadline = Deadline(SystemClock(), _WAIT_S)
        with closing(self.client.partition_reader(Isolation.READ_COMMITTED)) as reader:
            reader.assign({place: OFFSET_BEGINNING})
            while reader.position(place) < end:
                deadline.check(f"the end of {place.topic}")
                found += len(reader.poll(1_000, 0.2))
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
    counted: list[BatchShuffled] = []
    deadline = Deadline(SystemClock(), _WAIT_S)
    # Where the machine stalled, a lease may lapse and take its lanes along: more records find both at work.
    while len({entry.slot for entry in counted}) < 2:
        deadline.check("transactions of both")
        table.wait_until_spread(2, 2)
        table.produce(20_000)
        counted = table.wait_until_shuffled()
    second.end()
    table.wait_until_spread(4)
    table.produce(8_000)
    counted = table.wait_until_shuffled()
    assert not first.errors
    assert not second.errors
    table.check(counted)
    assert table.dead_letters() == table.bad
    assert len({entry.slot for entry in counted}) == 2


def test_killed(table: Table):
    """Before the end of a transaction; at every failpoint, as a process, in the kill campaign
    (`tests/e2e/test_chaos.py`), and at each three times over in `tests/simulation/test_shuffle_slots.py`.
    """
    table.create_input()
    table.coordinator()
    dying = table.shuffler(AssignerFailpoint.SHUFFLE_COMMIT, nth=4)
    table.produce(12_000)
    dying.thread.join(_WAIT_S)
    assert [type(error) for error in dying.errors] == [FailpointHitError]
    table.shuffler()
    table.produce(4_000)
    table.check(table.wait_until_shuffled())


def test_without_topics_it_says_what_to_do(table: Table):
    coordinator = table.coordinator()
    shuffler = table.shuffler()
    end = time.monotonic() + _WAIT_S
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
    refused.thread.join(_WAIT_S)
    assert isinstance(refused.errors[0], SetupError)
    assert "5" in str(refused.errors[0])
    assert "--new-ledger" in str(refused.errors[0])
