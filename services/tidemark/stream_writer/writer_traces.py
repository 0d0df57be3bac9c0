"""The writer's spans of an attempt: `write`, and in it `begin`, `spark job` with an event for each task, and
`report`.
"""

from __future__ import annotations

from tidemark.stream_runtime.tracing import AttemptKey, SpanEvent, SpanFacts, Traces
from tidemark.stream_writer.observer import WriterObserver, WrittenEpoch
from tidemark.stream_writer.task_outcome import TaskFailed, TaskOutcome


class WriterTraces(WriterObserver):
    """Sends the spans of every attempt that was run."""

    def __init__(self, table: str, traces: Traces) -> None:
        self._table, self._traces = table, traces

    def ended(self, written: WrittenEpoch) -> None:
        planned = written.planned
        failures = [outcome for outcome in written.outcomes if isinstance(outcome, TaskFailed)]
        failed = None if written.taken else failures[0].message if failures else "Spark gave the job up"
        job = SpanFacts(
            "spark job",
            written.job_began_ms,
            written.job_ended_ms,
            {"tidemark.tasks": len(written.outcomes)},
            [
                _event(number, outcome, written.job_ended_ms)
                for number, outcome in enumerate(written.outcomes)
            ],
        )
        parts = (
            SpanFacts("begin", written.began_ms, written.job_began_ms),
            job,
            SpanFacts("report", written.job_ended_ms, written.ended_ms),
        )
        span = SpanFacts("write", written.began_ms, written.ended_ms, failed=failed, children=parts)
        self._traces.part(AttemptKey(self._table, planned.epoch, planned.attempt, planned.instant), span)


def _event(number: int, outcome: TaskOutcome, at_ms: int) -> SpanEvent:
    """The event of a task. The driver does not know when the task ended, so the event has the time of the
    job's end, and attributes with the task's durations.
    """
    if isinstance(outcome, TaskFailed):
        return SpanEvent("task failed", at_ms, {"tidemark.task": number, "error": outcome.error})
    took = {f"tidemark.{step}_ms": round(ms, 3) for step, ms in outcome.timings_ms.items()}
    files = len(outcome.write_stats) + len(outcome.metadata_logs)
    return SpanEvent("task", at_ms, {"tidemark.task": number, "tidemark.files": files, **took})
