"""Errors of the index-assigner service, grouped by what the caller must do."""

from __future__ import annotations

from tidemark.stream_runtime.errors import ErrorKind, StreamRuntimeError


class AssignerError(StreamRuntimeError):
    """Base of this service's errors."""


class InputLostError(AssignerError):
    """What was to be read next is gone for good: of `keyed` it was deleted, of an input topic Kafka lost it.
    The service stops, it never jumps. (Input that was deleted stops its lane alone: `StopReason.DELETED`.)
    """

    kind = ErrorKind.CORRUPT


class SetupError(AssignerError):
    """Topics, table and configuration do not fit together; the text says what to do."""

    kind = ErrorKind.INVALID


class InputWaitsError(AssignerError):
    """Records cannot be decoded now, through no fault of theirs (the schema registry does not answer): they
    are kept, and tried again later. ``before``: so many of those given, from the first on, need not wait.
    """

    kind = ErrorKind.RETRYABLE

    def __init__(self, text: str, before: int = 0) -> None:
        super().__init__(text)
        self.before = before
