"""Two assigner processes on four lanes: they share, leave, join and die while records come in."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from stream_runtime.platform.embedded_kafka import EmbeddedKafka
from tests.input_model import DELETE_FIELD, SCHEMA, InputModel, RandomStream, messages
from tests.interop.verdict import assert_same_rows, hudi_rs_snapshot
from tests.pipeline import Pipeline

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]

PARTITIONS = 3
LANES = 4


def lanes_of(pipeline: Pipeline, stage: str) -> list[int]:
    """How many lanes each member of the stage has, ascending."""
    return sorted(len(member["lanes"]) for member in pipeline.status()["services"][stage])


def spread(pipeline: Pipeline, lanes: int, members: int) -> list[int]:
    return sorted(lanes // members + (number < lanes % members) for number in range(members))


def wait_until_spread(pipeline: Pipeline, members: int) -> None:
    def is_so() -> bool:
        return lanes_of(pipeline, "assign") == spread(pipeline, LANES, members) and lanes_of(
            pipeline, "shuffle"
        ) == spread(pipeline, PARTITIONS, members)

    pipeline.wait(f"lanes spread over {members} assigners", is_so)


@pytest.mark.parametrize("type_", ["merge_on_read"])
def test_members_come_go_and_die_while_records_flow(kafka: EmbeddedKafka, tmp_path: Path, type_: str) -> None:
    settings = {
        "name": "two-assigners",
        "type": type_,
        "record_key": ["id"],
        "partition": ["region"],
        "ordering": "ts",
        "index": {"shards": 8, "lanes": LANES},
    }
    reads = {"delete_field": DELETE_FIELD}
    model, stream = InputModel(), RandomStream(seed=7, keys=900)
    with Pipeline(
        tmp_path, kafka.bootstrap_servers, settings, SCHEMA, input_partitions=PARTITIONS, input=reads
    ) as pipeline:

        def flow(chunks: int) -> None:
            for _ in range(chunks):
                events = list(stream.events(400))
                model.apply(events)
                for partition, part in messages(events, PARTITIONS).items():
                    pipeline.feed_partition(partition, part)
                time.sleep(0.3)

        pipeline.start("coordinator", "assigner-1", "assigner-2", "writer")
        flow(3)
        wait_until_spread(pipeline, 2)
        flow(4)
        pipeline.stop("assigner-1")
        flow(3)
        pipeline.start("assigner-3")
        flow(4)
        wait_until_spread(pipeline, 2)
        flow(2)
        pipeline.kill("assigner-2")
        flow(3)
        pipeline.start("assigner-4")
        flow(3)
        pipeline.kill("coordinator")
        flow(2)
        pipeline.start("coordinator")
        flow(2)
        pipeline.flush()
        wait_until_spread(pipeline, 2)

        assert_same_rows(hudi_rs_snapshot(pipeline.table), model.live, "rows")
        verified = pipeline.command("verify", "--json")
        assert verified.returncode == 0, verified.stdout
        assert json.loads(verified.stdout)["index_entries"] == len(model.rows)
        counts = pipeline.status()["records"]["committed"]
        outcomes = ("inserts", "updates", "deletes", "superseded", "no_ops", "dead_letters")
        assert counts["input"] == sum(counts[name] for name in outcomes) == model.received
        assert counts["inserts"] - counts["deletes"] == len(model.rows)
        pipeline.stop()
