"""Errors of the format library, grouped by what the caller has to do about them.

Every error carries a `kind`. Callers branch on the kind (or on the class where the situation needs its own
answer), never on the text. An outcome that is not known is never reported as a failure: operations that may
have happened say so in their docstring.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tidemark.errors import ErrorKind, TidemarkError


class HudiFormatError(TidemarkError):
    """Base of all errors of `hudi_format`. The default kind is INVALID: the call as made can never
    succeed.
    """


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


class FencedOutError(HudiFormatError):
    """This attempt or term is over: nothing of it may be published any more."""

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


# What decoders of bytes raise for damage. An OSError is not among them: that is the storage refusing.
_DECODING: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    RecursionError,
    StopIteration,
    TypeError,
    ValueError,
    struct.error,
    zlib.error,
)


@contextmanager
def damage_in(path: str, what: str) -> Iterator[None]:
    """Whatever decoding inside raises becomes a `CorruptFileError` that names the file; our own errors pass.

    For decoding alone: a mistake of ours in there would be called damage, too.
    """
    try:
        yield
    except HudiFormatError:
        raise
    except _DECODING as error:
        text = str(error)[:300] or type(error).__name__
        raise CorruptFileError(f"{path}: {what} is not readable: {text}") from error
