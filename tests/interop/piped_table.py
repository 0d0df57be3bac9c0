"""A table of a whole pipeline, fed by a random stream and written by Spark in between, with its model."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pyarrow as pa

from tests.input_model import SCHEMA, Event, InputModel, RandomStream, Row, StayingStream, Upsert, messages
from tests.interop.judge import HudiJudge
from tests.pipeline import Pipeline
from tidemark.hudi_format.commit.foreign_writers import foreign_writer_options
from tidemark.hudi_format.schema import TableSchema

ARROW: Final = TableSchema.from_avro(json.dumps(SCHEMA), "orders").arrow
PARTITIONS: Final = 2


class PipedTable:
    """One pipeline with its model and stream. ``stays``: no key moves, and a delete names its partition."""

    def __init__(
        self, pipeline: Pipeline, model: InputModel, seed: int = 1, keys: int = 400, *, stays: bool = False
    ) -> None:
        self.pipeline = pipeline
        self.model = model
        self.stream = StayingStream(seed, keys) if stays else RandomStream(seed, keys)
        self.fed: list[Row] = []

    @property
    def path(self) -> Path:
        return self.pipeline.table

    def feed(self, events: Sequence[Event]) -> str:
        """Feeds, waits for the commit, returns its completion time."""
        self.fed += [event.row for event in events if isinstance(event, Upsert)]
        self.model.apply(events)
        self.send(events)
        self.pipeline.flush()
        return str(self.pipeline.status()["last_commit"]["completion"])

    def send(self, events: Sequence[Event]) -> None:
        """To the input alone."""
        region_of = self.stream.region_of if isinstance(self.stream, StayingStream) else None
        self.pipeline.feed_partitions(messages(events, PARTITIONS, region_of=region_of))

    def epochs(self, count: int, size: int = 700) -> str:
        for _ in range(count):
            completion = self.feed(list(self.stream.events(size)))
        return completion

    def foreign_upsert(self, judge: HudiJudge, rows: list[Row]) -> None:
        self._foreign_write(judge, rows, "upsert")
        self.model.apply([Upsert(row) for row in rows])

    def foreign_delete(self, judge: HudiJudge, keys: list[str]) -> None:
        gone = [self.model.rows.pop(key) for key in keys]
        self._foreign_write(judge, gone, "delete")

    def _foreign_write(self, judge: HudiJudge, rows: list[Row], operation: str) -> None:
        """With what we ask of other writers, and nothing of what the judge knows better."""
        told = foreign_writer_options(str(self.path))
        judge.write_as_told(self.path, pa.Table.from_pylist(rows, schema=ARROW), operation, told)

    def write_at_the_same_time(self, judge: HudiJudge) -> None:
        """Spark inserts rows of its own while records flow; each takes turns with the other. It switches its
        stats on at the start, as with Hudi's default options, and Tidemark takes them out in between.
        """
        theirs = [{**self.stream.row(f"spark-{n}", 1), "region": "of-spark-alone"} for n in range(30)]
        rows, options = pa.Table.from_pylist(theirs, schema=ARROW), foreign_writer_options(str(self.path))
        options |= {
            f"hoodie.metadata.index.{stats}.stats.enable": "true" for stats in ("column", "partition")
        }
        with ThreadPoolExecutor(1) as pool:
            spark = pool.submit(judge.upsert, self.path, rows, options)
            while not spark.done():
                self.feed(list(self.stream.events(150)))
                # Some epochs while Spark works are enough; each leaves files for the judge to read.
                time.sleep(1.0)
            spark.result()
        self.model.apply([Upsert(row) for row in theirs])
