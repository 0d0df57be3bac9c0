"""Errors of the format library, grouped by what the caller must do about them.

Every error carries a `kind`. Callers branch on the kind (or on the class where the situation needs its own
answer), never on the text. An operation with an unknown outcome never reports a failure; an operation that
may have happened although it raised says so in its docstring.
"""

from __future__ import annotations

import errno
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from tidemark.errors import ErrorKind, TidemarkError


class HudiFormatError(TidemarkError):
    """The base of all errors of `hudi_format`. The default kind is INVALID: the same call can never
    succeed.
    """


class InvalidPathError(HudiFormatError):
    """A path is absolute, leads out of the table's folder, or holds a character that no file name can
    hold.
    """


class AlreadyExistsError(HudiFormatError):
    """The file or folder exists already. Where the first writer wins, the caller reads its content."""

    kind = ErrorKind.CONFLICT


class FileMissingError(HudiFormatError):
    """A file that a listing, a commit or a manifest named does not exist: reload the timeline and try
    again.
    """

    kind = ErrorKind.RETRYABLE


class ChangesGoneError(FileMissingError):
    """Log files that say what changed in a shard were deleted while they were read: read the whole shard."""

    # Its callers read the shard anew; to everyone else it is a file that is missing.
    error_reason = "FILE_MISSING"


class FencedOutError(HudiFormatError):
    """This attempt or term is over: nothing of it may be published any more."""

    # Published in answers: the class was called StagingGoneError, and programs compare with that name.
    error_reason = "STAGING_GONE"

    kind = ErrorKind.FENCED


class CorruptFileError(HudiFormatError):
    """A file's content contradicts the format or its checksum. Another attempt does not help."""

    kind = ErrorKind.CORRUPT


class CutOffFileError(HudiFormatError):
    """A file that other engines write in place is empty or ends in the middle: one of them writes it now, or
    died while it did. Read it again.
    """

    kind = ErrorKind.RETRYABLE


class HiddenBaseFilesError(HudiFormatError):
    """Base files that another engine's new index hides are being put back, and not all of them are yet. Try
    again.
    """

    kind = ErrorKind.RETRYABLE


class UnsupportedTableError(HudiFormatError):
    """The table uses something that this release does not serve.

    `reason` names the setting and its value, `remedy` what the user can do about it.
    """

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason}. {remedy}")
        self.reason = reason
        self.remedy = remedy


class IndexUnfinishedError(UnsupportedTableError):
    """Another writer builds an index, or left it half made: a commit made meanwhile may be missing from it
    for ever. `index`: the partition's name, or those that the properties say are being built.
    """

    def __init__(self, index: str, reason: str, remedy: str) -> None:
        super().__init__(reason, remedy)
        self.index = index


def refuse(refused: Sequence[UnsupportedTableError]) -> None:
    """Raises the one, or all as one; returns where there is none."""
    if len(refused) == 1:
        raise refused[0]
    if refused:
        reasons = "; ".join(f"({n}) {refusal.reason}" for n, refusal in enumerate(refused, 1))
        raise UnsupportedTableError(
            f"{len(refused)} things keep the table from being served: {reasons}",
            "; ".join(f"({n}) {refusal.remedy}" for n, refusal in enumerate(refused, 1)),
        )


class LockHeldError(HudiFormatError):
    """Another writer holds the table's lock."""

    kind = ErrorKind.RETRYABLE


class LockLostError(HudiFormatError):
    """The lock is gone or holds another owner's nonce: nothing may be created under it any more."""

    kind = ErrorKind.FENCED


class TimelineConflictError(HudiFormatError):
    """The timeline is not as the caller assumed: an instant is gone, completed otherwise, or newer."""

    kind = ErrorKind.CONFLICT


class InvalidTransitionError(HudiFormatError):
    """The caller asked a lifecycle for a step that its transition table does not list."""


_REMEDIES: Final[Mapping[int | None, str]] = {
    errno.ENOSPC: "free space on that disk",
    errno.EDQUOT: "free space, or raise the quota of this user",
    errno.EROFS: "make that folder writable again",
    errno.EACCES: "make that folder writable for this user",
    errno.EPERM: "make that folder writable for this user",
    errno.EIO: "check that disk",
}


_OF_THE_DISK: Final = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


def is_of_the_disk(error: Exception) -> bool:
    """Whether the storage refuses every write, and a large file sooner than a small one: no file is the
    cause.
    """
    return isinstance(error, OSError) and error.errno in _OF_THE_DISK


def in_words(error: Exception) -> str:
    """What the error says, and what to do about it where the storage refused or lost a file."""
    said = str(error)
    if isinstance(error, FileMissingError):
        return f"{said}: put it back; `tidemark verify` says what else is missing"
    if isinstance(error, CorruptFileError):
        return f"{said}: `tidemark verify` says what else is damaged"
    remedy = _REMEDIES.get(error.errno) if isinstance(error, OSError) else None
    return said if remedy is None else f"{said}: {remedy}"


# The exceptions with which decoders report damaged bytes. OSError is missing: it means that the storage
# failed.
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
    """Turns what decoding raises inside into a `CorruptFileError` with the file's name; lets our errors pass.

    Wrap nothing but decoding: a mistake in our own code would be reported as damage, too.
    """
    try:
        yield
    except HudiFormatError:
        raise
    except _DECODING as error:
        text = str(error)[:300] or type(error).__name__
        raise CorruptFileError(f"{path}: {what} is not readable: {text}") from error
