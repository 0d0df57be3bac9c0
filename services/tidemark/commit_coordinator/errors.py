"""The coordinator's errors. The type says what the coordinator does next."""

from __future__ import annotations

from typing import Final

from tidemark.errors import ErrorKind, kind_of
from tidemark.stream_runtime.errors import StreamRuntimeError
from tidemark.stream_runtime.kafka.errors import REFUSED


class CoordinatorError(StreamRuntimeError):
    """Base of the coordinator's errors."""


class NotReadyError(CoordinatorError):
    """This coordinator has not finished its takeover yet."""

    kind = ErrorKind.RETRYABLE


class OutOfPlaceError(CoordinatorError):
    """The fold refused our own decision, because it did not follow from those before: a defect, or a damaged
    topic. The coordinator stops.
    """

    kind = ErrorKind.CORRUPT


AWAITED_LOOK_MS: Final = 2_000


class AttemptLostError(CoordinatorError):
    """The open attempt cannot commit (it was rolled back, another writer committed, …): it is voided.

    ``rewind``: its rows also have to be tagged anew. ``awaited``: the requested time of another writer's
    pending clustering that has to end before the next plan, or the name of an index that it has not finished.
    ``look_ms``: so much later it is looked whether that is over.
    """

    kind = ErrorKind.CONFLICT

    def __init__(
        self, reason: str, rewind: bool, awaited: str | None = None, look_ms: int = AWAITED_LOOK_MS
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.rewind = rewind
        self.awaited = awaited
        self.look_ms = look_ms


class StatsLeftOutError(CoordinatorError):
    """A writer's report does not have the column stats that its attempt's plan asks for: it is refused."""

    kind = ErrorKind.INVALID


class EntriesLeftOutError(CoordinatorError):
    """A writer's report does not have the entries of a secondary index that its attempt's plan asks for: it
    is refused.
    """

    kind = ErrorKind.INVALID


class ActionLostError(CoordinatorError):
    """A decided service action cannot be completed, and nothing is completed under it: it is taken back."""

    kind = ErrorKind.CONFLICT


class LeftOutError(ActionLostError):
    """Of an action that is lost because of one thing, which its kind leaves out from now on: the next action
    is about others.
    """


class DivergedError(CoordinatorError):
    """Timeline and decisions contradict each other: the coordinator stops, and changes nothing."""

    kind = ErrorKind.CORRUPT


def is_curable(error: Exception) -> bool:
    """Whether trying again may help without an operator: refused I/O, a table that changed meanwhile, or a
    right, login or topic that Kafka refuses now and took before.
    """
    passing = (ErrorKind.RETRYABLE, ErrorKind.CONFLICT)
    return isinstance(error, (OSError, *REFUSED)) or kind_of(error) in passing
