"""What is recorded with the table: schemas of joining processes, partition counts of topics."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from testing.memory_storage import InMemoryStorage
from tests.unit.ledger_client.memory_cluster import MemoryCluster
from tidemark.commit_coordinator.opening.schemas import IncompatibleSchemaError, SchemaRegistry
from tidemark.commit_coordinator.opening.topics_setup import (
    LANE_SOURCE,
    RECORD,
    TopicsChangedError,
    check_lane_source,
    check_recorded,
    ensure_topics,
)
from tidemark.config import InputPartitioning, TableConfigFile, load_config
from tidemark.hudi_format.errors import CorruptFileError
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage.documents import ROOT
from tidemark.hudi_format.timeline import Timeline

EMPTY = Timeline(())
BASE = TableSchema.from_arrow("t", pa.schema([("id", pa.string()), ("v", pa.int64())]))
WIDER = TableSchema.from_arrow("t", pa.schema([("id", pa.string()), ("v", pa.int64()), ("w", pa.string())]))
OTHER = TableSchema.from_arrow("t", pa.schema([("id", pa.string()), ("v", pa.int64()), ("x", pa.bool_())]))
CLASHING = TableSchema.from_arrow("t", pa.schema([("id", pa.string()), ("w", pa.bool_())]))
WRONG = TableSchema.from_arrow("t", pa.schema([("id", pa.string()), ("v", pa.bool_())]))


def columns(avro_json: str) -> list[str]:
    return [field["name"] for field in json.loads(avro_json)["fields"]]


def test_schemas_are_united_over_what_the_epochs_transactions_name() -> None:
    storage = InMemoryStorage()
    registry = SchemaRegistry(storage, "t", BASE)
    wider, other = registry.register(WIDER.avro_json), registry.register(OTHER.avro_json)
    assert registry.register(WIDER.avro_json) == wider == WIDER.fingerprint
    assert columns(registry.united([], EMPTY)) == ["id", "v"]
    assert columns(registry.united([wider], EMPTY)) == ["id", "v", "w"]
    assert columns(registry.united([other], EMPTY)) == ["id", "v", "w", "x"]
    successor = SchemaRegistry(storage, "t", BASE)
    assert columns(successor.united([other, wider], EMPTY)) == ["id", "v", "x", "w"]


def test_columns_that_no_process_fills_are_known_once_one_has_joined() -> None:
    registry = SchemaRegistry(InMemoryStorage(), "t", WIDER)
    assert registry.unfilled_columns() == []
    registry.register(BASE.avro_json)
    assert registry.unfilled_columns() == ["w"]
    registry.register(WIDER.avro_json)
    assert registry.unfilled_columns() == []


def test_a_schema_that_does_not_fit_is_refused_by_name_and_a_lost_one_is_an_error() -> None:
    storage = InMemoryStorage()
    registry = SchemaRegistry(storage, "t", BASE)
    with pytest.raises(IncompatibleSchemaError, match="v"):
        registry.register(WRONG.avro_json)
    with pytest.raises(IncompatibleSchemaError):
        registry.register("{")
    fingerprint = registry.register(WIDER.avro_json)
    storage.delete(f"{ROOT}/schemas/{fingerprint}.avsc")
    with pytest.raises(IncompatibleSchemaError, match="gone"):
        registry.united([fingerprint], EMPTY)


def test_two_processes_that_add_one_column_with_two_types_are_told_at_the_join() -> None:
    storage = InMemoryStorage()
    registry = SchemaRegistry(storage, "t", BASE)
    wider = registry.register(WIDER.avro_json)
    with pytest.raises(IncompatibleSchemaError, match="w"):
        registry.register(CLASHING.avro_json)
    successor = SchemaRegistry(storage, "t", BASE)
    successor.resume([wider])
    with pytest.raises(IncompatibleSchemaError, match="another process"):
        successor.register(CLASHING.avro_json)
    other = successor.register(OTHER.avro_json)
    assert columns(successor.united([wider, other], EMPTY)) == ["id", "v", "w", "x"]


@pytest.fixture
def config(tmp_path: Path) -> TableConfigFile:
    (tmp_path / "t.avsc").write_text(BASE.avro_json)
    (tmp_path / "t.yaml").write_text(
        "table: {name: orders, path: ./w, record_key: [id], schema: t.avsc, index: {shards: 4, lanes: 4}}\n"
        "input: {topics: [in], partitions: 3}\n"
        "kafka: {bootstrap.servers: embedded}\n"
        "state: {path: ./state}\n"
    )
    return load_config(tmp_path / "t.yaml")


def test_topics_with_three_replicas_are_made_with_two_in_sync(
    config: TableConfigFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    for replicas, in_sync in ((3, "2"), (1, None)):
        cluster = MemoryCluster()
        monkeypatch.setattr(type(cluster.admin), "default_replication", lambda _, given=replicas: given)
        ensure_topics(config, cluster.admin)
        own = [
            cluster.admin.describe(f"orders.{role}") for role in ("ledger", "epochs", "keyed", "tombstones")
        ]
        assert {topic.config.get("min.insync.replicas") for topic in own} == {in_sync}


def test_missing_topics_are_made_and_the_counts_recorded(config: TableConfigFile) -> None:
    cluster, storage = MemoryCluster(), InMemoryStorage()
    found = ensure_topics(config, cluster.admin)
    assert found["orders.keyed"] == found["orders.index"] == 4
    assert found["orders.ledger"] == found["orders.epochs"] == 1
    assert ensure_topics(config, cluster.admin) == found
    check_recorded(storage, found)
    check_recorded(storage, found)
    assert json.loads(storage.read(RECORD)) == found


@pytest.mark.parametrize("damage", [b"", b"[]", b"\xff", b'{"orders.ledger": "one"}'])
def test_damaged_records_are_named_with_what_to_do(config: TableConfigFile, damage: bytes) -> None:
    cluster, storage = MemoryCluster(), InMemoryStorage()
    storage.create(RECORD, damage)
    storage.create(LANE_SOURCE, damage)
    with pytest.raises(TopicsChangedError, match=r"topics\.json.* is damaged .*: delete it when"):
        check_recorded(storage, ensure_topics(config, cluster.admin))
    with pytest.raises(TopicsChangedError, match=r"lane-source\.json.* is damaged .*: delete it when"):
        check_lane_source(config, storage)


def test_a_broker_that_does_not_know_a_new_topic_yet_is_not_believed(
    config: TableConfigFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = MemoryCluster()
    monkeypatch.setattr(type(cluster.admin), "partitions", lambda *_: None)
    found = ensure_topics(config, cluster.admin)
    assert (found["orders.keyed"], found["orders.dead-letter"]) == (4, 1)


def test_a_count_that_changed_is_refused_with_what_to_do(config: TableConfigFile) -> None:
    cluster, storage = MemoryCluster(), InMemoryStorage()
    found = ensure_topics(config, cluster.admin)
    check_recorded(storage, found)
    with pytest.raises(TopicsChangedError, match="ledger has 6 partitions, 1 were recorded"):
        check_recorded(storage, {**found, "orders.ledger": 6})
    other = replace(config, table=replace(config.table, index=replace(config.table.index, lanes=2)))
    with pytest.raises(
        TopicsChangedError, match=r"Set table.index.lanes back to 4.*Do not recreate the topic"
    ):
        ensure_topics(other, cluster.admin)


def test_the_topic_that_is_tagged_from_may_not_change_under_the_ledger(config: TableConfigFile) -> None:
    storage = InMemoryStorage()
    check_lane_source(config, storage)
    check_lane_source(config, storage)
    by_lane = replace(config, input=replace(config.input, partitioning=InputPartitioning.SHARD))
    with pytest.raises(TopicsChangedError, match=r"from topic in, but .* offsets in orders\.keyed"):
        check_lane_source(by_lane, storage)
    fresh = InMemoryStorage()
    check_lane_source(by_lane, fresh)
    with pytest.raises(TopicsChangedError, match=r"offsets in in:"):
        check_lane_source(config, fresh)
    other = replace(by_lane, input=replace(by_lane.input, topics=("in2",)))
    with pytest.raises(TopicsChangedError, match="in2"):
        check_lane_source(other, fresh)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"{", b'{"type": "int"}'])
def test_a_stored_schema_that_is_damaged_is_named(content: bytes) -> None:
    storage = InMemoryStorage()
    registry = SchemaRegistry(storage, "t", BASE)
    fingerprint = registry.register(WIDER.avro_json)
    storage.replace(f"{ROOT}/schemas/{fingerprint}.avsc", content)
    with pytest.raises(CorruptFileError, match=rf"schemas/{fingerprint}\.avsc is damaged"):
        registry.united([fingerprint], EMPTY)
