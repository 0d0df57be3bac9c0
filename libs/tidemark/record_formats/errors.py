"""Errors of input formats that concern more than one record; each one's kind says what the caller must do."""

from __future__ import annotations

from tidemark.errors import ErrorKind, TidemarkError


class RecordFormatError(TidemarkError):
    """Base of this package's errors."""


class SetupError(RecordFormatError):
    """Topics, table and configuration do not fit together; the text says what to do."""

    kind = ErrorKind.INVALID


class InputWaitsError(RecordFormatError):
    """Records cannot be decoded now for a reason outside of them: the schema registry does not answer.

    The caller keeps them and tries again later. ``before``: how many of the records given, from the first
    on, can be decoded now.
    """

    kind = ErrorKind.RETRYABLE

    def __init__(self, text: str, before: int = 0) -> None:
        super().__init__(text)
        self.before = before
