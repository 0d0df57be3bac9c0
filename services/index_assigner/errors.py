"""Errors of the index-assigner service, grouped by what the caller must do."""

from __future__ import annotations

from stream_runtime.errors import ErrorKind, StreamRuntimeError


class AssignerError(StreamRuntimeError):
    """Base of this service's errors."""


class InputLostError(AssignerError):
    """A range of the input was deleted before it was read: the service stops, it never jumps."""

    kind = ErrorKind.CORRUPT


class SetupError(AssignerError):
    """Topics, table and configuration do not fit together; the text says what to do."""

    kind = ErrorKind.INVALID


class InputWaitsError(AssignerError):
    """Records cannot be decoded now, through no fault of theirs (the schema registry does not answer): they
    are kept, and tried again later.
    """

    kind = ErrorKind.RETRYABLE
