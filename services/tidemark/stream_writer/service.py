"""The writer's loop. It writes one epoch after the other, in these steps:

1. Ask the coordinator for an attempt, and wait.
2. Begin it: the coordinator says what the epoch covers.
3. Run one Spark job, which makes the files. Where the table keeps column stats, secondary indexes or a
   partitioned record index, make the log files of those from what the job's tasks found, here or, if it is
   very much, in another job.
4. Report the files, or the failure.

Every step may fail and be repeated, because the loop keeps no state of an epoch. After a failure the
coordinator hands out the attempt again if it has no report, and the tasks take files that an earlier run made
visible.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from tidemark.commit.v1 import commit_pb2
from tidemark.epoch_protocol.errors import IncompleteRangeError
from tidemark.errors import ErrorKind
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.kafka.errors import OffsetOutOfRangeError
from tidemark.stream_runtime.logging import bound
from tidemark.stream_runtime.rpc.errors import RpcError
from tidemark.stream_writer import task_outcome
from tidemark.stream_writer.coordinator_client import Coordinator, PlannedEpoch
from tidemark.stream_writer.epoch_tasks import PlanTasks, index_tasks, touched_groups
from tidemark.stream_writer.errors import EngineFailedError, FileGroupReplacedError
from tidemark.stream_writer.failpoints import WriterFailpoint
from tidemark.stream_writer.observer import NULL_OBSERVER, WriterObserver, WrittenEpoch
from tidemark.stream_writer.task_outcome import TaskFailed, TaskOutcome, TaskSucceeded

ASK_WAIT_S: Final = 2.0
PAUSE_S: Final = 0.2
PAUSE_MAX_S: Final = 1.0
OFTEN: Final = 25
"""So many times in a row the coordinator is asked again after the short pause: for five seconds, in which one
that died is back. Each pause is a part of the time without commits.
"""
_REASON_CHARS_MAX: Final = 6_000
HERE_MAX: Final = 50_000
"""So many records of column stats and secondary indexes are written in this process, in about 70 ms. A Spark
job takes that long to do nothing.
"""

# There was no answer, or the attempt is void. Ask the coordinator again what to write.
_ASK_AGAIN: Final = (ErrorKind.RETRYABLE, ErrorKind.FENCED, ErrorKind.CONFLICT)

# Batches that counting entries name are missing or differ from the entries, or rows are tagged with a
# replaced file group. Only tagging the input anew helps.
_TAGS_DO_NOT_HOLD: Final = (
    IncompleteRangeError.__name__,
    OffsetOutOfRangeError.__name__,
    FileGroupReplacedError.__name__,
)

_log: Final = logging.getLogger("tidemark.writer")


def pause_after(failures: int) -> float:
    """The seconds before the coordinator is asked again, after so many questions in a row without an answer
    or with a void attempt.
    """
    return float(min(PAUSE_S * 2 ** min(max(failures - OFTEN, 0), 16), PAUSE_MAX_S))


class Engine(Protocol):
    """The part of Spark that the loop calls. `job.SparkEngine` implements it."""

    @property
    def slots(self) -> int:
        """How many tasks run at once."""
        ...

    def run_epoch_job(self, tasks: Sequence[bytes], partitions: int) -> list[bytes]:
        """Runs the tasks and returns their encoded outcomes in the same order. Raises WriterError."""
        ...


class WriterService:
    """The writer's loop. Runs in one thread. Its methods raise EngineLostError, and RpcError of a kind that
    asking again does not cure.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        engine: Engine,
        plan_tasks: PlanTasks,
        clock: Clock,
        reached: Callable[[WriterFailpoint], None] = lambda _: None,
        observer: WriterObserver = NULL_OBSERVER,
        describe: Callable[[str], None] = lambda _: None,
        run_here: Callable[[bytes], TaskSucceeded] | None = None,
    ) -> None:
        """`reached` is called after each step, for failpoints. `describe` gets a text about the next job, for
        Spark's web page. `run_here` works off a task of `index_tasks` in this process; None: Spark does.
        """
        self._run_here = run_here
        self._observer = observer
        self._describe = describe
        self._reached = reached
        self._coordinator = coordinator
        self._engine = engine
        self._plan_tasks = plan_tasks
        self._clock = clock

    def run(self, stop: threading.Event) -> None:
        """Writes epochs until `stop` is set, which is checked each time before it asks for an attempt."""
        while not stop.is_set():
            self.write_one(stop)

    def write_one(self, stop: threading.Event) -> None:
        """Returns once an epoch was written and the coordinator took its report, or `stop` is set."""
        failures = 0
        while not stop.is_set():
            try:
                if self.run_once(ASK_WAIT_S):
                    return
                failures = 0
            except RpcError as error:
                if error.kind not in _ASK_AGAIN:
                    raise
                failures += 1
                pause_s = pause_after(failures)
                if failures == 1 or failures > OFTEN:
                    _log.warning("%s; asking again in %.1f s", error, pause_s)
                stop.wait(pause_s)

    def run_once(self, wait_s: float) -> bool:
        """Asks once for an attempt, waiting up to `wait_s`, and writes it. True if the coordinator took its
        report of files.
        """
        planned = self._coordinator.next_epoch(wait_s)
        self._observer.asked()
        if planned is None:
            return False
        with bound(epoch=planned.epoch, attempt=planned.attempt, instant=planned.instant):
            return self._write(planned)

    def _write(self, planned: PlannedEpoch) -> bool:
        began_ms, started_s = self._clock.now_ms(), self._clock.monotonic_s()
        begun = self._coordinator.begin(planned)
        self._reached(WriterFailpoint.WRITER_BEGUN)
        tasks = self._plan_tasks(begun, self._engine.slots)
        self._describe(describe_job(begun, len(tasks)))
        job_ms, job_s = self._clock.now_ms(), self._clock.monotonic_s()
        outcomes = self._run_jobs(planned, begun, tasks)
        ended_s, job_ended_ms = self._clock.monotonic_s(), self._clock.now_ms()
        timings_ms = {"job": (ended_s - job_s) * 1_000, "write": (ended_s - started_s) * 1_000}
        taken = outcomes is not None and self._report(planned, outcomes, timings_ms)
        times_ms = (began_ms, job_ms, job_ended_ms, self._clock.now_ms())
        self._observer.ended(WrittenEpoch(planned, *times_ms, outcomes or (), taken))
        if taken:
            took_ms = {step: round(ms, 1) for step, ms in timings_ms.items()}
            _log.info("written: %s", describe_job(begun, len(tasks)), extra={"took_ms": took_ms})
        return taken

    def _run_jobs(
        self, planned: PlannedEpoch, begun: commit_pb2.BeginResponse, tasks: Sequence[bytes]
    ) -> list[TaskOutcome] | None:
        outcomes = self._run_job(planned, tasks)
        if outcomes is None or not _has_more(begun):
            return outcomes
        succeeded = [outcome for outcome in outcomes if isinstance(outcome, TaskSucceeded)]
        # With the records of some tasks only a log file would lack the others for ever: its first content
        # stays.
        more = index_tasks(begun, tasks, succeeded) if len(succeeded) == len(outcomes) else []
        if not more:
            return outcomes
        are_few = sum(outcome.records_kept for outcome in succeeded) <= HERE_MAX
        of_indexes = (self._written_here(more) if are_few else None) or self._run_job(planned, more)
        return None if of_indexes is None else [*outcomes, *of_indexes]

    def _written_here(self, tasks: Sequence[bytes]) -> list[TaskOutcome] | None:
        """The outcomes of the tasks; None where they cannot be run here, or another run may cure what
        failed.
        """
        if self._run_here is None:
            return None
        outcomes: list[TaskOutcome] = []
        for task in tasks:
            try:
                outcomes.append(self._run_here(task))
            except Exception as error:
                failed = task_outcome.failure_of(error, 0)
                if failed.kind in (None, ErrorKind.RETRYABLE):
                    _log.warning("Spark is to write the indexes: %s", failed.message)
                    return None
                outcomes.append(failed)
            self._reached(WriterFailpoint.WRITER_INDEXED)
        return outcomes

    def _run_job(self, planned: PlannedEpoch, tasks: Sequence[bytes]) -> list[TaskOutcome] | None:
        """The outcomes of the tasks. None if Spark gave the job up, which is reported here."""
        try:
            return [task_outcome.decode(data) for data in self._engine.run_epoch_job(tasks, len(tasks))]
        except EngineFailedError as error:
            _log.error("%s", error)
            self._coordinator.report_failed(planned, str(error)[:_REASON_CHARS_MAX], checksum_mismatch=False)
            return None

    def _report(
        self, planned: PlannedEpoch, outcomes: Sequence[TaskOutcome], timings_ms: dict[str, float]
    ) -> bool:
        failures = [outcome for outcome in outcomes if isinstance(outcome, TaskFailed)]
        if failures:
            self._report_failed(planned, failures)
            return False
        written = merge_outcomes([outcome for outcome in outcomes if isinstance(outcome, TaskSucceeded)])
        written.timings_ms.update(timings_ms)
        self._reached(WriterFailpoint.WRITER_WRITTEN)
        try:
            self._coordinator.report_written(planned, written)
        except RpcError as error:
            if error.kind is not ErrorKind.INVALID:
                raise
            # Too large, for instance. The same report would be refused for ever, so the attempt ends.
            self._coordinator.report_failed(planned, str(error)[:_REASON_CHARS_MAX], checksum_mismatch=False)
            return False
        self._reached(WriterFailpoint.WRITER_REPORTED)
        return True

    def _report_failed(self, planned: PlannedEpoch, failures: Sequence[TaskFailed]) -> None:
        """Reports one of the failures for the epoch: first one that calls for a rewind, since only a rewind
        cures it, then one of kind CORRUPT, then any.
        """
        torn = next((failed for failed in failures if failed.error in _TAGS_DO_NOT_HOLD), None)
        worst = torn or next((failed for failed in failures if failed.kind is ErrorKind.CORRUPT), failures[0])
        for failed in failures:
            _log.error("task failed at its attempt %d: %s", failed.attempt + 1, failed.traceback)
        reason = f"{len(failures)} tasks failed, first {worst.error}: {worst.message}"
        self._coordinator.report_failed(
            planned, reason[:_REASON_CHARS_MAX], checksum_mismatch=torn is not None
        )


def _has_more(begun: commit_pb2.BeginResponse) -> bool:
    """Whether the table keeps an index whose log files follow from what all tasks found."""
    return begun.HasField("column_stats") or bool(begun.secondary) or begun.HasField("partitioned")


def describe_job(begun: commit_pb2.BeginResponse, tasks: int) -> str:
    """A text for Spark's web page and the log: `epoch 12 attempt 1, 4000 rows in 2 tasks`."""
    rows = sum(named.records for partition in begun.data for named in partition.ranges)
    return f"epoch {begun.epoch} attempt {begun.attempt}, {rows} rows in {tasks} tasks"


def merge_outcomes(outcomes: Sequence[TaskSucceeded]) -> TaskSucceeded:
    """All files together, and for each step the longest time of any task, for which the epoch waited."""
    timings_ms: dict[str, float] = {}
    for outcome in outcomes:
        for step, took_ms in outcome.timings_ms.items():
            timings_ms[step] = max(timings_ms.get(step, 0.0), took_ms)
    return TaskSucceeded(
        tuple(stat for outcome in outcomes for stat in outcome.write_stats),
        tuple(log for outcome in outcomes for log in outcome.metadata_logs),
        timings_ms,
        worker_rss_bytes=max((outcome.worker_rss_bytes for outcome in outcomes), default=0),
        tickets=tuple(ticket for outcome in outcomes for ticket in outcome.tickets),
        files_without_stats=sum(outcome.files_without_stats for outcome in outcomes),
        secondary_groups=touched_groups(outcomes),
        begun=tuple(file for outcome in outcomes for file in outcome.begun),
    )
