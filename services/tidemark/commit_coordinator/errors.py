"""Errors of the coordinator, by what happens next."""

from __future__ import annotations

from tidemark.errors import ErrorKind
from tidemark.stream_runtime.errors import StreamRuntimeError


class CoordinatorError(StreamRuntimeError):
    """Base of the coordinator's errors."""


class OutOfPlaceError(CoordinatorError):
    """Our own decision did not follow from the decisions before it: a defect, or a damaged topic."""

    kind = ErrorKind.CORRUPT


class AttemptLostError(CoordinatorError):
    """The open attempt cannot commit (rolled back, foreign commit): void it; ``rewind``: tag anew too.

    ``awaited``: requested time of another writer's pending clustering that has to end before the next plan.
    """

    kind = ErrorKind.CONFLICT

    def __init__(self, reason: str, rewind: bool, awaited: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.rewind = rewind
        self.awaited = awaited


class DivergedError(CoordinatorError):
    """Timeline and decisions contradict each other: stop loudly, change nothing."""

    kind = ErrorKind.CORRUPT
