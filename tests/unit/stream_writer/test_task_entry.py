"""Errors of a task: which go back to the driver at once, which Spark should try again."""

from __future__ import annotations

import pytest

from testing.clock import ManualClock
from tidemark.epoch_protocol.errors import IncompleteRangeError
from tidemark.errors import ErrorKind
from tidemark.hudi_format.errors import FencedOutError, FileMissingError
from tidemark.hudi_format.metadata_table.partitions.record_index import record_index_log
from tidemark.hudi_format.model import ShardId
from tidemark.hudi_format.publication.tickets import Ticket
from tidemark.stream_runtime.errors import DeadlineExceededError
from tidemark.stream_runtime.failpoint import ENVIRONMENT_VARIABLE, FailpointHitError
from tidemark.stream_writer import task_entry, task_outcome
from tidemark.stream_writer.failpoints import WriterFailpoint, worker_failpoints
from tidemark.stream_writer.task_entry import TaskEntry, find_runner, run_one
from tidemark.stream_writer.task_outcome import TaskFailed, TaskSucceeded
from tidemark.stream_writer.worker_context import READERS_MAX, WorkerContext

ATTEMPTS_MAX = 4
LOG = record_index_log("20260101000000000", ShardId(1), 2, 3, 4)


def _raising(error: Exception):
    def run_task(task: bytes, worker: WorkerContext) -> TaskSucceeded:
        raise error

    return run_task


def _run(error: Exception, attempt: int):
    return run_one(_raising(error), b"", WorkerContext(ManualClock()), attempt, ATTEMPTS_MAX)


@pytest.mark.parametrize(
    ("error", "kind"),
    [(FencedOutError("void"), ErrorKind.FENCED), (IncompleteRangeError("torn"), ErrorKind.CORRUPT)],
)
def test_error_that_no_retry_cures_is_an_answer_at_the_first_attempt(error, kind) -> None:
    failed = _run(error, attempt=0)
    assert isinstance(failed, TaskFailed)
    assert (failed.error, failed.kind, failed.attempt) == (type(error).__name__, kind, 0)
    assert str(error) in failed.traceback


@pytest.mark.parametrize(
    "error", [DeadlineExceededError("late"), FileMissingError("gone"), OSError("full"), ValueError("defect")]
)
def test_error_that_a_retry_may_cure_is_raised_until_the_last_attempt(error) -> None:
    for attempt in range(ATTEMPTS_MAX - 1):
        with pytest.raises(type(error)):
            _run(error, attempt)
    last = _run(error, ATTEMPTS_MAX - 1)
    assert isinstance(last, TaskFailed)
    assert last.attempt == ATTEMPTS_MAX - 1


@pytest.mark.parametrize("place", [WriterFailpoint.FIRST_TASK_ATTEMPT, WriterFailpoint.FIRST_TASK_PUBLISHED])
def test_armed_failpoint_fails_the_first_attempt_alone(place, monkeypatch) -> None:
    registry = worker_failpoints({ENVIRONMENT_VARIABLE: f"after_inflight,{place.value}:raise"})
    monkeypatch.setattr(task_entry, "_failpoints", registry)
    published: list[int] = []

    def publish(task: bytes, worker: WorkerContext) -> TaskSucceeded:
        published.append(1)
        return TaskSucceeded()

    worker = WorkerContext(ManualClock())
    with pytest.raises(FailpointHitError):
        run_one(publish, b"", worker, 0, ATTEMPTS_MAX)
    assert len(published) == (place is WriterFailpoint.FIRST_TASK_PUBLISHED)
    registry.arm(place)
    assert isinstance(run_one(publish, b"", worker, 1, ATTEMPTS_MAX), TaskSucceeded)


def test_success_carries_the_worker_it_ran_in() -> None:
    outcome = run_one(
        lambda task, worker: TaskSucceeded((task,)), b"stat", WorkerContext(ManualClock()), 0, 4
    )
    assert isinstance(outcome, TaskSucceeded)
    assert outcome.write_stats == (b"stat",)
    assert outcome.worker_pid > 0
    assert outcome.worker_rss_bytes > 1 << 20


@pytest.mark.parametrize(
    "outcome",
    [
        TaskSucceeded(
            (b"{}",), (LOG, LOG.prepared(Ticket(LOG.path, 2, "ab", "upload-1"))), {"read": 1.5}, 12, 34
        ),
        TaskFailed("OSError", "full", "trace", 3),
        TaskFailed("FencedOutError", "void", "trace", 0, ErrorKind.FENCED),
    ],
)
def test_outcome_survives_the_way_to_the_driver(outcome) -> None:
    assert task_outcome.decode(task_outcome.encode(outcome)) == outcome


def test_runner_is_found_by_name() -> None:
    assert find_runner("tests.unit.stream_writer.runners:echo").__name__ == "echo"
    with pytest.raises(AttributeError):
        find_runner("tidemark.stream_writer.task_entry:absent")


def test_entry_outside_spark_runs_every_task_as_first_attempt() -> None:
    entry = TaskEntry("tests.unit.stream_writer.runners:echo", ATTEMPTS_MAX)
    outcomes = [task_outcome.decode(data) for data in entry([b"a", b"b"])]
    assert [each.write_stats for each in outcomes if isinstance(each, TaskSucceeded)] == [(b"a",), (b"b",)]


def test_reader_is_made_once_per_cluster_and_their_number_is_bounded() -> None:
    worker = WorkerContext(ManualClock())
    first = worker.range_reader({"bootstrap.servers": "127.0.0.1:1"})
    assert worker.range_reader({"bootstrap.servers": "127.0.0.1:1"}) is first
    for port in range(2, READERS_MAX + 2):
        worker.range_reader({"bootstrap.servers": f"127.0.0.1:{port}"})
    assert worker.range_reader({"bootstrap.servers": "127.0.0.1:1"}) is not first
    worker.drop_readers()
