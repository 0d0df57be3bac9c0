"""Task functions for tests, named to the entry as `module:function`."""

from __future__ import annotations

from tidemark.stream_writer.task_outcome import TaskSucceeded
from tidemark.stream_writer.worker_context import WorkerContext


def echo(task: bytes, worker: WorkerContext) -> TaskSucceeded:
    return TaskSucceeded((task,))
