"""What one epoch costs beyond its work, by the way the writer is driven.

    python -m bench.writer_engine [--epochs 60] [--case NAME …]

This process is the coordinator: it commits an entry to the decisions topic in a Kafka transaction, announces
the epoch over gRPC, and stops the watch when the report is in. The writer is a process of its own, a new one
for each case (`bench.writer_engine_driver`). Two tasks per epoch: empty ones, or ones that read a range of
256 KiB from Kafka (read_committed) and write it as a Parquet file. Figures: docs/adr/0003-writer-engine.md.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc
import psutil

from tidemark.commit.v1 import commit_pb2, commit_pb2_grpc
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.kafka.confluent.client import ConfluentKafkaClient
from tidemark.stream_runtime.kafka.ports import (
    OffsetRange,
    TopicPartition,
    TopicSpec,
    TransactionalProducer,
)
from tidemark.stream_runtime.platform import child
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka
from tidemark.stream_runtime.platform.jars import ensure_jars
from tidemark.stream_runtime.platform.java import JavaRuntime, find_java

TASKS: Final = 2
RANGE_BYTES: Final = 256 << 10
DECISIONS: Final = "bench.epochs"
DATA: Final = "bench.data"
_WARM_UP: Final = 15
_PAUSE_S: Final = 0.2
_EPOCH_TIMEOUT_S: Final = 60.0

STOCK: Final[Mapping[str, str]] = {
    "spark.python.daemon.module": "pyspark.daemon",
    "spark.driver.defaultJavaOptions": "-XX:+TieredCompilation",
    "spark.locality.wait": "3s",
}
STOCK_DAEMON: Final = {"spark.python.daemon.module": "pyspark.daemon"}
NO_ARCHIVES: Final = {"spark.python.daemon.module": "tidemark.stream_runtime.platform.spark_daemon"}


@dataclass(frozen=True)
class Case:
    """`shape`: loop | arrow | woken | woken-collect | waiting; `work`: empty | write.

    Woken: the entry that plans an epoch starts its batch. Waiting: the entry that commits the epoch before
    does, and the batch waits on the coordinator (`stream_writer.epoch_stream`).
    """

    name: str
    shape: str
    work: str = "empty"
    settings: Mapping[str, str] = field(default_factory=dict)


CASES: Final = (
    Case("loop, PySpark's own settings", "loop", settings=STOCK),
    Case("loop, PySpark's own daemon", "loop", settings=STOCK_DAEMON),
    Case("loop, daemon without archives only", "loop", settings=NO_ARCHIVES),
    Case("loop, the writer's settings", "loop"),
    Case("loop, second-tier compiler", "loop", settings={"spark.driver.defaultJavaOptions": ""}),
    Case("loop, web page on", "loop", settings={"spark.ui.enabled": "true"}),
    Case("loop, speculation on", "loop", settings={"spark.speculation": "true"}),
    Case("mapInArrow", "arrow"),
    Case("mapInArrow, code generation off", "arrow", settings={"spark.sql.codegen.wholeStage": "false"}),
    Case("mapInArrow, PySpark's own settings", "arrow", settings=STOCK),
    Case("foreachBatch, woken by the plan", "woken"),
    Case("foreachBatch, woken, batch collected", "woken-collect"),
    Case("foreachBatch, woken, PySpark's own settings", "woken", settings=STOCK),
    Case("foreachBatch, batch waits", "waiting"),
    Case("loop, reads and writes", "loop", "write"),
    Case("mapInArrow, reads and writes", "arrow", "write"),
    Case("foreachBatch, batch waits, reads and writes", "waiting", "write"),
)


# The stubs call every method abstract; grpc itself answers UNIMPLEMENTED for what is left out.
class BenchCoordinator(commit_pb2_grpc.CommitCoordinatorServicer):
    """Hands out one epoch at a time and notes when its report came."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._planned = 0
        self._reported = 0
        self._failure = ""

    def run_epoch(self, epoch: int) -> float:
        """Announces and waits; seconds from announcement to report. Raises RuntimeError when it failed."""
        started = time.perf_counter()
        with self._changed:
            self._planned = epoch
            self._changed.notify_all()
            done = self._changed.wait_for(
                lambda: self._reported == epoch or self._failure, timeout=_EPOCH_TIMEOUT_S
            )
        if not done or self._failure:
            raise RuntimeError(f"epoch {epoch}: {self._failure or 'no report in time'}")
        return time.perf_counter() - started

    def NextEpoch(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        with self._changed:
            self._changed.wait_for(lambda: self._planned > self._reported, timeout=request.wait_ms / 1000)
            available = self._planned > self._reported
        return commit_pb2.NextEpochResponse(available=available, epoch=self._planned, attempt=1, instant="1")

    def Begin(self, request: Any, context: Any) -> Any:  # noqa: N802
        return commit_pb2.BeginResponse(epoch=request.epoch, attempt=1, instant="1")

    def ReportWritten(self, request: Any, context: Any) -> Any:  # noqa: N802
        with self._changed:
            self._reported = request.epoch
            self._changed.notify_all()
        return commit_pb2.ReportWrittenResponse()

    def ReportFailed(self, request: Any, context: Any) -> Any:  # noqa: N802
        with self._changed:
            self._failure = request.reason
            self._changed.notify_all()
        return commit_pb2.ReportFailedResponse()


@dataclass(frozen=True)
class Place:
    """What every case needs: broker, coordinator, the ranges to read, a folder."""

    client: ConfluentKafkaClient
    bootstrap: str
    ranges: Sequence[OffsetRange]
    folder: Path


@contextmanager
def coordinator_server() -> Iterator[tuple[BenchCoordinator, int]]:
    coordinator = BenchCoordinator()  # type: ignore[abstract]
    server = grpc.server(futures.ThreadPoolExecutor(4))
    commit_pb2_grpc.add_CommitCoordinatorServicer_to_server(coordinator, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield coordinator, port
    finally:
        server.stop(0)


def prepare_topics(client: ConfluentKafkaClient) -> list[OffsetRange]:
    """Creates the topics; one transaction puts RANGE_BYTES of Arrow batches into each data partition."""
    admin = client.admin()
    admin.create_topics([TopicSpec(DECISIONS, 1), TopicSpec(DATA, TASKS)])
    producer = client.producer("bench-data")
    producer.init()
    producer.begin()
    payload = arrow_batch(RANGE_BYTES // 4)
    sent = [
        [producer.produce(TopicPartition(DATA, part), payload) for _ in range(4)] for part in range(TASKS)
    ]
    producer.flush()
    producer.commit()
    producer.close()
    return [
        OffsetRange(TopicPartition(DATA, part), each[0].offset, each[-1].offset)
        for part, each in enumerate(sent)
    ]


def arrow_batch(size: int) -> bytes:
    """An Arrow IPC stream of about `size` bytes: keys, numbers, texts that do not repeat."""
    import numpy as np
    import pyarrow as pa

    rows = size // 80
    numbers = np.random.default_rng(7).integers(0, 1 << 62, rows)
    texts = [f"{number:040x}" for number in numbers.tolist()]
    batch = pa.record_batch({"key": texts, "number": numbers, "other": numbers[::-1].copy()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())


def run_case(case: Case, place: Place, epochs: int) -> dict[str, float]:
    """Figures of one case, in ms and MB."""
    folder = place.folder / case.name.replace(" ", "_").replace("'", "").replace(",", "")
    folder.mkdir()
    with coordinator_server() as (coordinator, port):
        request = {
            "shape": case.shape,
            "work": case.work,
            "settings": dict(case.settings),
            "coordinator": port,
            "bootstrap": place.bootstrap,
            "decisions": DECISIONS,
            "ranges": [[*each.topic_partition, each.first, each.last] for each in place.ranges],
            "folder": str(folder),
        }
        command = [sys.executable, "-m", "bench.writer_engine_driver", json.dumps(request)]
        process = child.spawn(command, folder / "console.log")
        try:
            return measure(case, place, coordinator, process.pid, epochs)
        except RuntimeError as error:
            tail = (folder / "console.log").read_text()[-3_000:]
            raise RuntimeError(f"{case.name}: {error}\n{tail}") from error
        finally:
            child.end(process, SystemClock(), 15.0)
            shutil.rmtree(folder, ignore_errors=True)


def measure(
    case: Case, place: Place, coordinator: BenchCoordinator, pid: int, epochs: int
) -> dict[str, float]:
    decisions = place.client.producer("bench-decisions")
    decisions.init()
    times_s: list[float] = []
    first_s = cpu_s = 0.0
    for epoch in range(1, _WARM_UP + epochs + 1):
        decide(decisions, f"planned {epoch}")
        took_s = coordinator.run_epoch(epoch)
        if epoch == 1:
            first_s = took_s
        if epoch == _WARM_UP:
            cpu_s = cpu_seconds(pid)
        if epoch > _WARM_UP:
            times_s.append(took_s)
        if case.shape == "waiting":
            decide(decisions, f"committed {epoch}")
        time.sleep(_PAUSE_S)
    decisions.close()
    cpu_s = cpu_seconds(pid) - cpu_s
    times_s.sort()
    jvm_mb, worker_mb = memory_mb(pid)
    return {
        "start_ms": first_s * 1e3,
        "p50_ms": times_s[len(times_s) // 2] * 1e3,
        "p90_ms": times_s[int(len(times_s) * 0.9)] * 1e3,
        "p99_ms": times_s[min(len(times_s) - 1, int(len(times_s) * 0.99))] * 1e3,
        "cpu_ms": cpu_s / epochs * 1e3,
        "jvm_mb": jvm_mb,
        "worker_mb": worker_mb,
        "load": psutil.getloadavg()[0],
    }


def decide(decisions: TransactionalProducer, entry: str) -> None:
    decisions.begin()
    decisions.produce(TopicPartition(DECISIONS, 0), entry.encode())
    decisions.flush()
    decisions.commit()


def family(pid: int) -> list[psutil.Process]:
    top = psutil.Process(pid)
    every = [top, *top.children(recursive=True)]
    return [each for each in every if each.status() != psutil.STATUS_ZOMBIE]


def cpu_seconds(pid: int) -> float:
    """Processor time of the driver, its JVM and its workers so far."""
    return sum(sum(each.cpu_times()[:2]) for each in family(pid))


def memory_mb(pid: int) -> tuple[float, float]:
    """Resident memory of the JVM, and the most that one Python worker has for itself alone."""
    jvm = workers = 0.0
    for each in family(pid):
        if "java" in each.name():
            jvm = max(jvm, each.memory_info().rss / 1e6)
        elif any("daemon" in part for part in each.cmdline()):
            workers = max(workers, each.memory_full_info().uss / 1e6)
    return jvm, workers


def conditions(java: JavaRuntime) -> str:
    load = "/".join(f"{each:.1f}" for each in psutil.getloadavg())
    return (
        f"{platform.system()} {platform.release()}, {psutil.cpu_count()} CPUs shared by broker, driver, JVM "
        f"and workers, Python {platform.python_version()}, Java {java.home}, local[2,4], heap 512 MB, "
        f"{TASKS} tasks an epoch, {_PAUSE_S} s between epochs, first {_WARM_UP} epochs not counted, "
        f"load average {load}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="writer_engine", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--epochs", type=int, default=60, help="epochs measured per case")
    parser.add_argument("--case", action="append", help="only cases whose name contains this")
    options = parser.parse_args()
    wanted = [each for each in CASES if not options.case or any(part in each.name for part in options.case)]
    java = find_java()
    print("writer_engine:", conditions(java), flush=True)
    with tempfile.TemporaryDirectory(prefix="tidemark-writer-engine-") as name:
        folder = Path(name)
        with EmbeddedKafka(folder / "kafka", ensure_jars("kafka", java), java.home) as kafka:
            client = ConfluentKafkaClient({"bootstrap.servers": kafka.bootstrap_servers})
            place = Place(client, kafka.bootstrap_servers, prepare_topics(client), folder)
            for case in wanted:
                figures = run_case(case, place, options.epochs)
                text = "  ".join(f"{key} {value:7.1f}" for key, value in figures.items())
                print(f"writer_engine: {case.name:46s} {text}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
