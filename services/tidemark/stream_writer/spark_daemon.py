"""The daemon that forks the writer's Python workers, with everything imported that a task needs.

`spark.python.daemon.module` names it to Spark. It differs from PySpark's own daemon in five points, each
measured in docs/adr/0003-writer-engine.md:

- There are no archives on the import path. Each task would read their directories again.
- The modules that tasks need are imported once, before the fork.
- PyArrow makes its first array without a look for pandas, which no task uses (`arrow_alone`).
- The imported objects are frozen (`gc.freeze`), so the collection after each task does not visit them.
- Bytes of the JVM are acknowledged at once. The JVM sends the head of a task in two small pieces, and Nagle's
  algorithm sends the second only after the first was acknowledged, which Linux otherwise delays by 40 ms.

No module that is imported here may start a thread or open a Kafka client, because neither survives a fork
(`worker_context` makes the clients in the worker).
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

from tidemark.stream_runtime.platform.arrow_alone import use_arrow_alone
from tidemark.stream_runtime.platform.loading import without_collections
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
# Only Linux has it. On other systems the workers are slower.
_TCP_QUICKACK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)

WorkerMain = Callable[[Any, BinaryIO], None]


class AcknowledgingReader(io.RawIOBase):
    """Reads from a connected TCP socket and has the received bytes acknowledged at once.

    Linux switches TCP_QUICKACK off by itself, so the option is set after every read.
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
    """PySpark's worker function, with an AcknowledgingReader in place of the stream that PySpark made.

    No bytes are lost in that stream's buffer: the JVM sends the first task only after the worker answered its
    secret, and the next one only after the end of the last.
    """

    def run(infile: BinaryIO, outfile: BinaryIO) -> None:
        connection = socket.socket(fileno=os.dup(infile.fileno()))
        with io.BufferedReader(AcknowledgingReader(connection), _BUFFER_BYTES) as reader:
            worker_main(reader, outfile)

    return run


def preload() -> None:
    """Imports the modules that tasks need, and freezes their objects for the garbage collector.

    Raises ImportError if this interpreter lacks a package; Spark passes its text on to the driver. Raises
    RuntimeError if an import started a thread: a forked worker could wait for ever for a lock of that thread,
    which does not exist in the worker.
    """
    try:
        with without_collections():
            use_arrow_alone()
            for module in PRELOADED:
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
    """Runs PySpark's daemon with the changes above."""
    drop_archives()
    daemon: Any = importlib.import_module("pyspark.daemon")
    preload()
    daemon.worker_main = acknowledging(daemon.worker_main)
    daemon.manager()


if __name__ == "__main__":
    main()
