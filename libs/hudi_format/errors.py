"""Errors of the format library, grouped by what the caller has to do about them.

Every error carries a `kind`. Callers branch on the kind (or on the class where the situation needs its own
answer), never on the text. An outcome that is not known is never reported as a failure: operations that may
have happened say so in their docstring.
"""

from __future__ import annotations

from enum import Enum
from typing import ClassVar


class ErrorKind(Enum):
    """What the caller should do: try again, give way, decide anew, fix the input, or stop and look at the
    data.
    """

    RETRYABLE = "retryable"
    FENCED = "fenced"
    CONFLICT = "conflict"
    INVALID = "invalid"
    CORRUPT = "corrupt"


class HudiFormatError(Exception):
    """Base of all errors of `hudi_format`. The default kind is INVALID: the call as made can never
    succeed.
    """

    kind: ClassVar[ErrorKind] = ErrorKind.INVALID


class InvalidPathError(HudiFormatError):
    """A path is absolute, leaves the table's folder, or holds a character that no file name can hold."""


class AlreadyExistsError(HudiFormatError):
    """The file or folder exists. Where the first one wins, its content is the answer: read it."""

    kind = ErrorKind.CONFLICT


class FileMissingError(HudiFormatError):
    """A file that was named (by a listing, a commit, a manifest) is not there: reload the timeline and try
    again.
    """

    kind = ErrorKind.RETRYABLE


class StagingGoneError(HudiFormatError):
    """The staging folder was renamed away: this attempt or term is void, nothing of it may be published any
    more.
    """

    kind = ErrorKind.FENCED


class CorruptFileError(HudiFormatError):
    """A file's content contradicts the format or its checksum. Trying again does not help."""

    kind = ErrorKind.CORRUPT


class UnsupportedTableError(HudiFormatError):
    """The table uses something that this release does not serve.

    `reason` names the setting and its value, `remedy` says what the user can do about it.
    """

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason}. {remedy}")
        self.reason = reason
        self.remedy = remedy


class LockHeldError(HudiFormatError):
    """Another writer holds the table's lock."""

    kind = ErrorKind.RETRYABLE


class LockLostError(HudiFormatError):
    """The lock vanished or holds another owner's nonce: nothing may be created under it any more."""

    kind = ErrorKind.FENCED


class TimelineConflictError(HudiFormatError):
    """The timeline is not as the caller assumed (instant gone, completed otherwise, newer instant there)."""

    kind = ErrorKind.CONFLICT


class InvalidTransitionError(HudiFormatError):
    """A lifecycle was asked for a step that its transition table does not have."""
