"""Errors about a table's ledger that services and the command line tell apart."""

from __future__ import annotations

from tidemark.errors import ErrorKind
from tidemark.stream_runtime.errors import StreamRuntimeError


class SupersededError(StreamRuntimeError):
    """A newer coordinator has claimed the table: this one stops at once."""

    kind = ErrorKind.FENCED
