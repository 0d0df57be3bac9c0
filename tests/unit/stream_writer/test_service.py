"""The driver's loop against a coordinator and an engine that do what each test says."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext

import grpc
import pytest

from testing.clock import ManualClock
from tidemark.commit.v1 import commit_pb2
from tidemark.errors import ErrorKind
from tidemark.hudi_format.metadata_table.partitions.record_index import record_index_log
from tidemark.hudi_format.model import ShardId
from tidemark.stream_runtime.rpc.errors import RpcError
from tidemark.stream_writer import task_outcome
from tidemark.stream_writer.coordinator_client import PlannedEpoch
from tidemark.stream_writer.errors import EngineFailedError, EngineLostError
from tidemark.stream_writer.failpoints import WriterFailpoint
from tidemark.stream_writer.service import OFTEN, WriterService, merge_outcomes, pause_after
from tidemark.stream_writer.task_outcome import TaskFailed, TaskOutcome, TaskSucceeded

EPOCH = PlannedEpoch(7, 2, "20260101000000000")


class ScriptedCoordinator:
    """Hands out EPOCH once per entry of `answers`; an entry that is an error is raised instead."""

    def __init__(self, answers: Sequence[PlannedEpoch | RpcError | None]) -> None:
        self.answers = list(answers)
        self.calls: list[str] = []
        self.written: list[tuple[PlannedEpoch, TaskSucceeded]] = []
        self.failed: list[tuple[str, bool]] = []
        self.when_empty: Callable[[], None] = lambda: None

    def next_epoch(self, wait_s: float) -> PlannedEpoch | None:
        self.calls.append("next")
        if not self.answers:
            self.when_empty()
            return None
        answer = self.answers.pop(0)
        if isinstance(answer, RpcError):
            raise answer
        return answer

    def begin(self, planned: PlannedEpoch) -> commit_pb2.BeginResponse:
        self.calls.append("begin")
        return commit_pb2.BeginResponse(epoch=planned.epoch)

    def report_written(self, planned: PlannedEpoch, written: TaskSucceeded) -> None:
        self.calls.append("written")
        self.written.append((planned, written))

    def report_failed(self, planned: PlannedEpoch, reason: str, checksum_mismatch: bool) -> None:
        self.calls.append("failed")
        self.failed.append((reason, checksum_mismatch))


class ScriptedEngine:
    slots = 2

    def __init__(self, coordinator: ScriptedCoordinator, result: Sequence[TaskOutcome] | Exception) -> None:
        self._coordinator = coordinator
        self._result = result
        self.tasks: list[bytes] = []

    def run_epoch_job(self, tasks: Sequence[bytes], partitions: int) -> list[bytes]:
        assert self._coordinator.calls[-1] == "begin", "nobody writes before begin was answered"
        self.tasks += tasks
        if isinstance(self._result, Exception):
            raise self._result
        return [task_outcome.encode(outcome) for outcome in self._result]


def _plan(begun: commit_pb2.BeginResponse, slots: int) -> list[bytes]:
    return [b"epoch %d task %d" % (begun.epoch, number) for number in range(slots)]


def _run_once(result: Sequence[TaskOutcome] | Exception) -> tuple[ScriptedCoordinator, ScriptedEngine]:
    coordinator = ScriptedCoordinator([EPOCH])
    engine = ScriptedEngine(coordinator, result)
    taken = WriterService(coordinator, engine, _plan, ManualClock()).run_once(1.0)
    assert taken == bool(coordinator.written)
    return coordinator, engine


def test_epoch_of_two_tasks_is_reported_with_the_files_of_both() -> None:
    index = record_index_log(EPOCH.instant, ShardId(3), size=100, upserts=5, deletes=1)
    coordinator, engine = _run_once(
        [
            TaskSucceeded((b"a", b"b"), timings_ms={"read": 5.0}),
            TaskSucceeded((b"c",), (index,), {"read": 9.0}),
        ]
    )
    assert engine.tasks == [b"epoch 7 task 0", b"epoch 7 task 1"]
    [(planned, written)] = coordinator.written
    assert planned == EPOCH
    assert (written.write_stats, written.metadata_logs) == ((b"a", b"b", b"c"), (index,))
    assert written.timings_ms["read"] == 9.0
    assert "write" in written.timings_ms


def test_task_that_failed_is_reported_as_failed_attempt() -> None:
    coordinator, _ = _run_once([TaskSucceeded((b"a",)), TaskFailed("OSError", "disk full", "...", 3)])
    assert coordinator.written == []
    assert coordinator.failed == [("1 tasks failed, first OSError: disk full", False)]


def test_incomplete_range_asks_for_a_rewind_even_when_another_task_failed_first() -> None:
    coordinator, _ = _run_once(
        [
            TaskFailed("OSError", "disk full", "...", 3, ErrorKind.RETRYABLE),
            TaskFailed("IncompleteRangeError", "torn", "...", 0, ErrorKind.CORRUPT),
        ]
    )
    [(reason, checksum_mismatch)] = coordinator.failed
    assert checksum_mismatch
    assert "torn" in reason


@pytest.mark.parametrize("error", ["IncompleteRangeError", "OffsetOutOfRangeError"])
def test_what_is_not_in_the_topic_outweighs_other_corruption(error: str) -> None:
    corrupt = TaskFailed("CorruptFileError", "x", "...", 0, ErrorKind.CORRUPT)
    coordinator, _ = _run_once([corrupt, TaskFailed(error, "gone", "...", 0, ErrorKind.CORRUPT)])
    [(reason, checksum_mismatch)] = coordinator.failed
    assert checksum_mismatch
    assert "gone" in reason


def test_corrupt_file_does_not_ask_for_a_rewind() -> None:
    coordinator, _ = _run_once([TaskFailed("CorruptFileError", "x", "...", 0, ErrorKind.CORRUPT)])
    assert coordinator.failed == [("1 tasks failed, first CorruptFileError: x", False)]


def test_job_that_spark_gave_up_is_reported_as_failed_attempt() -> None:
    coordinator, _ = _run_once(EngineFailedError("worker died four times"))
    assert coordinator.failed == [("worker died four times", False)]


def test_failpoints_are_passed_after_begin_before_the_report_and_after_it() -> None:
    coordinator = ScriptedCoordinator([EPOCH])
    passed: list[tuple[WriterFailpoint, str]] = []
    service = WriterService(
        coordinator,
        ScriptedEngine(coordinator, [TaskSucceeded((b"a",))]),
        _plan,
        ManualClock(),
        lambda place: passed.append((place, coordinator.calls[-1])),
    )
    assert service.run_once(1.0)
    assert passed == [
        (WriterFailpoint.WRITER_BEGUN, "begin"),
        (WriterFailpoint.WRITER_WRITTEN, "begin"),
        (WriterFailpoint.WRITER_REPORTED, "written"),
    ]


def test_lost_session_ends_the_loop_without_a_report() -> None:
    coordinator = ScriptedCoordinator([EPOCH])
    service = WriterService(
        coordinator, ScriptedEngine(coordinator, EngineLostError("gone")), _plan, ManualClock()
    )
    with pytest.raises(EngineLostError):
        service.run(threading.Event())
    assert (coordinator.written, coordinator.failed) == ([], [])


@pytest.mark.parametrize("status", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.FAILED_PRECONDITION])
def test_loop_asks_again_after_no_answer_or_refusal(status: grpc.StatusCode) -> None:
    coordinator = ScriptedCoordinator([RpcError("NextEpoch", status, "later"), EPOCH])
    stop = threading.Event()
    coordinator.when_empty = stop.set
    engine = ScriptedEngine(coordinator, [TaskSucceeded((b"a",))])
    WriterService(coordinator, engine, _plan, ManualClock()).run(stop)
    assert coordinator.calls == ["next", "next", "begin", "written", "next"]


def test_request_that_is_wrong_ends_the_loop() -> None:
    wrong = RpcError("NextEpoch", grpc.StatusCode.INVALID_ARGUMENT, "other table")
    coordinator = ScriptedCoordinator([wrong])
    with pytest.raises(RpcError, match="other table"):
        WriterService(coordinator, ScriptedEngine(coordinator, []), _plan, ManualClock()).run(
            threading.Event()
        )


@pytest.mark.parametrize(
    ("status", "failed"),
    [(grpc.StatusCode.INVALID_ARGUMENT, True), (grpc.StatusCode.UNAVAILABLE, False)],
)
def test_report_that_can_never_be_taken_fails_the_attempt(status: grpc.StatusCode, failed: bool) -> None:
    """One above the limit of bytes would be refused for ever; of others nobody knows."""

    class Refusing(ScriptedCoordinator):
        def report_written(self, planned: PlannedEpoch, written: TaskSucceeded) -> None:
            raise RpcError("ReportWritten", status, "limits.rpc_message_bytes")

    coordinator = Refusing([EPOCH])
    engine = ScriptedEngine(coordinator, [TaskSucceeded((b"a",))])
    with nullcontext() if failed else pytest.raises(RpcError):
        assert not WriterService(coordinator, engine, _plan, ManualClock()).run_once(1.0)
    assert bool(coordinator.failed) == failed
    assert all("limits.rpc_message_bytes" in reason for reason, _ in coordinator.failed)


def test_merged_outcome_has_the_largest_worker() -> None:
    merged = merge_outcomes([TaskSucceeded(worker_rss_bytes=5), TaskSucceeded(worker_rss_bytes=9)])
    assert merged.worker_rss_bytes == 9


def test_a_coordinator_that_is_away_is_asked_often_for_five_seconds_and_then_once_a_second() -> None:
    pauses = [pause_after(failures) for failures in range(1, OFTEN + 20)]
    assert pauses[:OFTEN] == [0.2] * OFTEN
    assert sum(pauses[:OFTEN]) == pytest.approx(5.0)
    assert pauses[OFTEN : OFTEN + 3] == [0.4, 0.8, 1.0]
    assert set(pauses[OFTEN + 3 :]) == {1.0}
