"""What the caller of a failed operation must do, the same for every package.

A kind is an instruction, not a diagnosis: retry, give way to a newer owner, look again because someone else
was faster, fix the input, or stop because stored data is wrong. Callers branch on the kind (or on the class
where the situation needs its own answer), never on the text. An outcome nobody knows is never reported as a
failure; it has its own type (`stream_runtime.kafka.ports.OutcomeUnknownError`).
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


class TidemarkError(Exception):
    """Base of every error that Tidemark raises on purpose. `kind` says what the caller must do."""

    kind: ErrorKind = ErrorKind.INVALID


def kind_of(error: BaseException | None) -> ErrorKind | None:
    """The error's kind; None for an error that is not Tidemark's, because nobody knows what it asks for."""
    return error.kind if isinstance(error, TidemarkError) else None
