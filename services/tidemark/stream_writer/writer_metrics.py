"""The metrics of a writer (docs/metrics.md), from the outcomes of its tasks."""

from __future__ import annotations

from typing import Final

import msgspec

from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.metrics import Metrics
from tidemark.stream_writer.observer import WriterObserver, WrittenEpoch
from tidemark.stream_writer.task_outcome import TaskSucceeded

_TASK_STEPS: Final = {"task_read": "read", "task_write": "write"}


class _Stat(msgspec.Struct, rename="camel"):
    """The fields of a HoodieWriteStat that become metrics."""

    path: str = ""
    num_inserts: int | None = 0
    num_update_writes: int | None = 0
    num_deletes: int | None = 0
    file_size_in_bytes: int | None = 0


_stats: Final = msgspec.json.Decoder(_Stat)


class WriterMetrics(WriterObserver):
    """The metrics of one writer process."""

    def __init__(self, table: str, clock: Clock) -> None:
        self.metrics = metrics = Metrics("writer", table)
        self._clock = clock
        self._attempts = metrics.counter("epoch_attempts", "Attempts that were run", ["outcome"])
        self._epochs = metrics.histogram("epoch_seconds", "Attempts, from begin to the report taken")
        self._jobs = metrics.histogram("job_seconds", "Spark jobs, one an attempt")
        self._tasks = metrics.histogram("task_seconds", "Spark tasks by what they do", ["step"])
        self._ended = metrics.counter("tasks", "Spark tasks by how they ended", ["outcome"])
        self._files = metrics.counter("written_files", "Files published", ["kind"])
        self._bytes = metrics.counter("written_bytes", "Size of the files published", ["kind"])
        self._rows = metrics.counter("written_rows", "Rows in the data files published", ["operation"])
        self._worker = metrics.gauge("worker_resident_bytes", "Largest Python worker of the last job")
        self._heard = metrics.gauge(
            "coordinator_answer_seconds", "Unix time of the last answer; before the first, of the start"
        )
        # The gauge begins with the time of the start; 0 would mean no answer since 1970.
        self.asked()

    def asked(self) -> None:
        self._heard.set(self._clock.now_ms() / 1000)

    def ended(self, written: WrittenEpoch) -> None:
        self._attempts.labels("written" if written.taken else "failed").inc()
        self._epochs.observe((written.ended_ms - written.began_ms) / 1000)
        self._jobs.observe((written.job_ended_ms - written.job_began_ms) / 1000)
        done = [outcome for outcome in written.outcomes if isinstance(outcome, TaskSucceeded)]
        self._ended.labels("succeeded").inc(len(done))
        self._ended.labels("failed").inc(len(written.outcomes) - len(done))
        self._worker.set(max((outcome.worker_rss_bytes for outcome in done), default=0))
        for outcome in done:
            self._task(outcome)

    def _task(self, outcome: TaskSucceeded) -> None:
        for step, took_ms in outcome.timings_ms.items():
            if step in _TASK_STEPS:
                self._tasks.labels(_TASK_STEPS[step]).observe(took_ms / 1000)
        for stat in map(_stats.decode, outcome.write_stats):
            kind = "base" if stat.path.endswith(".parquet") else "log"
            self._files.labels(kind).inc()
            self._bytes.labels(kind).inc(stat.file_size_in_bytes or 0)
            self._rows.labels("insert").inc(stat.num_inserts or 0)
            self._rows.labels("update").inc(stat.num_update_writes or 0)
            self._rows.labels("delete").inc(stat.num_deletes or 0)
        for log in outcome.metadata_logs:
            self._files.labels(log.partition).inc()
            self._bytes.labels(log.partition).inc(log.size)
