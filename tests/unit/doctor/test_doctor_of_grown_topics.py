"""`tidemark doctor` of an input topic that grew since the table's services last ran, on a Kafka in memory."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testing.terms import begin_term
from tests.unit.ledger_client.memory_cluster import MemoryCluster
from tests.unit.table_files import write_config
from tidemark.cli.main import main
from tidemark.commit_coordinator.input.watch import InputWatch
from tidemark.commit_coordinator.opening.topics_setup import check_recorded, ensure_topics, open_inputs
from tidemark.config import load_config
from tidemark.doctor import plan
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.stream_runtime.kafka.confluent.inspection import ClusterFacts, TopicFacts


class Grown:
    """A table whose coordinator has once begun, with two partitions of input."""

    def __init__(self, folder: Path, partitioning: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.file, self.cluster = write_config(folder), MemoryCluster()
        section = f"topics: [orders-in], partitions: 2, partitioning: {partitioning}"
        self.file.write_text(self.file.read_text().replace("topics: [orders-in]", section))
        config, storage = load_config(self.file), LocalStorage(folder / "table")
        opened = open_inputs(config, storage, self.cluster.admin)
        check_recorded(storage, ensure_topics(config, self.cluster.admin))
        watch = InputWatch(config, storage, self.cluster.admin, opened.topics, lambda _: None)
        watch.took_over(begin_term(storage), opened.recorded)
        inspected = SimpleNamespace(cluster=lambda: ClusterFacts("", {}), topic=self.topic, topics=list)
        monkeypatch.setattr(plan, "_inspection", lambda _: inspected)
        monkeypatch.setattr(
            plan, "ConfluentKafkaClient", SimpleNamespace(from_config=lambda *_, **__: self.cluster.client)
        )

    def topic(self, name: str) -> TopicFacts | None:
        partitions = self.cluster.admin.partitions(name)
        return None if partitions is None else TopicFacts(partitions, 1, None, None)

    def doctor(self, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
        """Its checks, by name; it changed nothing."""
        before = {each: each.read_bytes() for each in self.file.parent.rglob("*") if each.is_file()}
        code = main(["doctor", "-c", str(self.file), "--json"])
        checks = {each["check"]: each for each in json.loads(capsys.readouterr().out)["checks"]}
        assert {each: each.read_bytes() for each in before} == before
        assert code or checks["start"]["status"] == "ok"
        return checks


@pytest.mark.parametrize("partitioning", ["shard", "any"])
def test_growth_is_refused_where_a_start_refuses_it(
    tmp_path: Path,
    partitioning: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    grown = Grown(tmp_path, partitioning, monkeypatch)
    assert grown.doctor(capsys)["start"]["status"] == "ok"
    grown.cluster.broker.grow_topic("orders-in", 3)
    checks = grown.doctor(capsys)
    start = checks["start"]
    if partitioning == "any":
        assert start["status"] == "ok", "new partitions are read without a restart"
        return
    [finding] = start["findings"]
    assert start["status"] == finding["status"] == "fails"
    assert "topic orders-in grew from 2 to 3 partitions" in finding["text"]
    assert "tidemark table adopt" in finding["text"]
    assert "--new-ledger" in finding["text"]
    [partitions] = [each for each in checks["input topics"]["findings"] if each["status"] == "fails"]
    assert "orders-in has 3 partitions" in partitions["text"]
    assert "table that exists see the check `start`" in partitions["remedy"]
