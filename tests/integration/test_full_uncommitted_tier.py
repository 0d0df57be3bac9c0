"""The memory for index entries that no epoch covers is full. Tagging rests, also after one assigner took over
what two held, and all of it is committed when there is a writer.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.input_model import SCHEMA, Upsert, messages
from tests.pipeline import Pipeline
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

PARTITIONS = 2
LANES = 2
ROWS = 9_000


def held(pipeline: Pipeline) -> tuple[float, float]:
    """Bytes of such entries in all assigners, and how many there may be.

    An assigner that has just joined has reported nothing yet: it counts as empty.
    """
    members = pipeline.status()["services"]["assign"]
    figures = [member["figures"] for member in members if "uncommitted_bytes" in member["figures"]]
    return (
        sum(each["uncommitted_bytes"] for each in figures),
        max((each["uncommitted_bytes_max"] for each in figures), default=0),
    )


def lanes(pipeline: Pipeline) -> list[int]:
    return sorted(len(member["lanes"]) for member in pipeline.status()["services"]["assign"])


def test_a_full_tier_is_backpressure_for_two_assigners_and_for_the_one_that_takes_over(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    with Pipeline(
        tmp_path,
        kafka.bootstrap_servers,
        {
            "name": "full-tier",
            "record_key": ["id"],
            "partition": ["region"],
            "ordering": "ts",
            "index": {"shards": 4, "lanes": LANES},
        },
        SCHEMA,
        input_partitions=PARTITIONS,
        spark=False,
        state={"path": "./state", "memory": "1MiB"},
        limits={"lease": "6s", "transaction_records": 200},
    ) as pipeline:
        pipeline.start("coordinator", "assigner-1", "assigner-2")
        pipeline.wait("a lane for each assigner", lambda: lanes(pipeline) == [1, 1])
        rows = [
            Upsert({"id": f"key-{n:032d}", "region": f"r{n % 3}", "ts": n, "name": None, "amount": None})
            for n in range(ROWS)
        ]
        pipeline.feed_partitions(messages(rows, PARTITIONS))

        def is_full() -> bool:
            size, most = held(pipeline)
            return 0 < most <= size

        pipeline.wait("entries that fill their memory", is_full)
        pipeline.kill("assigner-2")
        # All that both had tagged is now held by one.
        pipeline.wait("a takeover of a full tier", lambda: lanes(pipeline) == [LANES] and is_full())
        counts = pipeline.status()["records"]
        assert 0 < counts["uncommitted"]["input"] < ROWS
        assert counts["committed"]["input"] == 0

        pipeline.start("writer")
        pipeline.flush()
        assert pipeline.status()["records"]["committed"]["inserts"] == ROWS
        verified = pipeline.command("verify", "--json")
        assert verified.returncode == 0, verified.stdout
        assert json.loads(verified.stdout)["index_entries"] == ROWS
        # The one that took over is alive, and ends as it should.
        pipeline.stop()
