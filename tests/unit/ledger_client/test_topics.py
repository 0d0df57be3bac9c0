"""Topic names are a contract; nothing but tombstones is deleted by time."""

from __future__ import annotations

import dataclasses
import json

import pytest

from tidemark.config import TableConfigFile, load_config
from tidemark.ledger_client.topics import TopicNames, input_topic_specs, topic_specs

CONFIG = """
table:
  {name: flights, path: ./t, record_key: [k], schema: s.avsc, index: {shards: 32, lanes: 20, tombstone_ttl:
  2h}}
input: {topics: [a, b], partitions: 3}
kafka: {bootstrap.servers: embedded}
state: {path: ./state}
limits: {message_bytes: 8MiB}
"""


@pytest.fixture
def config(tmp_path) -> TableConfigFile:
    (tmp_path / "s.avsc").write_text(json.dumps({"type": "record", "fields": [{"name": "k"}]}))
    (tmp_path / "c.yaml").write_text(CONFIG)
    return load_config(tmp_path / "c.yaml", {})


def test_names():
    names = TopicNames("flights")
    assert [names.keyed, names.data, names.index, names.tombstones, names.ledger, names.epochs] == [
        "flights.keyed",
        "flights.data",
        "flights.index",
        "flights.tombstones",
        "flights.ledger",
        "flights.epochs",
    ]
    assert names.dead_letter == "flights.dead-letter"
    assert names.ledger_partition == ("flights.ledger", 0)


def test_specs_have_a_partition_per_lane_and_no_time_retention(config):
    specs = {spec.name.split(".")[1]: spec for spec in topic_specs(config)}
    assert {role: spec.partitions for role, spec in specs.items()} == {
        "keyed": 20,
        "data": 16,
        "index": 20,
        "tombstones": 20,
        "ledger": 1,
        "epochs": 1,
        "dead-letter": 1,
    }
    retention = {role: int(spec.config["retention.ms"]) for role, spec in specs.items()}
    assert retention.pop("tombstones") == 8 * 3_600_000
    assert retention.pop("dead-letter") == 30 * 86_400_000
    assert set(retention.values()) == {-1}
    assert {spec.config["max.message.bytes"] for spec in specs.values()} == {str(8 * 2**20 + 65_536)}
    assert not any("min.insync.replicas" in spec.config for spec in specs.values())


def test_segments_are_small_so_that_what_is_trimmed_goes(config):
    def sizes(*given: int) -> set[str]:
        return {spec.config["segment.bytes"] for spec in topic_specs(config, -1, *given)}

    assert sizes() == sizes(1 << 30) == {str(64 << 20)}
    small = {spec.name: spec.config["segment.bytes"] for spec in topic_specs(config, -1, 16 << 20)}
    assert small.pop("flights.dead-letter") == str(64 << 20)
    assert set(small.values()) == {str(16 << 20)}


def test_replicated_topics_need_two_copies_in_sync(config):
    assert {spec.config["min.insync.replicas"] for spec in topic_specs(config, 3)} == {"2"}


def test_input_topics_get_the_configured_partitions(config):
    specs = input_topic_specs(dataclasses.replace(config))
    assert [(spec.name, spec.partitions) for spec in specs] == [("a", 3), ("b", 3)]
