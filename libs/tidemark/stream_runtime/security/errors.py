"""Errors of the security package. No text holds a secret."""

from __future__ import annotations

from enum import Enum

from tidemark.errors import ErrorKind
from tidemark.stream_runtime.errors import StreamRuntimeError


class SecurityConfigError(StreamRuntimeError):
    """A certificate, key or token cannot be used; names the setting and its file, and what to do."""

    kind = ErrorKind.INVALID


class Denial(Enum):
    """Why a caller was turned away."""

    NO_TOKEN = "no_token"
    BAD_TOKEN = "bad_token"
    ROLE = "role"
    HOST = "host"


class DeniedError(StreamRuntimeError):
    """The caller is not known (`is_unknown`), or known and not allowed this."""

    kind = ErrorKind.INVALID

    def __init__(self, denial: Denial, message: str) -> None:
        super().__init__(message)
        self.denial = denial

    @property
    def is_unknown(self) -> bool:
        """Whether other credentials would help (401 and UNAUTHENTICATED), or not (403)."""
        return self.denial not in (Denial.ROLE, Denial.HOST)
