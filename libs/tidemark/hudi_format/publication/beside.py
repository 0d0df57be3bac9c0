"""Making files beside a coordinator: for a command that changes a table while its services may run.

The command has a folder of its own::

    .hoodie/.aux/tidemark/command-<nonce>/
        beat              its time is that of the last sign of life
        staged/<path>     what the command prepares, under the path that it is going to have; nobody reads it
        away-<number>/    a folder that the command took out of the table

Under the lock one rename puts a staged folder in place, whatever it holds; so the lock is held as long for a
large folder as for a small one. Whoever takes the lock of a silent command over renames the command's folder
away first, and every step that makes a file fails from then on: it passes that folder.

A killed command leaves its folder. When it gave no sign of life for ten minutes, the next command deletes it,
or the coordinator when it looks for files to clean.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, cast

from tidemark.hudi_format.errors import FencedOutError, FileMissingError
from tidemark.hudi_format.ports import Clock, IdSource
from tidemark.hudi_format.publication.folder_lock import folder_lock
from tidemark.hudi_format.publication.folders import (
    COMMAND_DEAD_MS,
    command_beat,
    command_dir,
    remove_dead_commands,
)
from tidemark.hudi_format.publication.table_lock import COMMAND_SILENT_MS, TableLock
from tidemark.hudi_format.publication.tickets import NO_TERM, TermId
from tidemark.hudi_format.storage.base import FileContent, FolderStorage, Storage, join_path, parent_of


class PosixCommand:
    """`Command` on a file system."""

    def __init__(self, storage: FolderStorage, clock: Clock, ids: IdSource, ledger: str) -> None:
        nonce = ids.uuid()
        self._under, self._folder, self._beat = storage, command_dir(nonce), command_beat(nonce)
        self._clock = clock
        storage.create(self._beat, b"")
        term = TermId(NO_TERM.offset, ledger)
        self.lock: TableLock = folder_lock(storage, clock, ids, term, self._folder, nonce)
        self.storage = cast(Storage, _Fenced(storage, self._folder))
        self._taken = 0

    def stage(self, path: str, data: FileContent) -> None:
        try:
            self._under.publish(self._folder, self._staged(path), data, overwrite=True)
        except FencedOutError as error:
            raise self._ended() from error

    def discard(self, folder: str) -> None:
        self._under.delete_tree(self._staged(folder))

    def put(self, folder: str) -> None:
        self.take_away(folder)
        self._under.make_dir(parent_of(folder))
        try:
            self._under.rename(self._staged(folder), folder)
        except FileMissingError as error:
            raise self._ended() from error

    def take_away(self, folder: str) -> None:
        self._taken += 1
        try:
            self._under.rename(folder, join_path(self._folder, f"away-{self._taken}"))
        except FileMissingError as error:
            if not self._under.exists(self._folder):
                raise self._ended() from error

    def beat(self) -> None:
        self._under.touch(self._beat, create=False)
        if not self._under.exists(self._beat):
            raise self._ended()

    def end(self) -> None:
        """Deletes the command's folder with all that is left in it."""
        self._under.delete_tree(self._folder)

    def remove_dead(self) -> int:
        """Deletes what commands left that gave no sign of life for ten minutes, by the storage's clock and by
        ours; returns the number of files.
        """
        mine = self._under.stat(self._beat)
        if mine is None:
            return 0
        return remove_dead_commands(self._under, min(mine.mtime_ms, self._clock.now_ms()))

    def _staged(self, path: str) -> str:
        return join_path(self._folder, "staged", path)

    def _ended(self) -> FencedOutError:
        return FencedOutError(
            f"{self._folder} is gone: another process took this command for dead, and ended it. It gave no "
            f"sign of life for {COMMAND_DEAD_MS // 1_000} s, or for {COMMAND_SILENT_MS // 1_000} s while it "
            "held the table's lock. Run it again"
        )


class _Fenced:
    """A storage that makes files out of a folder, so that who renames that away ends it."""

    def __init__(self, storage: FolderStorage, folder: str) -> None:
        self._storage, self._folder = storage, folder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def create(self, path: str, data: FileContent) -> None:
        self._storage.publish(self._folder, path, data)

    def replace(self, path: str, data: FileContent) -> None:
        self._storage.publish(self._folder, path, data, overwrite=True)


@contextlib.contextmanager
def command(storage: FolderStorage, clock: Clock, ids: IdSource, ledger: str) -> Iterator[PosixCommand]:
    """A command's right to make files, until the end of the block. `ledger`: the table's, "" where it has
    none.
    """
    begun = PosixCommand(storage, clock, ids, ledger)
    try:
        begun.remove_dead()
        yield begun
    finally:
        begun.end()
