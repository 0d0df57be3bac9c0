"""Errors of the tiered index; each one's kind says what the caller must do."""

from __future__ import annotations

from tidemark.errors import ErrorKind
from tidemark.index_assigner.errors import AssignerError


class LaneNotOpenError(AssignerError):
    """The lane was used before `open_lane`, or after it was closed or rewound: open it first."""

    kind = ErrorKind.INVALID


class SnapshotBehindError(AssignerError):
    """The metadata table snapshot does not show the last committed epoch yet: load a new one."""

    kind = ErrorKind.RETRYABLE


class IndexRebuiltError(AssignerError):
    """Another engine built the record index anew with another number of shards: the coordinator decides."""

    kind = ErrorKind.CONFLICT


class IndexOutdatedError(AssignerError):
    """Another writer committed changes that the index, or an uncommitted transaction of ours, does not have:
    look the keys up anew.
    """

    kind = ErrorKind.CONFLICT


class IndexMismatchError(AssignerError):
    """The record index names a file group that does not hold the key: index and data disagree, stop."""

    kind = ErrorKind.CORRUPT


class IndexStopsError(AssignerError):
    """The assigner ends while a look-up waits for a load, or while lanes are opened: neither is done."""

    kind = ErrorKind.RETRYABLE


class CacheInUseError(AssignerError):
    """Another process holds the cache folder."""

    kind = ErrorKind.INVALID


class CacheDiskError(AssignerError):
    """The disk of the RocksDB folder refuses writes: it is full, or broken. A new process tries again."""

    kind = ErrorKind.RETRYABLE


class CacheRefusedError(AssignerError):
    """The system has no descriptor, memory or mapping left for a file of the cache, which is as it was."""

    kind = ErrorKind.RETRYABLE


class CacheCorruptError(AssignerError):
    """The RocksDB folder is damaged. The next start moves it aside and fills a new one."""

    kind = ErrorKind.CORRUPT
