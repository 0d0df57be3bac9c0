"""`make class-data`: records the class data archives that are missing, for the JVMs that tests and the demo
start by the hundred.

Each is recorded by what is done most often with such a JVM: a broker starts, takes a topic and ends; a driver
starts, runs a job of Python tasks and one step of a streaming query, and ends. What fails here is told and
nothing more, because nothing needs an archive.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import AdminClient, NewTopic

from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.platform import class_data, jars
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka
from tidemark.stream_runtime.platform.java import JavaRuntime, find_java
from tidemark.stream_writer.job import archived_jars, start_engine

TOPIC: Final = "class-data"
_QUERY_S: Final = 60.0


def main() -> int:
    """Always 0: an archive that cannot be had only costs time."""
    java = find_java()
    kafka, spark_kafka = (
        jars.ensure_jars(jars.KAFKA.name, java),
        jars.ensure_jars(jars.SPARK_KAFKA.name, java),
    )
    with tempfile.TemporaryDirectory(prefix="tidemark-class-data-") as folder:
        scratch = Path(folder)
        _record(class_data.KAFKA, java, kafka, lambda: _broker(scratch / "first", java, kafka))
        driver = archived_jars(spark_kafka)
        with EmbeddedKafka(scratch / "broker", kafka, java.home) as broker:
            _record(
                class_data.SPARK_DRIVER,
                java,
                driver,
                lambda: _driver(scratch / "driver", java, spark_kafka, broker.bootstrap_servers),
            )
    return 0


def _record(name: str, java: JavaRuntime, class_path: list[Path], use: Callable[[], None]) -> None:
    if class_data.archive(name, java.home, class_path) is not None:
        return
    clock = SystemClock()
    began_s = clock.monotonic_s()
    try:
        with class_data.recording(name, java.home, class_path):
            use()
    except Exception as error:
        _say(f"{name}: not recorded ({type(error).__name__}: {error}); JVMs start without it")
        return
    made = class_data.archive(name, java.home, class_path)
    told = "this Java records none" if made is None else f"{made.stat().st_size / 1e6:.0f} MB"
    _say(f"{name}: {told}, {clock.monotonic_s() - began_s:.0f} s")


def _broker(folder: Path, java: JavaRuntime, class_path: list[Path]) -> None:
    with EmbeddedKafka(folder, class_path, java.home) as broker:
        _make_topic(broker.bootstrap_servers)


def _make_topic(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result()


def _driver(folder: Path, java: JavaRuntime, spark_kafka: list[Path], address: str) -> None:
    _make_topic(address)
    engine = start_engine({}, java, folder, "builtins:len", jars=spark_kafka, log=folder / "log")
    session = engine.session
    session.sparkContext.parallelize([b"1", b"2"], 2).mapPartitions(list).collect()
    source = session.readStream.format("kafka").option("kafka.bootstrap.servers", address)
    seen = threading.Event()
    query = (
        source.option("subscribe", TOPIC)
        .load()
        .writeStream.foreachBatch(lambda *_: seen.set())
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    seen.wait(_QUERY_S)
    query.stop()
    gateway: Any = session.sparkContext._gateway
    engine.stop()
    # The JVM ends by itself, as one that records must, once nobody holds its standard input.
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_QUERY_S)


def _say(line: str) -> None:
    sys.stderr.write(f"class-data: {line}\n")


if __name__ == "__main__":
    sys.exit(main())
