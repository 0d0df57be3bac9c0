"""`input.start: latest` is resolved once: what arrives afterwards is read, whoever starts again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from testing.memory_storage import InMemoryStorage
from testing.terms import begin_term
from tests.unit.ledger_client.memory_cluster import MemoryCluster
from tidemark.commit_coordinator.input.ends import awaited_records
from tidemark.commit_coordinator.input.starts import (
    INPUT_EARLIEST,
    INPUT_STARTS,
    DamagedStartsError,
    SilentLanes,
    record_input_starts,
)
from tidemark.commit_coordinator.input.watch import InputWatch
from tidemark.config import InputStart, TableConfigFile, load_config
from tidemark.epoch_protocol.input_topics import InputTopic, InputTopics
from tidemark.hudi_format.errors import FencedOutError
from tidemark.hudi_format.publication.port import Term
from tidemark.index_assigner.input.positions import start_of
from tidemark.record_formats.errors import SetupError
from tidemark.stream_runtime.kafka.errors import LeaderChangingError
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


def test_earliest_is_the_start_of_the_first_look_also_when_records_were_deleted_since() -> None:
    cluster, (storage, term) = made_cluster(4, 5), made_term()
    first = record_input_starts(InputStart.EARLIEST, term, cluster.admin, LANES)
    assert first == {"in:0": 0, "in:1": 0}
    cluster.admin.delete_records({TopicPartition("in", 0): 3})
    assert record_input_starts(InputStart.EARLIEST, term, cluster.admin, LANES) == first
    assert json.loads(storage.read(INPUT_EARLIEST)) == first
    assert not storage.exists(INPUT_STARTS)
    begins = start_of(InputStart.EARLIEST, storage)
    assert begins(cluster.admin, "in:0") == 0, "it stops there: deleted input is not passed over"


def test_with_earliest_a_lane_without_a_record_begins_at_its_start_of_now() -> None:
    """The coordinator is of a former version, or could not ask for it yet."""
    cluster, (storage, _) = made_cluster(4), made_term()
    cluster.admin.delete_records({TopicPartition("in", 0): 3})
    assert start_of(InputStart.EARLIEST, storage)(cluster.admin, "in:0") == 3


class Leaders:
    """Partitions of `in` that have no leader; how often any was asked for its start, and for how long."""

    def __init__(self, cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, *without: str) -> None:
        self.without, self.asked = set(without), 0
        self.longest_s = 0.0
        self._real = cluster.admin.start_offset
        monkeypatch.setattr(cluster.admin, "start_offset", self._start_offset)

    def _start_offset(self, at: TopicPartition, timeout_s: float = 60.0) -> int:
        self.asked += 1
        self.longest_s = max(timeout_s, self.longest_s)
        if f"{at.topic}:{at.partition}" in self.without:
            raise LeaderChangingError("no leader")
        return self._real(at)


def test_with_earliest_partitions_without_a_leader_keep_no_other_from_being_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, (storage, term) = made_cluster(4, 5, 6, 7), made_term()
    lanes = [f"in:{partition}" for partition in range(4)]
    leaders = Leaders(cluster, monkeypatch, "in:0", "in:1", "in:2")
    silent = SilentLanes()

    def record() -> Mapping[str, int]:
        return record_input_starts(InputStart.EARLIEST, term, cluster.admin, lanes, silent=silent)

    assert [(record(), leaders.asked) for _ in range(3)] == [({}, 1), ({}, 2), ({}, 3)], "a call has a bound"
    assert leaders.longest_s <= 5.0, "whoever accepts a topic waits for it"
    assert (record(), leaders.asked) == ({"in:3": 0}, 4)
    leaders.without.clear()
    assert (record(), leaders.asked) == ({"in:3": 0}, 4)
    for _ in range(20):
        silent.look()
    assert record() == dict.fromkeys(lanes, 0)
    assert json.loads(storage.read(INPUT_EARLIEST)) == dict.fromkeys(lanes, 0)


def test_behind_many_partitions_without_a_leader_each_lane_has_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster, storage = made_cluster(*[1] * 70), InMemoryStorage()
    leaders = Leaders(cluster, monkeypatch, *(f"in:{partition}" for partition in range(60)))
    watch = InputWatch(configured(tmp_path), storage, cluster.admin, {"in": InputTopic(70, 70)})
    watch.took_over(begin_term(storage), InputTopics())
    for _ in range(60):
        watch.look()
    assert watch.starts == {f"in:{partition}": 0 for partition in range(60, 70)}
    for _ in range(100):
        watch.look()
    assert len(caplog.records) == 60, "one warning for each, however long it has no leader"
    leaders.without = {f"in:{partition}" for partition in range(30)}
    for _ in range(60):
        watch.look()
    assert watch.starts == {f"in:{partition}": 0 for partition in range(30, 70)}


def test_a_partition_without_a_leader_is_asked_for_its_start_once_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, storage = made_cluster(4, 5), InMemoryStorage()
    leaders = Leaders(cluster, monkeypatch, "in:0")
    watch = InputWatch(configured(tmp_path), storage, cluster.admin, {"in": InputTopic(2, 2)})
    watch.took_over(begin_term(storage), InputTopics())
    watch.look()
    assert watch.starts == {"in:1": 0}
    leaders.without.clear()
    for _ in range(18):
        watch.look()
    assert (watch.starts, leaders.asked) == ({"in:1": 0}, 2), "flush looks, too, and must not wait for it"
    watch.look()
    assert watch.starts == {"in:0": 0, "in:1": 0}


def test_whoever_changes_the_start_before_anything_is_read_gets_what_is_configured_now() -> None:
    cluster, (storage, term) = made_cluster(4), made_term()
    for start, offset in ((InputStart.LATEST, 4), (InputStart.EARLIEST, 0), (InputStart.LATEST, 4)):
        record_input_starts(start, term, cluster.admin, ["in:0"])
        assert start_of(start, storage)(cluster.admin, "in:0") == offset
        produce(cluster, 0, 1)


def test_a_flush_awaits_records_that_were_deleted_before_they_were_read() -> None:
    cluster, (_, term) = made_cluster(4), made_term()
    starts = record_input_starts(InputStart.EARLIEST, term, cluster.admin, ["in:0"])
    waits_for = awaited_records(cluster.admin, list, lambda: False, lambda: starts)
    cluster.admin.delete_records({TopicPartition("in", 0): 4})
    assert waits_for("in:0", 0, 4), "their lane stops, and an operator says what becomes of it"
    assert not awaited_records(cluster.admin, list, lambda: False, dict)("in:0", 0, 4), "nobody knew of them"


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


def configured(folder: Path, start: str = "earliest") -> TableConfigFile:
    (folder / "t.avsc").write_text(
        '{"type": "record", "name": "t", "fields": [{"name": "id", "type": "string"}]}'
    )
    (folder / "t.yaml").write_text(
        "table: {name: t, path: ./w, record_key: [id], schema: t.avsc}\n"
        f"input: {{topics: [in], start: {start}}}\n"
        "kafka: {bootstrap.servers: embedded}\n"
        "state: {path: ./state}\n"
    )
    return load_config(folder / "t.yaml")


def test_a_flush_waits_for_nothing_before_the_recorded_start(tmp_path: Path) -> None:
    cluster, storage = made_cluster(4), InMemoryStorage()
    watch = InputWatch(configured(tmp_path, "latest"), storage, cluster.admin, {"in": InputTopic(1, 1)})
    watch.took_over(begin_term(storage), InputTopics())
    waits_for = awaited_records(cluster.admin, list, lambda: False, lambda: watch.starts)
    assert not waits_for("in:0", 0, 4)
    produce(cluster, 0, 1)
    assert waits_for("in:0", 0, 5)
    assert not waits_for("in:0", 5, 5)
