"""Errors of the security package. Their texts contain no secrets."""

from __future__ import annotations

from enum import Enum

from tidemark.errors import ErrorKind
from tidemark.stream_runtime.errors import StreamRuntimeError


class SecurityConfigError(StreamRuntimeError):
    """A certificate, key or token cannot be used. The text names the setting and its file, and what to do."""

    kind = ErrorKind.INVALID


class Denial(Enum):
    """Why a call was refused. The values are reasons of the metric `refused_calls`."""

    NO_TOKEN = "no_token"
    BAD_TOKEN = "bad_token"
    ROLE = "role"
    HOST = "host"


class DeniedError(StreamRuntimeError):
    """The caller is unknown (`is_unknown`), or is known and may not do this."""

    kind = ErrorKind.INVALID

    def __init__(self, denial: Denial, message: str) -> None:
        super().__init__(message)
        self.denial = denial

    @property
    def is_unknown(self) -> bool:
        """Whether other credentials would help (401, UNAUTHENTICATED), or not (403, PERMISSION_DENIED)."""
        return self.denial not in (Denial.ROLE, Denial.HOST)
