"""`tidemark doctor` against a real broker: all is well, what is not is named, and no topic is left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.table_files import write_config
from tidemark.cli.main import main
from tidemark.config import load_config
from tidemark.stream_runtime.kafka.confluent.client import ConfluentKafkaClient
from tidemark.stream_runtime.kafka.ports import TopicSpec
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka

pytestmark = pytest.mark.kafka


def doctor(file: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    code = main(["doctor", "-c", str(file), "--timeout", "120s", "--json"])
    return code, {each["check"]: each for each in json.loads(capsys.readouterr().out)["checks"]}


def test_doctor_of_a_real_broker(
    kafka: EmbeddedKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_config(tmp_path, kafka.bootstrap_servers, coordinator="127.0.0.1:0")
    file.write_text(file.read_text().replace("name: orders", "name: doctored").replace("orders-in", "doc-in"))
    client = ConfluentKafkaClient.from_config(load_config(file))
    inspection = client.inspection()
    code, found = doctor(file, capsys)
    # What else runs on this machine may have the services' default ports.
    failing = [name for name, each in found.items() if each["status"] == "fails" and name != "ports"]
    assert failing == [], found
    assert code == (0 if found["ports"]["status"] == "ok" else 1)
    kafka_checks = ("kafka", "kafka settings", "own topics", "start")
    assert {found[name]["status"] for name in kafka_checks} == {"ok"}
    # A busy machine may make the one timed transaction slow, which is a warning; none may fail.
    assert found["transactions"]["findings"][0]["status"] == "ok"
    assert found["input topics"]["status"] == "warning"
    assert [each for each in inspection.topics() if each.startswith("do")] == []

    admin = client.admin()
    admin.create_topics(
        [TopicSpec("doctored.ledger", 3), TopicSpec("doc-in", 2, config={"retention.ms": "60000"})]
    )
    try:
        code, found = doctor(file, capsys)
    finally:
        admin.delete_topics(["doctored.ledger", "doc-in"])
        admin.close()
    assert code == 1
    texts = [each["text"] for each in found["own topics"]["findings"]]
    assert any("doctored.ledger has 3 partitions" in each for each in texts)
    assert any("retention.ms is" in each for each in texts)
    assert any("keeps records for 0.0 h" in each["text"] for each in found["input topics"]["findings"])
