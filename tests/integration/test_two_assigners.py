"""Two assigner processes on four lanes: they share, leave, join and die while records come in."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from tests.input_model import DELETE_FIELD, SCHEMA, InputModel, RandomStream, Upsert, messages
from tests.interop.verdict import assert_same_rows, hudi_rs_snapshot
from tests.pipeline import Pipeline
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]

PARTITIONS = 3
LANES = 4
TARGET = 192 << 10


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


def sizes_of_latest_slices(region: Path) -> Counter[str]:
    """Bytes by file id: the newest base file, and its log files, by what the folder itself holds."""
    sizes: Counter[str] = Counter()
    for base in sorted(region.glob("*.parquet"), key=lambda each: each.stem.rsplit("_", 1)[1]):
        sizes[base.name.split("_")[0]] = base.stat().st_size
    for log in region.glob(".*.log.*"):
        sizes[log.name[1:].split("_")[0]] += log.stat().st_size
    return sizes


@pytest.mark.parametrize("type_", ["copy_on_write", "merge_on_read"])
def test_file_groups_of_two_assigners_grow_to_the_target_size(
    kafka: EmbeddedKafka, tmp_path: Path, type_: str
) -> None:
    epochs, rows, regions, random = 12, 1_800, ("region-0", "region-1"), Random(11)
    settings = {
        "name": f"sizes-{type_[:4]}",
        "type": type_,
        "record_key": ["id"],
        "partition": ["region"],
        "index": {"shards": 8, "lanes": LANES},
    }
    with Pipeline(
        tmp_path,
        kafka.bootstrap_servers,
        settings,
        SCHEMA,
        input_partitions=PARTITIONS,
        # What is judged is where the assigners put rows.
        spark=False,
        hoodie={"hoodie.parquet.max.file.size": str(TARGET)},
        # Lanes that move, as after a lease that lapsed on a stalled machine, begin file groups anew.
        limits={"lease": "120s"},
    ) as pipeline:
        pipeline.start("coordinator", "assigner-1", "assigner-2", "writer")
        wait_until_spread(pipeline, 2)
        for epoch in range(epochs):
            inserts = [
                # About 225 bytes in Arrow, of which a third is left in Parquet.
                Upsert(
                    {
                        "id": f"{epoch}-{n}",
                        "region": regions[n % 2],
                        "ts": n,
                        "name": random.randbytes(66).hex().ljust(200, "."),
                        "amount": None,
                    }
                )
                for n in range(rows)
            ]
            pipeline.feed_partitions(messages(inserts, PARTITIONS))
            pipeline.flush()
        assert pipeline.status()["last_commit"]["epoch"] >= epochs
        assert pipeline.status()["records"]["committed"]["inserts"] == epochs * rows
        wait_until_spread(pipeline, 2)
        pipeline.stop()

    for region in regions:
        sizes = sorted(sizes_of_latest_slices(pipeline.table / region).values())
        assert sum(sizes) > 4 * TARGET, "too few rows to tell"
        # What the other assigner still may put there by its lease comes on top; log files cost a little more.
        assert max(sizes) < TARGET * 2.25, sizes
        # Each assigner may have one file group that is not full yet, however many epochs there were.
        assert all(size > TARGET / 2 for size in sizes[2:]), sizes


def test_members_come_go_and_die_while_records_flow(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """Of a COPY_ON_WRITE table: that of the kill campaign, whose assigners die as well, is MERGE_ON_READ."""
    settings = {
        "name": "two-assigners",
        "type": "copy_on_write",
        "record_key": ["id"],
        "partition": ["region"],
        "ordering": "ts",
        "index": {"shards": 8, "lanes": LANES},
    }
    reads = {"delete_field": DELETE_FIELD}
    model, stream = InputModel(), RandomStream(seed=7, keys=900)
    with Pipeline(
        tmp_path,
        kafka.bootstrap_servers,
        settings,
        SCHEMA,
        input_partitions=PARTITIONS,
        spark=False,
        input=reads,
    ) as pipeline:

        def flow(chunks: int) -> None:
            for _ in range(chunks):
                events = list(stream.events(400))
                model.apply(events)
                pipeline.feed_partitions(messages(events, PARTITIONS))
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
