"""The events of the writer's loop, for metrics and traces. The base class `WriterObserver` ignores them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidemark.stream_writer.coordinator_client import PlannedEpoch
from tidemark.stream_writer.task_outcome import TaskOutcome


@dataclass(frozen=True)
class WrittenEpoch:
    """One run of an attempt. Times are in milliseconds since 1970. `outcomes` is empty if Spark gave the job
    up; `taken`: the coordinator took the report of the files.
    """

    planned: PlannedEpoch
    began_ms: int
    job_began_ms: int
    job_ended_ms: int
    ended_ms: int
    outcomes: Sequence[TaskOutcome]
    taken: bool


class WriterObserver:
    """Takes the writer's events. The writer's thread calls the methods, which must return at once and never
    raise.
    """

    def asked(self) -> None:
        """The coordinator answered when it was asked for work, with or without an attempt."""

    def ended(self, written: WrittenEpoch) -> None:
        """The run of an attempt has ended, in whatever way."""


class CompositeObserver(WriterObserver):
    """Passes every event on to several observers."""

    def __init__(self, *observers: WriterObserver) -> None:
        self._observers = observers

    def asked(self) -> None:
        for observer in self._observers:
            observer.asked()

    def ended(self, written: WrittenEpoch) -> None:
        for observer in self._observers:
            observer.ended(written)


NULL_OBSERVER = WriterObserver()
