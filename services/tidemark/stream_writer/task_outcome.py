"""What a task sends back to the driver: the files it wrote, or why it could not.

Travels as msgpack of msgspec structs, one per task and in the tasks' order. A task that failed for a reason
that a retry cannot cure says so here, so that Spark need not run it three times more to learn the same.
"""

from __future__ import annotations

import traceback
from typing import Final

import msgspec

from tidemark.errors import ErrorKind, kind_of
from tidemark.hudi_format.metadata_table.partitions.partition import MetadataLogFile
from tidemark.hudi_format.publication.tickets import Ticket

TRACEBACK_CHARS_MAX: Final = 8_000


class TaskSucceeded(msgspec.Struct, frozen=True, tag="succeeded"):
    """What was written: of each data file its HoodieWriteStat as JSON, and log files of the metadata table.
    `tickets`: of those data files that are not visible yet; a log file has its own.

    `timings_ms`: step -> milliseconds. `worker_rss_bytes`: the worker's resident memory after the task.
    """

    write_stats: tuple[bytes, ...] = ()
    metadata_logs: tuple[MetadataLogFile, ...] = ()
    timings_ms: dict[str, float] = {}
    worker_pid: int = 0
    worker_rss_bytes: int = 0
    tickets: tuple[Ticket, ...] = ()


class TaskFailed(msgspec.Struct, frozen=True, tag="failed"):
    """`error` is the class name; `kind` None when the error has none (a defect of ours, or a library's)."""

    error: str
    message: str
    traceback: str
    attempt: int
    kind: ErrorKind | None = None


TaskOutcome = TaskSucceeded | TaskFailed

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(TaskOutcome)


def encode(outcome: TaskOutcome) -> bytes:
    return _encoder.encode(outcome)


def decode(data: bytes) -> TaskOutcome:
    """Raises msgspec.DecodeError or msgspec.ValidationError for what is no outcome."""
    outcome: TaskOutcome = _decoder.decode(data)
    return outcome


def failure_of(error: BaseException, attempt: int) -> TaskFailed:
    """`attempt` is Spark's attempt number of the task, from 0."""
    text = "".join(traceback.format_exception(error))
    # The end of a trace names the cause.
    return TaskFailed(type(error).__name__, str(error), text[-TRACEBACK_CHARS_MAX:], attempt, kind_of(error))
