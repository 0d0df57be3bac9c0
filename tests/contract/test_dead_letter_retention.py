"""The settings that end dead letters, and the counts of what ends next: a broker takes and gives them.

When a broker deletes is its own affair: it looks every five minutes.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from testing.clock import ManualClock
from tests.contract.kafka_cluster import WAIT_S, KafkaCluster, commit
from tidemark.commit_coordinator.dead_letters import retention
from tidemark.commit_coordinator.dead_letters.retention import retention_now
from tidemark.commit_coordinator.opening.topic_settings import keep_settings
from tidemark.config import TableConfigFile, load_config
from tidemark.ledger_client.dead_letters import LetterRetention
from tidemark.ledger_client.topics import TopicNames, dead_letter_settings, topic_specs
from tidemark.stream_runtime.kafka.ports import Isolation, TopicPartition

DAY_MS = 86_400_000


@pytest.fixture
def config(cluster: KafkaCluster, tmp_path: Path) -> TableConfigFile:
    (tmp_path / "t.avsc").write_text(
        '{"type": "record", "name": "t", "fields": [{"name": "id", "type": "string"}]}'
    )
    (tmp_path / "t.yaml").write_text(
        f"table: {{name: {cluster.unique}, path: ./w, record_key: [id], schema: t.avsc}}\n"
        "input: {topics: [in]}\nkafka: {bootstrap.servers: embedded}\nstate: {path: ./state}\n"
        "limits: {dead_letter_retention: 10d}\n"
    )
    return load_config(tmp_path / "t.yaml", {})


def test_letters_end_by_settings_that_the_broker_takes_and_are_counted_before(
    cluster: KafkaCluster, config: TableConfigFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "_SAMPLE_S", WAIT_S)
    letters = TopicPartition(TopicNames(cluster.unique).dead_letter, 0)
    admin = cluster.admin()
    assert retention_now(cluster.client, config, cluster.clock) == LetterRetention()
    (spec,) = (each for each in topic_specs(config) if each.name == letters.topic)
    admin.create_topics([replace(spec, replication_factor=1)])
    described = admin.describe(letters.topic).config
    assert described.items() >= dead_letter_settings(config).items()
    assert described["cleanup.policy"] == "delete"

    commit(cluster.producer(), letters, *[b"x" * 1_000] * 10)
    deadline = time.monotonic() + WAIT_S
    # Ten letters and the transaction's marker.
    while (end := admin.end_offset(letters, Isolation.READ_COMMITTED)) < 11:
        assert time.monotonic() < deadline, f"the transaction is not there after {WAIT_S} s"
        time.sleep(0.05)
    assert retention_now(cluster.client, config, cluster.clock) == LetterRetention(end, 0, 0)
    # A broker tells when a letter came: what is old is asked of it, by our clock.
    for days, expiring in ((7, 0), (9, end)):
        later = ManualClock(cluster.clock.now_ms() + days * DAY_MS)
        assert retention_now(cluster.client, config, later) == LetterRetention(end, expiring, 0)
    small = replace(config, limits=replace(config.limits, dead_letter_bytes=5_000))
    assert 5 <= retention_now(cluster.client, small, cluster.clock).expiring < end

    longer = replace(config, limits=replace(config.limits, dead_letter_retention_ms=11 * DAY_MS))
    keep_settings(longer, [each for each in topic_specs(longer) if each.name == letters.topic], admin)
    deadline = time.monotonic() + WAIT_S
    while admin.describe(letters.topic).config["retention.ms"] != str(11 * DAY_MS):
        assert time.monotonic() < deadline, f"the settings are not there after {WAIT_S} s"
        time.sleep(0.1)
    admin.delete_records({letters: 4})
    assert retention_now(cluster.client, config, cluster.clock) == LetterRetention(end - 4, 0, 4)
