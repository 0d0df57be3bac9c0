"""Errors of input formats that are about no single record, grouped by what the caller must do."""

from __future__ import annotations

from tidemark.errors import ErrorKind, TidemarkError


class RecordFormatError(TidemarkError):
    """Base of this package's errors."""


class SetupError(RecordFormatError):
    """Topics, table and configuration do not fit together; the text says what to do."""

    kind = ErrorKind.INVALID


class InputWaitsError(RecordFormatError):
    """Records cannot be decoded now, through no fault of theirs (the schema registry does not answer): they
    are kept, and tried again later. ``before``: so many of those given, from the first on, need not wait.
    """

    kind = ErrorKind.RETRYABLE

    def __init__(self, text: str, before: int = 0) -> None:
        super().__init__(text)
        self.before = before
