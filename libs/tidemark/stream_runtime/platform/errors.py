"""Errors about the machine that Tidemark runs on."""

from __future__ import annotations

from tidemark.errors import ErrorKind
from tidemark.stream_runtime.errors import StreamRuntimeError


class PlatformError(StreamRuntimeError):
    """Base of this package's errors. Each text says what to install, set or read."""

    kind = ErrorKind.INVALID


class JavaNotFoundError(PlatformError):
    """No Java of the right version in JAVA_HOME, on PATH or in the Python environment."""


class JarsUnavailableError(PlatformError):
    """The jars of a set could not be fetched. The text ends with Ivy's report."""

    kind = ErrorKind.RETRYABLE


class BrokerFailedError(PlatformError):
    """The embedded Kafka could not be formatted or started. The text ends with the end of its logs."""

    kind = ErrorKind.RETRYABLE
