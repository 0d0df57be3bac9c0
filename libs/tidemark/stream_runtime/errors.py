"""The base of the runtime's and the services' errors."""

from __future__ import annotations

from tidemark.errors import ErrorKind, TidemarkError


class StreamRuntimeError(TidemarkError):
    """Base of all errors of this package, and of the services that use it."""


class DeadlineExceededError(StreamRuntimeError):
    """A bounded wait ended before its condition held. The condition may still come true later."""

    kind = ErrorKind.RETRYABLE
