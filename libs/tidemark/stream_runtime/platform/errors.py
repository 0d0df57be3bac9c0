"""What can be wrong with the machine Tidemark runs on."""

from __future__ import annotations

from tidemark.errors import ErrorKind
from tidemark.stream_runtime.errors import StreamRuntimeError


class PlatformError(StreamRuntimeError):
    """Base of this package's errors; each message says what to install, set or read."""

    kind = ErrorKind.INVALID


class JavaNotFoundError(PlatformError):
    """No Java of the right version in JAVA_HOME, on PATH or in the Python environment."""


class JarsUnavailableError(PlatformError):
    """The jars of a set could not be fetched; the message ends with the resolver's own report."""

    kind = ErrorKind.RETRYABLE


class BrokerFailedError(PlatformError):
    """The embedded Kafka did not format, start or stop; the message ends with the tail of its log."""

    kind = ErrorKind.RETRYABLE
