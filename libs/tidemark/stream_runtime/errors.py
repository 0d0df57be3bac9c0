"""The base of the runtime's and the services' errors."""

from __future__ import annotations

from tidemark.errors import ErrorKind, TidemarkError


class StreamRuntimeError(TidemarkError):
    """Base of all errors of this package, and of the services that stand on it."""


class DeadlineExceededError(StreamRuntimeError):
    """A bounded wait ended before its condition held; nothing is known about what was waited for."""

    kind = ErrorKind.RETRYABLE
