"""The second job of an epoch of a table with column stats: when it runs, and with which tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from testing.clock import ManualClock
from tests.unit.stream_writer.test_service import EPOCH, ScriptedCoordinator
from tidemark.commit.v1 import commit_pb2
from tidemark.hudi_format.errors import FencedOutError
from tidemark.hudi_format.metadata_table.partitions.column_stats import column_stats_log
from tidemark.hudi_format.model import ShardId
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.hudi_format.table_config import MergeMode
from tidemark.stream_writer import service, task_outcome
from tidemark.stream_writer.coordinator_client import PlannedEpoch
from tidemark.stream_writer.epoch_tasks import StatsTask, TableFacts, decode_task, task_planner
from tidemark.stream_writer.failpoints import WriterFailpoint
from tidemark.stream_writer.service import WriterService
from tidemark.stream_writer.task_outcome import TaskFailed, TaskOutcome, TaskSucceeded

FACTS = TableFacts("mem://t", "t", True, MergeMode.COMMIT_TIME_ORDERING, None, {}, "t.data", "t.index", "UTC")
KEYS = [f"key-{number}" for number in range(40)]
GROUPS = 3


class WithStats(ScriptedCoordinator):
    def begin(self, planned: PlannedEpoch) -> commit_pb2.BeginResponse:
        self.calls.append("begin")
        one = commit_pb2.BatchRange(nonce="n", first=0, last=0, batches=1, records=1, checksum=1)
        return commit_pb2.BeginResponse(
            epoch=planned.epoch,
            attempt=planned.attempt,
            instant=planned.instant,
            staging_dir="token",
            data=[commit_pb2.PartitionRanges(partition=number, ranges=[one]) for number in range(2)],
            column_stats=commit_pb2.KeptStats(columns=["a"], groups=GROUPS),
        )


class TwoJobs:
    """Gives the outcomes of the first job, and a log file for each task of the second one."""

    slots = 2

    def __init__(self, first: Sequence[TaskOutcome]) -> None:
        self._first = first
        self.first_tasks: list[bytes] = []
        self.stats_tasks: list[StatsTask] = []

    def run_epoch_job(self, tasks: Sequence[bytes], partitions: int) -> list[bytes]:
        if not self.first_tasks:
            self.first_tasks += tasks
            return [task_outcome.encode(outcome) for outcome in self._first]
        self.stats_tasks += [task for task in map(decode_task, tasks) if isinstance(task, StatsTask)]
        return [task_outcome.encode(write(task)) for task in tasks]


def write(data: bytes) -> TaskSucceeded:
    task = decode_task(data)
    assert isinstance(task, StatsTask)
    log = column_stats_log(task.instant, ShardId(task.group), 9, len(task.records))
    return TaskSucceeded(metadata_logs=(log,))


def run_once(
    first: Sequence[TaskOutcome], run_here: Callable[[bytes], TaskSucceeded] | None = None
) -> tuple[WithStats, TwoJobs]:
    coordinator, engine = WithStats([EPOCH]), TwoJobs(first)
    writer = WriterService(coordinator, engine, task_planner(FACTS), ManualClock(), run_here=run_here)
    writer.run_once(1.0)
    return coordinator, engine


def of(keys: Sequence[str]) -> dict[str, bytes]:
    return {key: key.encode() for key in keys}


def test_records_of_all_tasks_go_to_one_task_for_each_group_of_their_hash() -> None:
    coordinator, engine = run_once(
        [TaskSucceeded((b"a",), stats=of(KEYS[:10])), TaskSucceeded((b"b",), stats=of(KEYS[10:]))]
    )
    groups = record_index_shard(KEYS, GROUPS).tolist()
    assert {task.group: sorted(task.records) for task in engine.stats_tasks} == {
        group: sorted(key for key, its in zip(KEYS, groups, strict=True) if its == group)
        for group in range(GROUPS)
    }
    assert {(task.base_uri, task.instant, task.token) for task in engine.stats_tasks} == {
        ("mem://t", EPOCH.instant, "token")
    }
    [(_, written)] = coordinator.written
    assert written.write_stats == (b"a", b"b")
    assert [log.shard for log in written.metadata_logs] == list(range(GROUPS))
    assert sum(log.upserts for log in written.metadata_logs) == len(KEYS)


def test_columns_are_told_to_the_tasks_of_the_first_job() -> None:
    _, engine = run_once([TaskSucceeded(), TaskSucceeded()])
    assert [task.stats_columns for task in map(decode_task, engine.first_tasks)] == [["a"], ["a"]]


@pytest.mark.parametrize(
    "other", [TaskSucceeded((b"b",)), TaskFailed("OSError", "disk full", "...", 3)], ids=["rows", "failed"]
)
def test_there_is_no_second_job_without_records_and_after_a_failure(other: TaskOutcome) -> None:
    """A log with the records of some tasks would keep that content, whoever writes the epoch again."""
    has_failed = isinstance(other, TaskFailed)
    coordinator, engine = run_once([TaskSucceeded((b"a",), stats=of(KEYS if has_failed else [])), other])
    assert engine.stats_tasks == []
    assert bool(coordinator.failed) == has_failed


def test_numbers_of_files_without_stats_add_up() -> None:
    coordinator, _ = run_once([TaskSucceeded(files_without_stats=2), TaskSucceeded(files_without_stats=1)])
    [(_, written)] = coordinator.written
    assert written.files_without_stats == 3


def test_few_records_are_written_without_a_second_job() -> None:
    coordinator, engine = run_once([TaskSucceeded((b"a",), stats=of(KEYS)), TaskSucceeded((b"b",))], write)
    assert engine.stats_tasks == []
    [(_, written)] = coordinator.written
    by_spark, _ = run_once([TaskSucceeded((b"a",), stats=of(KEYS)), TaskSucceeded((b"b",))])
    [(_, expected)] = by_spark.written
    assert written.metadata_logs == expected.metadata_logs
    assert written.write_stats == expected.write_stats


def test_the_driver_passes_a_failpoint_behind_each_log_file_that_it_writes() -> None:
    coordinator, engine, passed = (
        WithStats([EPOCH]),
        TwoJobs([TaskSucceeded(stats=of(KEYS))] * 2),
        list[str](),
    )

    def written(task: bytes) -> TaskSucceeded:
        passed.append("log file")
        return write(task)

    writer = WriterService(
        coordinator, engine, task_planner(FACTS), ManualClock(), passed.append, run_here=written
    )
    assert writer.run_once(1.0)
    indexed = ["log file", WriterFailpoint.WRITER_INDEXED] * GROUPS
    assert passed == ["writer_begun", *indexed, "writer_written", "writer_reported"]


def test_many_records_are_written_by_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    first = [TaskSucceeded(stats=of(KEYS[:20])), TaskSucceeded(stats=of(KEYS[20:]))]
    monkeypatch.setattr(service, "HERE_MAX", len(KEYS) - 1)
    assert len(run_once(first, write)[1].stats_tasks) == GROUPS
    monkeypatch.setattr(service, "HERE_MAX", len(KEYS))
    assert run_once(first, write)[1].stats_tasks == []


def refused(error: Exception) -> Callable[[bytes], TaskSucceeded]:
    def run(_: bytes) -> TaskSucceeded:
        raise error

    return run


def test_what_cannot_be_written_here_is_left_to_spark_unless_another_run_cures_nothing() -> None:
    first = [TaskSucceeded((b"a",), stats=of(KEYS)), TaskSucceeded((b"b",))]
    coordinator, engine = run_once(first, refused(OSError("not mounted here")))
    assert len(engine.stats_tasks) == GROUPS
    assert len(coordinator.written) == 1
    coordinator, engine = run_once(first, refused(FencedOutError("the attempt is void")))
    assert engine.stats_tasks == []
    [(reason, mismatch)] = coordinator.failed
    assert "the attempt is void" in reason
    assert not mismatch
