"""Forks the Python workers of the writer, each ready to write.

Named to Spark by `spark.python.daemon.module`. Four things differ from PySpark's own daemon, each measured in
docs/adr/0003-writer-engine.md:

- no archives on the import path: every task would read their directories again;
- what the tasks need is imported before the fork, once;
- the imported objects are frozen, so that the collection after each task does not walk them;
- the JVM's bytes are acknowledged at once. The JVM writes the head of a task in two small pieces; without an
  acknowledgement of the first, Nagle's algorithm holds the second back for the 40 ms of a delayed one.

Nothing imported here may start a thread or open a Kafka client: clients do not survive a fork
(`worker_context` makes them in the worker).
"""

from __future__ import annotations

import gc
import importlib
import io
import os
import platform
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any, BinaryIO, Final

from tidemark.stream_runtime.platform.spark_daemon import drop_archives

PRELOADED: Final = (
    "confluent_kafka",
    "fastavro",
    "msgspec",
    "numpy",
    "pyarrow.compute",
    "pyarrow.parquet",
    "tidemark.stream_writer.task_entry",
    "tidemark.stream_writer.tasks",
)
_BUFFER_BYTES: Final = 65_536
# Linux alone has it; elsewhere the workers are only slower.
_TCP_QUICKACK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)

WorkerMain = Callable[[Any, BinaryIO], None]


class AcknowledgingReader(io.RawIOBase):
    """Reads a connected TCP socket and acknowledges what came before handing it on.

    Linux leaves its quick mode by itself, so the option is set again after every read.
    """

    def __init__(self, connection: socket.socket) -> None:
        super().__init__()
        self._connection = connection

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        received = self._connection.recv_into(buffer)
        if _TCP_QUICKACK is not None:
            self._connection.setsockopt(socket.IPPROTO_TCP, _TCP_QUICKACK, 1)
        return received

    def close(self) -> None:
        self._connection.close()
        super().close()


def acknowledging(worker_main: WorkerMain) -> WorkerMain:
    """PySpark's worker function, reading through an AcknowledgingReader.

    The stream that PySpark made holds nothing at that moment: the JVM sends a task only after the last one's
    end, and the first only after its secret was answered.
    """

    def run(infile: BinaryIO, outfile: BinaryIO) -> None:
        connection = socket.socket(fileno=os.dup(infile.fileno()))
        with io.BufferedReader(AcknowledgingReader(connection), _BUFFER_BYTES) as reader:
            worker_main(reader, outfile)

    return run


def preload() -> None:
    """Imports what tasks need and keeps the collector away from it.

    Raises RuntimeError when an import started a thread: a worker forked with it could hang in a lock that
    nobody holds any more; ImportError when this interpreter lacks something, which Spark shows the driver.
    """
    for module in PRELOADED:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise ImportError(
                f"{error}: the Python of this executor, {sys.executable} {platform.python_version()} on "
                f"{platform.node()}, cannot run the writer's tasks. Install Tidemark's packages for a Python "
                f"3.11 there and name it in spark.pyspark.python, or ship what `tidemark archive "
                f"--dependencies` makes (docs/spark-cluster.md)"
            ) from error
    if threading.active_count() > 1:
        raise RuntimeError(f"an import of {PRELOADED} started a thread: workers cannot be forked safely")
    gc.collect()
    gc.freeze()


def main() -> None:
    drop_archives()
    daemon: Any = importlib.import_module("pyspark.daemon")
    preload()
    daemon.worker_main = acknowledging(daemon.worker_main)
    daemon.manager()


if __name__ == "__main__":
    main()
