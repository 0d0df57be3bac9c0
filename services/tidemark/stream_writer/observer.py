"""What the writer's loop tells whoever watches: metrics, traces. This one watches nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidemark.stream_writer.coordinator_client import PlannedEpoch
from tidemark.stream_writer.task_outcome import TaskOutcome


@dataclass(frozen=True)
class WrittenEpoch:
    """One run of an attempt; times are epoch milliseconds. No outcomes: Spark gave up."""

    planned: PlannedEpoch
    began_ms: int
    job_began_ms: int
    job_ended_ms: int
    ended_ms: int
    outcomes: Sequence[TaskOutcome]
    taken: bool


class WriterObserver:
    """Called by the writer's thread; must return at once and never raise."""

    def asked(self) -> None:
        """The coordinator answered a question for work."""

    def ended(self, written: WrittenEpoch) -> None:
        """An attempt was run; `taken`: the coordinator took its report of files."""


class CompositeObserver(WriterObserver):
    """Tells each of them."""

    def __init__(self, *observers: WriterObserver) -> None:
        self._observers = observers

    def asked(self) -> None:
        for each in self._observers:
            each.asked()

    def ended(self, written: WrittenEpoch) -> None:
        for each in self._observers:
            each.ended(written)


NULL_OBSERVER = WriterObserver()
