"""Errors of the epoch protocol, grouped by what the caller must do."""

from __future__ import annotations

from tidemark.errors import ErrorKind, TidemarkError


class ProtocolError(TidemarkError):
    """Base of all protocol errors."""

    kind = ErrorKind.CORRUPT


class UnknownEntryError(ProtocolError):
    """This version cannot read the entry: a newer Tidemark wrote it, or the topic is not one of ours."""

    kind = ErrorKind.INVALID


class FoldGapError(ProtocolError):
    """The caller applied entries out of order, or skipped a trimmed range without loading a snapshot."""

    kind = ErrorKind.CORRUPT


class IncompleteRangeError(ProtocolError):
    """A counting entry names batches that the topic does not hold (a torn transaction, or lost data).

    No reader may skip such an entry: it stops with this error, and the coordinator makes a rewind
    (ARCHITECTURE.md, "What counts").
    """

    kind = ErrorKind.CORRUPT


class LaneTransitionError(ProtocolError):
    """The caller asked a lane's lifecycle for a move that its table does not list: a defect of the caller."""

    kind = ErrorKind.INVALID
    error_reason = "INVALID_TRANSITION"
