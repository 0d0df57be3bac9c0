"""Task functions that Spark's workers run in test_spark_engine.py. A task is JSON: what to do, and where."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from tidemark.hudi_format.errors import FencedOutError
from tidemark.stream_runtime.kafka.ports import TopicPartition
from tidemark.stream_writer.table_services.bins import BinReport, MergeFailed, decode_bin, encode_report
from tidemark.stream_writer.task_outcome import TaskSucceeded
from tidemark.stream_writer.worker_context import WorkerContext

_MEET_S: Final = 600.0


def run_task(task: bytes, worker: WorkerContext) -> TaskSucceeded:
    order: dict[str, Any] = json.loads(task)
    action = order["do"]
    if action == "echo":
        return TaskSucceeded((task,))
    if action == "sleep":
        time.sleep(order["seconds"])
        return TaskSucceeded((task,))
    if action == "meet":
        return TaskSucceeded((b"met" if _meets(Path(order["mine"]), Path(order["others"])) else b"alone",))
    if action == "keep":
        worker.kept_tables(1, 1 << 20).put(order["name"], 0, lambda: [pa.table({"n": [order["number"]]})])
        return TaskSucceeded(())
    if action == "kept":
        _meets(Path(order["mine"]), Path(order["others"]))
        found = worker.kept_tables(2, 1 << 20).get(order["name"]) or []
        return TaskSucceeded(tuple(json.dumps(table.to_pydict()).encode() for table in found))
    if action == "read":
        reader = worker.range_reader(order["kafka"])
        messages = reader.read(TopicPartition(order["topic"], 0), order["first"], order["last"])
        return TaskSucceeded((*(message.value or b"" for message in messages), str(id(reader)).encode()))
    if action == "void":
        _count_try(order)
        raise FencedOutError("the attempt is void")
    tries = _count_try(order)
    if tries <= order["failures"]:
        if action == "die":
            os._exit(1)
        raise OSError(f"try {tries} fails")
    return TaskSucceeded((task,))


def run_until_released(data: bytes) -> bytes:
    """In the place of merges: makes `merges` in the table's folder, and ends when `release` is there."""
    folder = Path(decode_bin(data).base_uri)
    failures = () if _meets(folder / "merges", folder / "release") else (MergeFailed(0, "Alone", ""),)
    return encode_report(BinReport((), failures))


def _meets(mine: Path, others: Path) -> bool:
    """Whether another task, which looks for `mine`, is at work at the same time as this one."""
    mine.touch()
    end = time.monotonic() + _MEET_S
    while not others.exists():
        if time.monotonic() > end:
            mine.unlink()
            return False
        time.sleep(0.01)
    return True


def _count_try(order: dict[str, Any]) -> int:
    """Notes this try and the process it ran in; how many there were."""
    log = Path(order["log"])
    with log.open("a") as handle:
        handle.write(f"{os.getpid()}\n")
    return len(log.read_text().splitlines())
