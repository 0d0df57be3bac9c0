"""Errors of the writer, grouped by what the caller must do (`tidemark.errors`)."""

from __future__ import annotations

from tidemark.errors import ErrorKind, TidemarkError


class WriterError(TidemarkError):
    """Base of the writer's own errors."""


class EngineFailedError(WriterError):
    """Spark gave the job up although tasks report their own failures: workers died, or the job took too long.

    The session still works; the epoch may be tried again.
    """

    kind = ErrorKind.RETRYABLE


class EngineLostError(WriterError):
    """The Spark session or its JVM is gone: end the process, its successor asks the coordinator."""

    kind = ErrorKind.RETRYABLE


class FileGroupChangedError(WriterError):
    """Another engine took the files of a file group away after the epoch was planned (compaction, then
    clean): writing on would begin the group anew without its rows. Plan the epoch anew.
    """

    kind = ErrorKind.CONFLICT


class FileGroupReplacedError(WriterError):
    """Rows are tagged into a file group that was replaced: no reader would see them. Tag them anew."""

    kind = ErrorKind.CONFLICT


class EngineSettingError(WriterError):
    """A key of the `spark:` section contradicts what the writer rests on."""


class TableNotSeenError(WriterError):
    """An executor's machine has nothing at the table's path."""


class OtherTableError(WriterError):
    """The coordinator's epoch is of another table than the folder that the writer was given."""
