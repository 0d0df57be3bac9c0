"""The one base of this package's errors, grouped by what the caller must do next.

A kind is an instruction, not a diagnosis: retry, give way to a newer owner, look again because someone else
was faster, fix the input, or stop because stored data is wrong. An outcome nobody knows is never reported as
a failure; it has its own type (`stream_runtime.kafka.ports.OutcomeUnknownError`).
"""

from __future__ import annotations

from enum import Enum


class ErrorKind(Enum):
    """What the caller of a failed operation must do."""

    RETRYABLE = "retryable"
    """The same call may succeed later."""
    FENCED = "fenced"
    """A newer owner exists: stop working under this claim."""
    CONFLICT = "conflict"
    """The state changed meanwhile: reload it and decide anew."""
    INVALID = "invalid"
    """The request, setting or input is wrong: it will never succeed unchanged."""
    CORRUPT = "corrupt"
    """Stored data contradicts itself: stop loudly."""


class StreamRuntimeError(Exception):
    """Base of all errors raised by this package; `kind` says what to do."""

    kind: ErrorKind = ErrorKind.INVALID


class DeadlineExceededError(StreamRuntimeError):
    """A bounded wait ended before its condition held; nothing is known about what was waited for."""

    kind = ErrorKind.RETRYABLE
