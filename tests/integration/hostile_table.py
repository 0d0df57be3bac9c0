"""A running table whose input gets records of any kind, with lanes that stand still and are moved on."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.hostile_records import row
from tests.hostile_values import HOSTILE_SCHEMA
from tests.interop.verdict import hudi_rs_snapshot
from tests.pipeline import Pipeline
from tests.raw_producer import RawProducer, RawRecord, RefusedBatchError, batch
from tidemark.stream_runtime.errors import StreamRuntimeError
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka

PARTITIONS: Final = 3


class Table:
    """A running table, and what it has to hold in the end."""

    def __init__(self, pipeline: Pipeline, kafka: EmbeddedKafka) -> None:
        self.pipeline, self.kafka = pipeline, kafka
        self.raw = RawProducer(kafka.bootstrap_servers)
        self.ids: set[str] = set()
        self.letters = 0

    def new_id(self) -> str:
        self.ids.add(made := f"good-{len(self.ids)}")
        return made

    def good(self) -> RawRecord:
        return RawRecord(json.dumps(row(self.new_id())).encode(), b"k")

    def send(self, partition: int, content: bytes) -> int:
        """As soon as the partition has its leader."""
        deadline = time.monotonic() + 60.0
        while True:
            try:
                return self.raw.send(self.pipeline.topic, partition, content)
            except RefusedBatchError as error:
                if "error 6" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def assert_whole(self) -> None:
        """Every good record is committed."""
        self.pipeline.flush()
        # Days and instants are among them that Python has none for.
        found = Counter(each["id"] for each in hudi_rs_snapshot(self.pipeline.table, ["id"]))
        assert self.ids - set(found) == set(), "good records that are not there"
        assert [key for key, count in found.items() if count > 1] == []

    def stopped(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.pipeline.status()["stopped_lanes"]
        return found


@contextmanager
def hostile_table(kafka: EmbeddedKafka, folder: Path, name: str) -> Iterator[Table]:
    """A table of this name, whose services run."""
    settings = {"name": name, "record_key": ["id"], "partition": ["region"], "ordering": "ts"}
    with Pipeline(
        folder,
        kafka.bootstrap_servers,
        settings,
        HOSTILE_SCHEMA,
        input_partitions=PARTITIONS,
        # Timestamps of any time, and records of any time are kept.
        input_settings={"message.timestamp.after.max.ms": str(2**63 - 1), "retention.ms": "-1"},
        spark=False,
    ) as pipeline:
        pipeline.start()
        made = Table(pipeline, kafka)
        try:
            yield made
        finally:
            made.raw.close()


def check_stopped_and_skipped(
    table: Table, partition: int, offset: int, last: int, reason: str = "unreadable"
) -> None:
    """The lane stands at the offset, the others go on; a skip ends it, and what lies behind is committed."""
    pipeline = table.pipeline
    pipeline.wait("the lane to stand still", lambda: bool(table.stopped()))
    (stopped,) = table.stopped()
    assert (stopped["topic"], stopped["partition"]) == (pipeline.topic, partition)
    assert (stopped["offset"], stopped["reason"]) == (offset, reason)
    assert any(f"{pipeline.topic}[{partition}]" in each for each in pipeline.status()["warnings"])
    with pytest.raises(
        StreamRuntimeError, match=rf"\[{partition}\] is not read any further than offset {offset}"
    ):
        pipeline.admin.flush(60_000)
    elsewhere = (partition + 1) % PARTITIONS
    base = table.send(elsewhere, batch([table.good()]))
    lane = f"{pipeline.topic}:{elsewhere}"
    pipeline.wait(
        "another lane to be committed",
        lambda: pipeline.admin.epochs(1)[0]["source_offsets"].get(lane, [0, 0])[1] > base,
    )
    place = ["--topic", pipeline.topic, "--partition", str(partition)]
    wrong = pipeline.command("input", "skip", *place, "--offset", str(offset + 1))
    assert wrong.returncode == 2, wrong.stderr
    assert f"stands at offset {offset}" in wrong.stderr
    skipped = pipeline.command("input", "skip", *place, "--offset", str(offset), "--json")
    assert skipped.returncode == 0, skipped.stderr
    done = json.loads(skipped.stdout)
    assert (done["first"], done["last"]) == (offset, last)
    table.assert_whole()
    assert not table.stopped()
    again = pipeline.command("input", "skip", *place, "--offset", str(offset))
    assert again.returncode == 2, again.stderr
    letters = [each for each in pipeline.dead_letters() if each.reason == "skipped"]
    assert (letters[-1].partition, letters[-1].offset) == (partition, offset)
    assert f"offsets {offset} to {last} were skipped" in letters[-1].detail
