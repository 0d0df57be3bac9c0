"""Errors of the index-assigner service, grouped by what the caller must do."""

from __future__ import annotations

from tidemark.errors import ErrorKind
from tidemark.stream_runtime.errors import StreamRuntimeError


class AssignerError(StreamRuntimeError):
    """Base of this service's errors."""


class InputLostError(AssignerError):
    """The records at a lane's position are gone for good: deleted from `keyed`, or lost by Kafka from an
    input topic. The service stops; it never skips to a later position.

    Records deleted from an input topic raise no error: their lane alone stops (`StopReason.DELETED`).
    """

    kind = ErrorKind.CORRUPT
