"""What a Python worker process keeps from task to task: its connections to Kafka, and files that it mapped.

A worker runs tasks of many epochs. A new consumer costs 6 ms, a cached one 2 ms or less. A client must be
made in the process that uses it, because it does not survive a fork. Spark ends workers that were idle for a
minute, and their clients with them.

Of a table with a secondary index the workers of an executor decode a file once instead of in each epoch,
which would be most of what such an index costs, and share what they decoded in a folder of the executor. No
task depends on what is there: files of the table do not change under their names.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from tidemark.hudi_format.file_group.kept_tables import KeptFolder, KeptTables, NothingKept
from tidemark.stream_runtime.clock import Clock, SystemClock
from tidemark.stream_runtime.kafka.confluent.client import ConfluentKafkaClient
from tidemark.stream_runtime.kafka.ports import RangeReader

READERS_MAX: Final = 4
_KEPT: Final = "tidemark-values"


class Worker(Protocol):
    """What a task needs of the process that it runs in."""

    @property
    def clock(self) -> Clock: ...

    def range_reader(self, kafka: Mapping[str, str]) -> RangeReader:
        """A read_committed reader of the cluster that the section `kafka:` names."""
        ...

    def kept_tables(self, epoch: int, bytes_max: int) -> KeptTables:
        """Rows of files that earlier tasks read, of this process and of others. `bytes_max`: what all of them
        may take.
        """
        ...


class WorkerContext:
    """The `Worker` of this process. Used by one thread, because Spark runs one task at a time in a worker."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._pid = os.getpid()
        self._readers: dict[tuple[tuple[str, str], ...], RangeReader] = {}
        self._kept = kept_folder(os.environ)

    def range_reader(self, kafka: Mapping[str, str]) -> RangeReader:
        """A read_committed reader of the cluster that the section `kafka:` names, made at the first call.

        Raises RuntimeError in a process that is a fork of the one that made this context.
        """
        if os.getpid() != self._pid:
            raise RuntimeError(
                f"this worker context belongs to process {self._pid}: clients do not survive a fork"
            )
        key = tuple(sorted(kafka.items()))
        if key not in self._readers:
            if len(self._readers) >= READERS_MAX:
                self.drop_readers()
            self._readers[key] = ConfluentKafkaClient(kafka, self.clock).range_reader()
        return self._readers[key]

    def kept_tables(self, epoch: int, bytes_max: int) -> KeptTables:
        """As `Worker`."""
        if self._kept is None:
            return NothingKept()
        self._kept.next_round(epoch, bytes_max)
        return self._kept

    def drop_readers(self) -> None:
        """Closes every reader, so that the task after a failed one opens new connections."""
        while self._readers:
            self._readers.popitem()[1].close()


def kept_folder(environment: Mapping[str, str]) -> KeptFolder | None:
    """A folder for all workers of this executor, in the first of Spark's local folders that is there. Spark
    names them to its workers in the same order, and deletes them when the executor ends. None without any.
    """
    named = environment.get("SPARK_LOCAL_DIRS", "").split(",")
    folders = (Path(folder) for folder in named if os.path.isdir(folder))
    return next((KeptFolder(folder / _KEPT) for folder in folders), None)


_context: WorkerContext | None = None


def worker_context() -> WorkerContext:
    """This process's context, made at the first call."""
    global _context
    if _context is None:
        _context = WorkerContext(SystemClock())
    return _context
