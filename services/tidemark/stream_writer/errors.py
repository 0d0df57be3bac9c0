"""Errors of the writer. Their kind says what the caller must do (`tidemark.errors`)."""

from __future__ import annotations

import platform

from tidemark.errors import ErrorKind, TidemarkError


class WriterError(TidemarkError):
    """Base of the writer's own errors."""


class EngineFailedError(WriterError):
    """Spark gave the job up, because workers died or the job took too long. (Errors of the tasks themselves
    are in their outcomes and do not end a job.)

    The session still works, and the epoch may be tried again.
    """

    kind = ErrorKind.RETRYABLE


class EngineLostError(WriterError):
    """The Spark session or its JVM is gone. The process must end; the next one asks for the epoch again."""

    kind = ErrorKind.RETRYABLE


class FileGroupChangedError(WriterError):
    """Another engine removed the files of a file group after the epoch was planned (compaction, then clean).
    Writing would begin the group anew, without its rows. Plan the epoch anew.
    """

    kind = ErrorKind.CONFLICT


class FileGroupReplacedError(WriterError):
    """Rows are tagged with a file group that was replaced, where no reader would see them. Tag them anew."""

    kind = ErrorKind.CONFLICT


class EngineSettingError(WriterError):
    """The writer cannot work with a setting of `spark:` or `kafka:`, or with what is installed. The text
    names it and says what to do.
    """


class TableNotSeenError(WriterError):
    """The machine of an executor does not have the table's folder at the table's path."""

    @classmethod
    def at(cls, base_uri: str) -> TableNotSeenError:
        """The error of this machine."""
        return cls(
            f"{platform.node()} does not see the table's folder {base_uri}: mount it at this path on every "
            "machine that runs Spark executors"
        )


class OtherTableError(WriterError):
    """The folder that the writer was given is not the table of the coordinator that handed the epoch out."""
