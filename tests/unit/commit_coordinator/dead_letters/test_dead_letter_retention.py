"""Dead letters end by time and by size, and who looks after them hears of it before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from prometheus_client import generate_latest

from testing.ids import SeededIds
from tests.own_ports import own_ports
from tests.unit.ledger_client.memory_cluster import MemoryCluster
from tests.unit.table_files import write_config
from tidemark.cli.main import main
from tidemark.commit_coordinator.bootstrap import CoordinatorService
from tidemark.commit_coordinator.building.parts import Ports
from tidemark.commit_coordinator.commit.view import CoordinatorView
from tidemark.commit_coordinator.dead_letters.queries import DeadLetterQueries
from tidemark.commit_coordinator.dead_letters.retention import expiry_warning, retention_now
from tidemark.commit_coordinator.failpoints import CoordinatorFailpoint
from tidemark.commit_coordinator.opening.topics_setup import ensure_topics
from tidemark.config import TableConfigFile, load_config
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.ledger_client.dead_letters import LetterFilter, LetterRetention
from tidemark.ledger_client.topics import TopicNames, topic_specs
from tidemark.stream_runtime.failpoint import FailpointRegistry
from tidemark.stream_runtime.kafka.ports import TopicPartition

SCHEMA = TableSchema.from_arrow("t", pa.schema([("id", pa.string())]))
LETTERS = TopicPartition("orders.dead-letter", 0)
DAY_S = 86_400.0


@pytest.fixture
def config(tmp_path: Path) -> TableConfigFile:
    (tmp_path / "t.avsc").write_text(SCHEMA.avro_json)
    (tmp_path / "t.yaml").write_text(
        "table: {name: orders, path: ./w, record_key: [id], schema: t.avsc}\n"
        "input: {topics: [in]}\nkafka: {bootstrap.servers: embedded}\nstate: {path: ./state}\n"
        "limits: {dead_letter_retention: 10d, dead_letter_bytes: 1GiB}\n"
    )
    return load_config(tmp_path / "t.yaml", {})


def test_the_topic_ends_letters_by_time_and_by_size_and_nothing_else_does(config: TableConfigFile) -> None:
    specs = {spec.name: spec.config for spec in topic_specs(config)}
    letters = specs.pop(TopicNames("orders").dead_letter)
    assert int(letters["retention.ms"]) == 10 * 86_400_000
    # Kafka counts whole segments, and never deletes the one that is written.
    assert int(letters["retention.bytes"]) + int(letters["segment.bytes"]) == 1 << 30
    assert int(letters["segment.bytes"]) > config.limits.message_bytes
    assert {each["retention.bytes"] for each in specs.values()} == {"-1"}


def test_small_limits_still_take_a_message(config: TableConfigFile) -> None:
    small = replace(config, limits=replace(config.limits, dead_letter_bytes=1))
    letters = {spec.name: spec.config for spec in topic_specs(small)}[LETTERS.topic]
    assert int(letters["retention.bytes"]) > config.limits.message_bytes


def test_letters_are_named_before_they_are_deleted(config: TableConfigFile) -> None:
    cluster = MemoryCluster()
    assert retention_now(cluster.client, config, cluster.clock) == LetterRetention()
    ensure_topics(config, cluster.admin)
    for _ in range(3):
        cluster.broker.produce(LETTERS, None, b"{}", (("tm-reason", b"not-json"),))
    assert retention_now(cluster.client, config, cluster.clock) == LetterRetention(3, 0, 0)
    assert expiry_warning(LetterRetention(3, 0, 0)) == []
    cluster.clock.advance(7 * DAY_S)
    cluster.broker.produce(LETTERS, None, b"{}", ())
    assert retention_now(cluster.client, config, cluster.clock) == LetterRetention(4, 0, 0)
    cluster.clock.advance(1.1 * DAY_S)
    found = retention_now(cluster.client, config, cluster.clock)
    assert found == LetterRetention(4, 3, 0)
    assert "3 of 4 offsets of dead letters are deleted next" in expiry_warning(found)[0]
    cluster.admin.delete_records({LETTERS: 2})
    assert retention_now(cluster.client, config, cluster.clock) == LetterRetention(2, 1, 2)
    queries = DeadLetterQueries(cluster.client, "orders", ["in"], cluster.clock, lambda: found)
    assert queries.page(LetterFilter(), 10).retention == found


def test_letters_that_no_longer_fit_are_named_as_well(config: TableConfigFile) -> None:
    cluster = MemoryCluster()
    ensure_topics(config, cluster.admin)
    for _ in range(100):
        cluster.broker.produce(LETTERS, None, b"x" * 1_000, ())
    fits = replace(config, limits=replace(config.limits, dead_letter_bytes=50_000))
    assert retention_now(cluster.client, fits, cluster.clock) == LetterRetention(100, 60, 0)
    assert retention_now(cluster.client, config, cluster.clock) == LetterRetention(100, 0, 0)


def test_status_and_the_metric_tell_of_letters_that_are_deleted_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The service itself, with Kafka in memory."""
    [port] = own_ports(1)
    file, cluster = write_config(tmp_path, coordinator=f"127.0.0.1:{port}"), MemoryCluster()
    config = load_config(file)
    ensure_topics(config, cluster.admin)
    for _ in range(3):
        cluster.broker.produce(LETTERS, None, b"{}", ())
    cluster.clock.advance(config.limits.dead_letter_retention_ms / 1_000 * 0.9)
    cluster.broker.produce(LETTERS, None, b"{}", ())
    failpoints = FailpointRegistry(CoordinatorFailpoint)
    storage = LocalStorage(tmp_path / "table")
    service = CoordinatorService(
        config, Ports(cluster.client, storage, cluster.clock, SeededIds(1), failpoints)
    )
    try:
        service.start()
        # As its loop does once the table is taken over, and its thread of stats every few seconds.
        service.parts.board.show(CoordinatorView(term=0))
        assert service.parts.metrics._watched is not None
        service.parts.metrics._watched[1].sample()
        assert main(["status", "-c", str(file)]) == 0
        metrics = generate_latest(service.parts.metrics.metrics.registry).decode()
    finally:
        service.close()
    [warning] = [line for line in capsys.readouterr().out.splitlines() if "deleted next" in line]
    assert warning.startswith("WARNING       3 of 4 offsets of dead letters are deleted next")
    assert 'tidemark_coordinator_dead_letter_expiring_offsets{table="orders"} 3.0' in metrics.splitlines()
