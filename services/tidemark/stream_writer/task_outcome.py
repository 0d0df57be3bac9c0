"""The outcome that a task returns to the driver: the files that it made, or the error that it met.

Outcomes are sent as msgpack, one for each task, in the tasks' order. An error that a retry cannot cure is an
outcome, too: otherwise Spark would run the task three more times with the same result.
"""

from __future__ import annotations

import traceback
from typing import Final

import msgspec

from tidemark.errors import ErrorKind, kind_of
from tidemark.hudi_format.metadata_table.begun_groups import BegunFile
from tidemark.hudi_format.metadata_table.partitions.partition import MetadataLogFile
from tidemark.hudi_format.publication.tickets import Ticket

TRACEBACK_CHARS_MAX: Final = 8_000


class GroupEntries(msgspec.Struct, frozen=True):
    """What a task's rows change in one file group of a secondary index: so many entries, in the form of
    `secondary_task`.
    """

    index: str
    group: int
    count: int
    changes: bytes


class PartitionEntries(msgspec.Struct, frozen=True):
    """What a task's rows change in one data partition of a partitioned record index: so many entries, in the
    form of `partition_task`.
    """

    path: str
    count: int
    changes: bytes


class TaskSucceeded(msgspec.Struct, frozen=True, tag="succeeded"):
    """The files of a task: `write_stats` has for each data file its HoodieWriteStat as JSON, `tickets` the
    tickets of those data files that are not visible yet; a log file of the metadata table has its own.

    `stats`: key -> value of the column stats' records of the data files, which a second job writes;
    `files_without_stats`: how many files with rows have none, because a column has no range there. `entries`:
    of secondary indexes, which the second job writes, too; `secondary_groups`: of each of these indexes, how
    many file groups get entries.

    `partition_entries`: of a partitioned record index, which the second job writes, too; `begun`: all files
    of the groups that the commit begins there, which nobody has made.

    `timings_ms`: step -> milliseconds. `worker_rss_bytes`: the worker's resident memory after the task.
    """

    write_stats: tuple[bytes, ...] = ()
    metadata_logs: tuple[MetadataLogFile, ...] = ()
    timings_ms: dict[str, float] = {}
    worker_pid: int = 0
    worker_rss_bytes: int = 0
    tickets: tuple[Ticket, ...] = ()
    stats: dict[str, bytes] = {}
    files_without_stats: int = 0
    entries: tuple[GroupEntries, ...] = ()
    secondary_groups: dict[str, int] = {}
    partition_entries: tuple[PartitionEntries, ...] = ()
    begun: tuple[BegunFile, ...] = ()

    @property
    def records_kept(self) -> int:
        """How many records of column stats and entries of other indexes the task leaves to be written."""
        of_indexes = sum(entries.count for entries in self.entries)
        return len(self.stats) + of_indexes + sum(entries.count for entries in self.partition_entries)


class TaskFailed(msgspec.Struct, frozen=True, tag="failed"):
    """The error of a task. `error` is its class name, `attempt` Spark's number of the attempt (from 0).
    `kind` is None for an error without one, which is a defect of ours or of a library.
    """

    error: str
    message: str
    traceback: str
    attempt: int
    kind: ErrorKind | None = None


TaskOutcome = TaskSucceeded | TaskFailed

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(TaskOutcome)


def encode(outcome: TaskOutcome) -> bytes:
    """The outcome as msgpack."""
    return _encoder.encode(outcome)


def decode(data: bytes) -> TaskOutcome:
    """Decodes an outcome. Raises msgspec.DecodeError or msgspec.ValidationError for other bytes."""
    outcome: TaskOutcome = _decoder.decode(data)
    return outcome


def failure_of(error: BaseException, attempt: int) -> TaskFailed:
    """The outcome for an error in Spark's attempt number `attempt` (from 0)."""
    text = "".join(traceback.format_exception(error))
    # Cut at the front, because the end of a traceback names the error.
    return TaskFailed(type(error).__name__, str(error), text[-TRACEBACK_CHARS_MAX:], attempt, kind_of(error))
