"""The writer process of one case of `bench.writer_engine`: how it is driven."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from bench.writer_engine_tasks import RUNNER, BenchTask, run_in_arrow
from tidemark.config.model import Address
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.platform.jars import ensure_jars
from tidemark.stream_runtime.platform.java import find_java
from tidemark.stream_writer.coordinator_client import GrpcCoordinator
from tidemark.stream_writer.epoch_stream import EpochStream
from tidemark.stream_writer.job import SparkEngine, start_engine
from tidemark.stream_writer.service import WriterService


class TaskPlan:
    """The tasks of every epoch of a case."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        self._request = request
        self._kafka = {"bootstrap.servers": request["bootstrap"]}

    def __call__(self, begun: Any, slots: int) -> list[bytes]:
        encode = msgspec.msgpack.encode
        if self._request["work"] == "empty":
            return [encode(BenchTask(self._kafka)) for _ in self._request["ranges"]]
        folder = Path(self._request["folder"])
        return [
            encode(
                BenchTask(
                    self._kafka, topic, part, first, last, str(folder / f"{begun.epoch}-{part}.parquet")
                )
            )
            for topic, part, first, last in self._request["ranges"]
        ]


class ArrowEngine:
    """The same tasks through a data frame and mapInArrow."""

    def __init__(self, engine: SparkEngine) -> None:
        self._engine = engine
        self.slots = engine.slots

    def run_epoch_job(self, tasks: Sequence[bytes], partitions: int) -> list[bytes]:
        session = self._engine.session
        rows = session.sparkContext.parallelize([(bytearray(task),) for task in tasks], partitions)
        frame = session.createDataFrame(rows, "task binary").mapInArrow(run_in_arrow, "outcome binary")
        return [bytes(row.outcome) for row in frame.collect()]


def stream(engine: SparkEngine, request: Mapping[str, Any], service: WriterService, collect: bool) -> None:
    """Structured Streaming over the decisions topic; a batch is the sign to ask the coordinator."""

    def on_batch(frame: Any, batch_id: int) -> None:
        if collect:
            frame.selectExpr("cast(value as string)").collect()
        service.run_once(10.0)

    source = (
        engine.session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", request["bootstrap"])
        .option("kafka.isolation.level", "read_committed")
        # The end of a batch is a transaction marker: with the default the reader waits 500 ms for more.
        .option("kafka.fetch.max.wait.ms", "10")
        .option("subscribe", request["decisions"])
        .option("startingOffsets", "earliest")
        .load()
    )
    checkpoint = str(Path(request["folder"]) / "checkpoint")
    query = source.writeStream.foreachBatch(on_batch).option("checkpointLocation", checkpoint).start()
    query.awaitTermination()


def main() -> int:
    request = json.loads(sys.argv[1])
    streaming = request["shape"] in ("woken", "woken-collect", "waiting")
    java = find_java()
    jars = ensure_jars("spark-kafka", java) if streaming else ()
    scratch = Path(request["folder"]) / "scratch"
    engine = start_engine(request["settings"], java, scratch, RUNNER, jars=jars)
    coordinator = GrpcCoordinator(Address("127.0.0.1", request["coordinator"]), "bench", "bench", 16 << 20)
    driven = ArrowEngine(engine) if request["shape"] == "arrow" else engine
    service = WriterService(coordinator, driven, TaskPlan(request), SystemClock())
    if request["shape"] == "waiting":
        kafka = {"bootstrap.servers": request["bootstrap"]}
        checkpoint = Path(request["folder"]) / "checkpoint"
        EpochStream(engine, kafka, request["decisions"], checkpoint, service.write_one).run(threading.Event())
    elif streaming:
        stream(engine, request, service, request["shape"] == "woken-collect")
    else:
        service.run(threading.Event())
    return 0


if __name__ == "__main__":
    sys.exit(main())
