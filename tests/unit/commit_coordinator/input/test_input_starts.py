"""`input.start: latest` is resolved once: what arrives afterwards is read, whoever starts again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testing.memory_storage import InMemoryStorage
from testing.terms import begin_term
from tests.unit.ledger_client.memory_cluster import MemoryCluster
from tidemark.commit_coordinator.input.ends import awaited_records
from tidemark.commit_coordinator.input.starts import INPUT_STARTS, DamagedStartsError, record_input_starts
from tidemark.commit_coordinator.input.watch import InputWatch
from tidemark.config import InputStart, load_config
from tidemark.epoch_protocol.input_topics import InputTopic, InputTopics
from tidemark.hudi_format.errors import FencedOutError
from tidemark.hudi_format.publication.port import Term
from tidemark.index_assigner.input.positions import start_of
from tidemark.record_formats.errors import SetupError
from tidemark.stream_runtime.kafka.ports import TopicPartition, TopicSpec

LANES = ["in:0", "in:1"]


def made_term() -> tuple[InMemoryStorage, Term]:
    storage = InMemoryStorage()
    return storage, begin_term(storage)


def made_cluster(*counts: int) -> MemoryCluster:
    cluster = MemoryCluster()
    cluster.admin.create_topics([TopicSpec("in", len(counts))])
    for partition, count in enumerate(counts):
        produce(cluster, partition, count)
    return cluster


def produce(cluster: MemoryCluster, partition: int, count: int) -> None:
    for _ in range(count):
        cluster.broker.produce(TopicPartition("in", partition), None, b"x", ())


@pytest.mark.parametrize("damage", [b"", b"[]", b"\xff", b'{"in:0": "x"}'])
def test_a_damaged_record_is_named_with_what_to_do(damage: bytes) -> None:
    cluster, (storage, term) = made_cluster(1), made_term()
    storage.create(INPUT_STARTS, damage)
    with pytest.raises(DamagedStartsError, match=r"input-starts\.json is damaged .*restore it"):
        record_input_starts(InputStart.LATEST, term, cluster.admin, ["in:0"])
    with pytest.raises(SetupError, match=r"input-starts\.json .*is damaged"):
        start_of(InputStart.LATEST, storage)(cluster.admin, "in:0")


def test_the_end_is_taken_once_and_kept() -> None:
    cluster, (storage, term) = made_cluster(4, 0), made_term()
    first = record_input_starts(InputStart.LATEST, term, cluster.admin, LANES)
    assert first == {"in:0": 4, "in:1": 0}
    produce(cluster, 0, 3)
    produce(cluster, 1, 2)
    assert record_input_starts(InputStart.LATEST, term, cluster.admin, LANES) == first
    assert json.loads(storage.read(INPUT_STARTS)) == first


def test_a_lane_that_is_new_begins_at_the_end_of_now() -> None:
    cluster, (storage, term) = made_cluster(4, 5), made_term()
    record_input_starts(InputStart.LATEST, term, cluster.admin, LANES[:1])
    produce(cluster, 0, 3)
    found = record_input_starts(InputStart.LATEST, term, cluster.admin, LANES)
    assert found == json.loads(storage.read(INPUT_STARTS)) == {"in:0": 4, "in:1": 5}


def test_earliest_records_nothing() -> None:
    cluster, (storage, term) = made_cluster(4, 5), made_term()
    assert record_input_starts(InputStart.EARLIEST, term, cluster.admin, LANES) == {}
    assert not storage.exists(INPUT_STARTS)


def test_a_partition_that_came_while_the_topic_was_read_begins_at_its_start() -> None:
    cluster, (_, term) = made_cluster(4, 5), made_term()
    record_input_starts(InputStart.LATEST, term, cluster.admin, LANES[:1])
    found = record_input_starts(InputStart.LATEST, term, cluster.admin, LANES, frozenset(["in:1"]))
    assert found == {"in:0": 4, "in:1": 0}


def test_a_coordinator_that_was_replaced_records_nothing() -> None:
    cluster, (storage, term) = made_cluster(4, 5), made_term()
    begin_term(storage, 2)
    with pytest.raises(FencedOutError):
        record_input_starts(InputStart.LATEST, term, cluster.admin, LANES)


def test_a_flush_waits_for_nothing_before_the_recorded_start(tmp_path: Path) -> None:
    cluster, storage = made_cluster(4), InMemoryStorage()
    (tmp_path / "t.avsc").write_text(
        '{"type": "record", "name": "t", "fields": [{"name": "id", "type": "string"}]}'
    )
    (tmp_path / "t.yaml").write_text(
        "table: {name: t, path: ./w, record_key: [id], schema: t.avsc}\n"
        "input: {topics: [in], start: latest}\n"
        "kafka: {bootstrap.servers: embedded}\n"
        "state: {path: ./state}\n"
    )
    watch = InputWatch(load_config(tmp_path / "t.yaml"), storage, cluster.admin, {"in": InputTopic(1, 1)})
    watch.took_over(begin_term(storage), InputTopics())
    waits_for = awaited_records(cluster.admin, list, lambda: False, lambda: watch.starts)
    assert not waits_for("in:0", 0, 4)
    produce(cluster, 0, 1)
    assert waits_for("in:0", 0, 5)
    assert not waits_for("in:0", 5, 5)
