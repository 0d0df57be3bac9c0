"""The tasks of `bench.writer_engine`, as Spark's workers import them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.stream_runtime.kafka.ports import TopicPartition
from tidemark.stream_writer.task_entry import TaskEntry
from tidemark.stream_writer.task_outcome import TaskSucceeded
from tidemark.stream_writer.worker_context import WorkerContext

RUNNER: Final = "bench.writer_engine_tasks:run_task"


class BenchTask(msgspec.Struct):
    """Nothing to do, or a range to read and the file to write it to."""

    kafka: dict[str, str]
    topic: str = ""
    partition: int = 0
    first: int = 0
    last: int = -1
    file: str = ""


def run_task(task: bytes, worker: WorkerContext) -> TaskSucceeded:
    work = msgspec.msgpack.decode(task, type=BenchTask)
    if not work.file:
        return TaskSucceeded()
    reader = worker.range_reader(work.kafka)
    messages = reader.read(TopicPartition(work.topic, work.partition), work.first, work.last)
    table = pa.concat_tables([pa.ipc.open_stream(message.value).read_all() for message in messages])
    pq.write_table(table, work.file, compression="zstd")
    return TaskSucceeded((work.file.encode(),))


def run_in_arrow(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    entry = TaskEntry(RUNNER, 4)
    for batch in batches:
        outcomes = list(entry(batch.column(0).to_pylist()))
        yield pa.record_batch({"outcome": pa.array(outcomes, pa.binary())})
