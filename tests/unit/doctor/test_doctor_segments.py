"""Topics of a former version, whose segments are as large as the broker makes them."""

from __future__ import annotations

from pathlib import Path

from tests.unit.table_files import write_config
from tidemark.config import load_config
from tidemark.doctor import broker
from tidemark.doctor.checks import CheckStatus
from tidemark.ledger_client.topics import topic_specs
from tidemark.stream_runtime.kafka.confluent.inspection import TopicFacts


def test_large_segments_of_a_former_version_s_topic_are_named_with_the_way_on(tmp_path: Path):
    spec = next(
        each for each in topic_specs(load_config(write_config(tmp_path))) if each.name == "orders.keyed"
    )
    sound = TopicFacts(spec.partitions, 1, dict(spec.config), None)
    assert list(broker._segments(spec, sound)) == []
    large = TopicFacts(spec.partitions, 1, {**spec.config, "segment.bytes": str(1 << 30)}, None)
    (finding,) = broker._segments(spec, large)
    assert (finding.status, f"segment.bytes={64 << 20}" in finding.remedy) == (CheckStatus.WARNING, True)
    assert list(broker._segments(spec, TopicFacts(1, 1, None, None))) == []
