"""A start gives topics that are there what the configuration asks for now."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from tests.unit.ledger_client.memory_cluster import MemoryCluster
from tests.unit.table_files import write_config
from tidemark.commit_coordinator.offline.rehearsal import _Looking
from tidemark.commit_coordinator.opening.topic_settings import TopicSettingsError
from tidemark.commit_coordinator.opening.topics_setup import ensure_topics
from tidemark.config import TableConfigFile, load_config
from tidemark.ledger_client.topics import TOMBSTONE_MARGIN_MS, TOPIC_MARGIN_BYTES, TopicNames, topic_specs
from tidemark.stream_runtime.kafka.ports import Admin, KafkaConfigError, KafkaUnavailableError

NAMES = TopicNames("orders")
DAY_MS = 86_400_000
Change = Callable[[TableConfigFile], TableConfigFile]


@pytest.fixture
def config(tmp_path: Path) -> TableConfigFile:
    return load_config(write_config(tmp_path))


@pytest.fixture
def cluster(config: TableConfigFile) -> MemoryCluster:
    made = MemoryCluster()
    ensure_topics(config, made.admin)
    return made


def with_ttl(days: int) -> Change:
    """`table.index.tombstone_ttl` is so many days."""

    def changed(config: TableConfigFile) -> TableConfigFile:
        index = replace(config.table.index, tombstone_ttl_ms=days * DAY_MS)
        return replace(config, table=replace(config.table, index=index))

    return changed


def with_messages(mib: int) -> Change:
    """`limits.message_bytes` is so many MiB."""
    return lambda config: replace(config, limits=replace(config.limits, message_bytes=mib << 20))


def with_letters(days: int) -> Change:
    """`limits.dead_letter_retention` is so many days."""
    limits = {"dead_letter_retention_ms": days * DAY_MS}
    return lambda config: replace(config, limits=replace(config.limits, **limits))


def settings(cluster: MemoryCluster, topic: str, name: str) -> str:
    return cluster.admin.topic_settings([topic])[topic][name]


def test_tombstones_are_kept_for_as_long_as_they_hold_now_and_as_former_ones_hold(
    config: TableConfigFile, cluster: MemoryCluster
) -> None:
    for days, kept in ((7, 7), (2, 7), (8, 8)):
        ensure_topics(with_ttl(days)(config), cluster.admin)
        kept_ms = int(settings(cluster, NAMES.tombstones, "retention.ms"))
        assert kept_ms == kept * DAY_MS + TOMBSTONE_MARGIN_MS
    cluster.admin.configure_topic(NAMES.tombstones, {"retention.ms": "-1"})
    ensure_topics(config, cluster.admin)
    assert settings(cluster, NAMES.tombstones, "retention.ms") == "-1", "somebody keeps them for ever"
    assert settings(cluster, NAMES.ledger, "retention.ms") == "-1"


def test_every_topic_takes_the_messages_of_now_and_has_segments_for_them(
    config: TableConfigFile, cluster: MemoryCluster
) -> None:
    ensure_topics(with_messages(100)(config), cluster.admin)
    needed = (100 << 20) + TOPIC_MARGIN_BYTES
    for spec in topic_specs(config):
        assert int(settings(cluster, spec.name, "max.message.bytes")) == needed, spec.name
        assert int(settings(cluster, spec.name, "segment.bytes")) >= needed, spec.name
    ensure_topics(config, cluster.admin)
    assert int(settings(cluster, NAMES.keyed, "max.message.bytes")) == needed, "what is there may be as large"


def test_letters_are_kept_as_long_as_is_configured_now(
    config: TableConfigFile, cluster: MemoryCluster
) -> None:
    ensure_topics(with_letters(1)(config), cluster.admin)
    assert settings(cluster, NAMES.dead_letter, "retention.ms") == str(DAY_MS)
    assert settings(cluster, NAMES.dead_letter, "cleanup.policy") == "delete"


def refuse(monkeypatch: pytest.MonkeyPatch, cluster: MemoryCluster, error: Exception) -> None:
    """Nobody may change a topic."""

    def refused(*_: object) -> None:
        raise error

    monkeypatch.setattr(type(cluster.admin), "configure_topic", refused)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (with_ttl(7), r"orders\.tombstones: table\.index\.tombstone_ttl .*retention\.ms=626400000"),
        (with_messages(32), r"orders\.\w+: limits\.message_bytes .*max\.message\.bytes=33619968"),
    ],
)
def test_a_start_that_may_not_change_what_would_lose_rows_or_end_processes_is_refused(
    config: TableConfigFile,
    cluster: MemoryCluster,
    monkeypatch: pytest.MonkeyPatch,
    change: Change,
    told: str,
) -> None:
    refuse(monkeypatch, cluster, KafkaConfigError("not authorized"))
    with pytest.raises(TopicSettingsError, match=told):
        ensure_topics(change(config), cluster.admin)
    ensure_topics(config, cluster.admin)
    refuse(monkeypatch, cluster, KafkaUnavailableError("no answer"))
    with pytest.raises(KafkaUnavailableError):
        ensure_topics(change(config), cluster.admin)


def test_how_long_letters_are_kept_stops_no_start(
    config: TableConfigFile,
    cluster: MemoryCluster,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    ensure_topics(with_ttl(7)(config), cluster.admin)
    refuse(monkeypatch, cluster, KafkaUnavailableError("no answer"))
    # A test before may have left a logger that tells of what was done.
    caplog.clear()
    ensure_topics(with_ttl(7)(config), cluster.admin)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    ensure_topics(with_letters(3)(config), cluster.admin)
    assert "--topic orders.dead-letter --add-config retention.ms=259200000" in caplog.text
    assert "orders.tombstones" not in caplog.text


def test_topics_whose_settings_may_not_be_seen_are_named(
    config: TableConfigFile,
    cluster: MemoryCluster,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen = cluster.admin.topic_settings([NAMES.dead_letter])
    monkeypatch.setattr(type(cluster.admin), "topic_settings", lambda *_: seen)
    ensure_topics(with_ttl(7)(config), cluster.admin)
    assert "may not see the settings of orders.keyed, " in caplog.text
    assert settings(cluster, NAMES.dead_letter, "cleanup.policy") == "delete"


def test_a_rehearsal_changes_nothing(config: TableConfigFile, cluster: MemoryCluster) -> None:
    before = cluster.admin.topic_settings([spec.name for spec in topic_specs(config)])
    ensure_topics(with_ttl(7)(config), cast(Admin, _Looking(cluster.admin)))
    assert cluster.admin.topic_settings(before) == before
