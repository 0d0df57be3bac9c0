"""From a table's storage to the way in which files are published there."""

from __future__ import annotations

from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.ports import Clock, IdSource
from tidemark.hudi_format.publication import folder_lock
from tidemark.hudi_format.publication.port import Attempt, Publication
from tidemark.hudi_format.publication.posix import PosixAttempt, PosixPublication
from tidemark.hudi_format.publication.table_lock import LockHolder
from tidemark.hudi_format.storage.base import FolderStorage, Storage


def open_publication(storage: Storage, clock: Clock, ids: IdSource) -> Publication:
    """For a coordinator, or a command in its place. Raises `UnsupportedTableError`."""
    return PosixPublication(_with_folders(storage), clock, ids)


def attempt_of(storage: Storage, token: str) -> Attempt:
    """For a writer. ``token``: from the coordinator. Raises `UnsupportedTableError`."""
    return PosixAttempt(_with_folders(storage), token)


def read_lock(storage: Storage) -> LockHolder | None:
    """Who holds the table's lock; None when it is free."""
    return folder_lock.read_lock(storage)


def _with_folders(storage: Storage) -> FolderStorage:
    if isinstance(storage, FolderStorage):
        return storage
    raise UnsupportedTableError(
        f"{storage.base_uri} is no file system with folders and links",
        "Use a path on a local or mounted POSIX file system: object stores are not supported by this release",
    )
