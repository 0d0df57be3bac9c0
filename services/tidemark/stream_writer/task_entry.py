"""Runs a task in a Python worker, and turns its errors into outcomes.

A task is bytes. Its runner is a function named as `module:function`, which is called with (task bytes,
WorkerContext) and returns a TaskSucceeded. This module runs in Spark's workers; the driver only pickles a
reference to it.

Spark runs a task that raised once more, in a new worker with new connections to Kafka. So:

- An error that another run may cure (kind RETRYABLE, or no kind) is raised.
- An error of kind FENCED, CONFLICT, INVALID or CORRUPT is returned as an outcome at once.
- The error of the last attempt that Spark allows is returned as well.

So a job fails as a whole only if workers die.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, cast

import msgspec
import pyarrow as pa

from tidemark.errors import ErrorKind
from tidemark.stream_runtime.failpoint import FailpointRegistry
from tidemark.stream_writer import task_outcome
from tidemark.stream_writer.failpoints import WriterFailpoint, worker_failpoints
from tidemark.stream_writer.task_outcome import TaskOutcome, TaskSucceeded
from tidemark.stream_writer.worker_context import WorkerContext, worker_context

TaskRunner = Callable[[bytes, WorkerContext], TaskSucceeded]
BIN_RUNNER: Final = "tidemark.stream_writer.table_services.in_child:run_bin"
ROWS_RUNNER: Final = "tidemark.stream_writer.index_rebuild:run_rows"
SHARDS_RUNNER: Final = "tidemark.stream_writer.index_rebuild:run_shards"

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_runners: dict[str, Callable[..., Any]] = {}
_failpoints: FailpointRegistry | None = None


class TaskEntry(msgspec.Struct, frozen=True):
    """The function that `mapPartitions` calls. `attempts_max` is Spark's limit (`spark.task.maxFailures`)."""

    runner: str
    attempts_max: int

    def __call__(self, tasks: Iterable[bytes]) -> Iterator[bytes]:
        # There already in Spark's workers. Processes that merge without Spark are not to load it.
        from pyspark import TaskContext

        context = TaskContext.get()
        attempt = context.attemptNumber() if context is not None else 0
        runner = find_runner(self.runner)
        for task in tasks:
            yield task_outcome.encode(run_one(runner, task, worker_context(), attempt, self.attempts_max))


class BinEntry(msgspec.Struct, frozen=True):
    """The function that `mapPartitions` calls for bins of table services. Its runner is given the bytes of a
    bin, and returns those of a report; errors of operations are in there.
    """

    runner: str

    def __call__(self, bins: Iterable[bytes]) -> Iterator[bytes]:
        runner = _found(self.runner)
        for work in bins:
            yield runner(work)


class RowsEntry(msgspec.Struct, frozen=True):
    """The function that `mapPartitions` calls for the first half of an index rebuild. Its runner is given
    ``job`` and the bytes of some file slices, and yields (shard, bytes).
    """

    runner: str
    job: bytes

    def __call__(self, work: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
        runner = _found(self.runner)
        for slices in work:
            yield from runner(self.job, slices)


class ShardsEntry(msgspec.Struct, frozen=True):
    """The function that `mapPartitionsWithIndex` calls for the second half: its runner is given ``job``, the
    number of the task, of how many, and the pieces of all shards with that remainder; it returns documents.
    """

    runner: str
    job: bytes
    tasks: int

    def __call__(self, number: int, pieces: Iterable[tuple[int, bytes]]) -> Iterator[bytes]:
        yield from _found(self.runner)(self.job, number, self.tasks, pieces)


def run_one(
    runner: TaskRunner, task: bytes, worker: WorkerContext, attempt: int, attempts_max: int
) -> TaskOutcome:
    """Runs a task and returns its outcome. Raises an error if Spark should run the task again."""
    reached = failpoints().hit if attempt == 0 else _pass
    try:
        reached(WriterFailpoint.FIRST_TASK_ATTEMPT)
        succeeded = runner(task, worker)
        reached(WriterFailpoint.FIRST_TASK_PUBLISHED)
    except Exception as error:
        worker.drop_readers()
        failed = task_outcome.failure_of(error, attempt)
        may_be_cured = failed.kind in (None, ErrorKind.RETRYABLE)
        if may_be_cured and attempt + 1 < attempts_max:
            raise
        return failed
    finally:
        # Gives memory back to the system: the worker's next task may come much later, or be much smaller.
        pa.default_memory_pool().release_unused()
    return msgspec.structs.replace(succeeded, worker_pid=os.getpid(), worker_rss_bytes=_resident_bytes())


def failpoints() -> FailpointRegistry:
    """The failpoints of this worker process. Its environment arms them at the first call."""
    global _failpoints
    if _failpoints is None:
        _failpoints = worker_failpoints(os.environ)
    return _failpoints


def _pass(_: WriterFailpoint) -> None:
    return


def find_runner(name: str) -> TaskRunner:
    """The function that `module:function` names. Raises ImportError or AttributeError if there is none."""
    return cast(TaskRunner, _found(name))


def _found(name: str) -> Callable[..., Any]:
    if name not in _runners:
        module, _, function = name.partition(":")
        _runners[name] = getattr(importlib.import_module(module), function)
    return _runners[name]


def _resident_bytes() -> int:
    try:
        with open("/proc/self/statm", "rb") as statm:
            return int(statm.read().split()[1]) * _PAGE_BYTES
    except OSError:  # no /proc on this system
        return 0
