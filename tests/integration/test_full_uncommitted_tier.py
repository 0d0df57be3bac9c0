"""The memory for index entries that no epoch covers is full. Tagging rests, also after one assigner took over
what two held, and all of it is committed when there is a writer. The index of that table is then warmed and
asked by commands.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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
        warm_and_look_up(pipeline, tmp_path / "keys.txt")
        # The one that took over is alive, and ends as it should.
        pipeline.stop()


def warm_and_look_up(pipeline: Pipeline, keys: Path) -> None:
    """`tidemark index warm` without an assigner and with one, then `tidemark lookup --file`."""
    answer(pipeline, "services", "run", "compact-index", "--wait")
    pipeline.stop("assigner-1")
    pipeline.wait("nobody who has a lane", lambda: lanes(pipeline) == [])
    warmed = {"shards": 4, "loaded": 4, "entries": ROWS}
    assert answer(pipeline, "index", "warm") == {"by": "folder", **warmed}
    pipeline.start("assigner-1")
    pipeline.wait("an assigner with all lanes", lambda: lanes(pipeline) == [LANES])
    assert answer(pipeline, "index", "warm") == {"by": "assigners", **warmed}
    # More than one batch, each key followed by one that the table does not have.
    keys.write_text("".join(f"key-{n:032d}\nnone-{n}\n" for n in range(ROWS)))
    document = answer(pipeline, "lookup", "--file", str(keys))
    assert (document["keys"], document["rows"]) == (2 * ROWS, ROWS)
    assert [(at["key"], at["partition_path"], at["tier"] == "none") for at in document["found"]] == [
        row for n in range(ROWS) for row in ((f"key-{n:032d}", f"r{n % 3}", False), (f"none-{n}", None, True))
    ]


def answer(pipeline: Pipeline, *arguments: str) -> dict[str, Any]:
    """The document of a command that succeeds."""
    done = pipeline.command(*arguments, "--json")
    assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    document: dict[str, Any] = json.loads(done.stdout)
    return document
