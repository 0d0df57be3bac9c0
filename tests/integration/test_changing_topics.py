"""Input topics that change while the table is served, on a real broker: grown, deleted, made again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from tests.grown_topic import grow_topic
from tests.input_model import SCHEMA
from tests.interop.verdict import hudi_rs_snapshot
from tests.pipeline import Message, Pipeline
from tidemark.stream_runtime.kafka.confluent.client import ConfluentKafkaClient
from tidemark.stream_runtime.kafka.ports import TopicSpec
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

TABLE = {"name": "changing", "record_key": ["id"], "partition": ["region"]}
OTHER = "changing-other"


@pytest.fixture(scope="module")
def pipeline(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """One table for all tests, which are the days of its life, in order. It has no ordering field."""
    topics = {"topics": ["changing-input", OTHER]}
    folder = tmp_path_factory.mktemp("changing")
    with Pipeline(folder, kafka.bootstrap_servers, TABLE, SCHEMA, spark=False, input=topics) as made:
        made.start()
        yield made


def records(prefix: str, count: int) -> list[Message]:
    rows = [{"id": f"{prefix}-{n}", "region": "r", "ts": n, "name": prefix} for n in range(count)]
    return [(row["id"].encode(), json.dumps(row).encode()) for row in rows]  # type: ignore[attr-defined]


def feed(pipeline: Pipeline, partition: int, messages: list[Message], topic: str = "") -> None:
    """By a producer of its own: one that is there learns only after minutes that a topic grew."""
    producer = ConfluentKafkaClient.from_config(pipeline.config).plain_producer()
    producer.produce_batch(topic or pipeline.topic, messages, partition)
    producer.flush()
    producer.close()


def keys(pipeline: Pipeline, prefix: str) -> int:
    rows = hudi_rs_snapshot(pipeline.table)
    return sum(1 for row in rows if str(row["id"]).startswith(f"{prefix}-"))


def warnings(pipeline: Pipeline) -> str:
    return "\n".join(pipeline.status()["warnings"])


def accept(pipeline: Pipeline, *arguments: str) -> dict[str, Any]:
    done = pipeline.command("input", "accept-topic", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_partitions_that_a_topic_gets_are_read_at_once_and_a_flush_waits_for_them(
    pipeline: Pipeline, kafka: EmbeddedKafka
) -> None:
    feed(pipeline, 0, records("before", 50))
    pipeline.flush()
    grow_topic(kafka.bootstrap_servers, pipeline.topic, 4)
    feed(pipeline, 3, records("grown", 70))
    pipeline.flush()
    assert keys(pipeline, "grown") == 70
    assert "grew from 2 to 4 partitions" in warnings(pipeline)


def test_after_a_restart_of_all_services_they_are_read_on(pipeline: Pipeline) -> None:
    pipeline.stop()
    feed(pipeline, 2, records("restarted", 40))
    pipeline.start()
    assert "grew from 2 to 4 partitions" in warnings(pipeline)
    pipeline.flush()
    assert keys(pipeline, "restarted") == 40
    assert accept(pipeline, pipeline.topic)["from_start"] is False
    assert "grew" not in warnings(pipeline)


def test_a_topic_that_is_made_again_stops_alone_and_is_read_whole_once_it_is_accepted(
    pipeline: Pipeline,
) -> None:
    admin = ConfluentKafkaClient.from_config(pipeline.config).admin()
    try:
        admin.delete_topics([pipeline.topic])
        admin.create_topics([TopicSpec(pipeline.topic, 2)])
    finally:
        admin.close()
    # At the former position, 50, there is something to read.
    feed(pipeline, 0, records("again", 200))
    pipeline.wait("the warning", lambda: "is not the one that was read so far" in warnings(pipeline))
    feed(pipeline, 0, records("beside", 30), topic=OTHER)
    pipeline.wait("the other topic", lambda: pipeline.status()["records"]["committed"]["input"] == 190)
    refused = pipeline.command("flush")
    assert refused.returncode == 2
    assert f"tidemark input accept-topic {pipeline.topic}" in refused.stderr
    assert keys(pipeline, "again") == 0
    taken = accept(pipeline, pipeline.topic)
    assert (taken["from_start"], taken["partitions"]) == (True, 2)
    pipeline.flush()
    assert keys(pipeline, "again") == 200
    assert keys(pipeline, "beside") == 30


def test_after_that_a_restart_and_the_proof_of_the_files(pipeline: Pipeline) -> None:
    pipeline.stop()
    pipeline.start()
    feed(pipeline, 1, records("later", 20))
    pipeline.flush()
    assert keys(pipeline, "later") == 20
    verified = pipeline.command("verify", "--json")
    assert verified.returncode == 0, verified.stdout
    assert json.loads(verified.stdout)["rows"] == 50 + 70 + 40 + 200 + 30 + 20


def test_a_misspelt_topic_is_refused_and_a_topic_that_leaves_is_asked_for(pipeline: Pipeline) -> None:
    pipeline.stop()
    for topics, said in (
        ([pipeline.topic, OTHER, "changing-othr"], "does not exist"),
        ([pipeline.topic], f"tidemark input remove-topic {OTHER}"),
    ):
        other = pipeline.write_config("other.yaml", {"input": {"topics": topics}})
        pipeline.start_process("coordinator", other)
        assert pipeline.exit_code("coordinator") == 2
        assert said in pipeline.log("coordinator")
    removed = pipeline.command("input", "remove-topic", OTHER, config=other)
    assert removed.returncode == 0, removed.stderr
    pipeline.start_process("coordinator", other)
    pipeline.wait("the coordinator", pipeline.coordinator_answers)
    assert OTHER not in pipeline.status()["input_topics"]


def test_a_copy_does_not_take_the_table_over_and_gets_a_ledger_of_its_own(pipeline: Pipeline) -> None:
    pipeline.stop()
    copy = pipeline.folder / "copy"
    shutil.copytree(pipeline.table, copy)
    place = {"table": {"path": str(copy)}, "input": {"topics": [pipeline.topic]}}
    config = pipeline.write_config("copy.yaml", place)
    pipeline.start_process("coordinator", config)
    assert pipeline.exit_code("coordinator") == 2
    assert "was the table moved or copied?" in pipeline.log("coordinator")
    for arguments, said in (
        (("recover",), "moved or copied"),
        (("table", "adopt", "--new-ledger", "--yes"), "moved or copied"),
        (("table", "adopt", "--moved"), "this one is a copy"),
        (("table", "adopt", "--copied", "--yes"), "a table.name of its own"),
        (("table", "adopt", "--copied"), "add --yes"),
    ):
        refused = pipeline.command(*arguments, config=config)
        assert refused.returncode != 0
        assert said in " ".join(refused.stderr.split()), arguments
    own = pipeline.write_config("own.yaml", {**place, "table": {"path": str(copy), "name": "changing-copy"}})
    adopted = pipeline.command("table", "adopt", "--copied", "--yes", "--json", config=own)
    assert adopted.returncode == 0, adopted.stderr
    kept = json.loads(adopted.stdout)["new_ledger"]["positions"]
    assert kept[f"{pipeline.topic}@2:0"] == 200
    pipeline.start_process("coordinator", pipeline.folder / "other.yaml")
    pipeline.wait("the table that was copied", pipeline.coordinator_answers)
    pipeline.stop()


def test_a_moved_table_goes_on_where_it_is_now(pipeline: Pipeline) -> None:
    moved = pipeline.folder / "moved"
    # As between file systems: other files, and the former ones are gone.
    shutil.copytree(pipeline.table, moved)
    shutil.rmtree(pipeline.table)
    place = {"table": {"path": str(moved)}, "input": {"topics": [pipeline.topic]}}
    config = pipeline.write_config("moved.yaml", place)
    pipeline.start_process("coordinator", config)
    assert pipeline.exit_code("coordinator") == 2
    told = pipeline.command("table", "adopt", "--moved", config=config)
    assert told.returncode == 0, told.stderr
    pipeline.start_process("coordinator", config)
    pipeline.wait("the coordinator", pipeline.coordinator_answers)
