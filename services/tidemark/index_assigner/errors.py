"""Errors of the index-assigner service, grouped by what the caller must do."""

from __future__ import annotations

from tidemark.errors import ErrorKind
from tidemark.stream_runtime.errors import StreamRuntimeError


class AssignerError(StreamRuntimeError):
    """Base of this service's errors."""


class InputLostError(AssignerError):
    """What was to be read next is gone for good: of `keyed` it was deleted, of an input topic Kafka lost it.
    The service stops, it never jumps. (Input that was deleted stops its lane alone: `StopReason.DELETED`.)
    """

    kind = ErrorKind.CORRUPT
