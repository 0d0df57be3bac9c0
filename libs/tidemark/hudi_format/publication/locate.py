"""Chooses the implementation of the publication port for a table's storage."""

from __future__ import annotations

from contextlib import AbstractContextManager

from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.ports import Clock, IdSource
from tidemark.hudi_format.publication import beside, folder_lock
from tidemark.hudi_format.publication.port import Attempt, Command, Publication, ServiceFiles
from tidemark.hudi_format.publication.posix import PosixAttempt, PosixPublication
from tidemark.hudi_format.publication.staged import PosixServiceFiles
from tidemark.hudi_format.publication.table_lock import LockHolder
from tidemark.hudi_format.storage.base import FolderStorage, Storage


def open_publication(storage: Storage, clock: Clock, ids: IdSource) -> Publication:
    """The publication port for a coordinator, or for a command that works in its place. Raises
    `UnsupportedTableError` for a storage that is no file system.
    """
    return PosixPublication(_with_folders(storage), clock, ids)


def attempt_of(storage: Storage, token: str) -> Attempt:
    """An attempt's right to make files, for a writer; the coordinator gave it the ``token``
    (`Term.open_attempt`). Raises `UnsupportedTableError` for a storage that is no file system.
    """
    return PosixAttempt(_with_folders(storage), token)


def service_files_of(storage: Storage, token: str) -> ServiceFiles:
    """The right of a service action's tasks to prepare files; the coordinator gave out the ``token``
    (`Term.open_service`). Raises `UnsupportedTableError` for a storage that is no file system.
    """
    return PosixServiceFiles(_with_folders(storage), token)


def command_beside(
    storage: Storage, clock: Clock, ids: IdSource, ledger: str
) -> AbstractContextManager[Command]:
    """The right of a command to make files while a coordinator may serve the table. `ledger`: the table's, ""
    where it has none. Raises `UnsupportedTableError` for a storage that is no file system.
    """
    return beside.command(_with_folders(storage), clock, ids, ledger)


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
