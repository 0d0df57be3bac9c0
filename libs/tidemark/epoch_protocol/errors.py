"""Errors of the epoch protocol, grouped by what the caller must do."""

from __future__ import annotations

from tidemark.errors import ErrorKind, TidemarkError


class ProtocolError(TidemarkError):
    """Base of all protocol errors."""

    kind = ErrorKind.CORRUPT


class UnknownEntryError(ProtocolError):
    """An entry that this version cannot read: a newer Tidemark wrote it, or the topic is not ours."""

    kind = ErrorKind.INVALID


class FoldGapError(ProtocolError):
    """Entries were applied out of order, or a trimmed range was skipped without a snapshot."""

    kind = ErrorKind.CORRUPT


class IncompleteRangeError(ProtocolError):
    """A counting entry names batches that the topic does not hold (a torn transaction, or lost data).

    Never skipped: the reader stops loudly; the way out is a rewind (ARCHITECTURE.md, "What counts").
    """

    kind = ErrorKind.CORRUPT


class InvalidTransitionError(ProtocolError):
    """A lifecycle was asked for a move that its table does not list: a defect of the caller."""

    kind = ErrorKind.INVALID
