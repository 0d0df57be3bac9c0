"""The table's lock as a folder, shared with Hudi's FileSystemBasedLockProvider.

Hudi 1.2.0 takes the lock by making a *file* `<base>/.hoodie/lock` (`hoodie.write.lock.filesystem.path`); a
writer that finds something of that name waits. Tidemark makes a *directory* of that name that holds one file,
because Hudi does not spare a lock file that another process made (tests/interop/test_lock_with_hudi.py shows
all of this):

- A Hudi client that closes, or gives up waiting, deletes the file whoever made it. A client with
  `hoodie.write.lock.filesystem.expire` deletes it once it is that old. Hudi's delete is not recursive, so it
  fails on a directory that is not empty: Hudi logs that, and our lock stays.
- Hadoop's local file system makes the file in two steps, "is it there?" and "open". A file that appeared in
  between may be emptied. A directory cannot be opened for writing.

A term makes one such directory, in the term's own folder. Taking the lock renames it to `.hoodie/lock`,
giving it back renames it into the term's folder again, so it is never empty. `rename` replaces neither a file
nor a directory that holds something. Both renames work only while the term's folder exists: a coordinator
whose folder was renamed away by its successor can neither take the lock nor free the successor's.

The lock of an older term is taken over in one step, because an epoch may be committed in the metadata table
only: a writer that got in then would build on half of it.

1. The caller has ended the older term: its folder was renamed away (`folders.end_older_terms`), so the older
   term can neither free the lock nor take it again.
2. Our owner file is renamed out of our term's folder over the old one. The directory stays where it is and is
   never empty. If our term was ended meanwhile, the rename finds no source.

A command that runs beside a coordinator (`beside`) has a folder of its own in place of a term's, and its
owner file names that folder. Who takes the lock of a dead command over renames the folder away first.

Where all terms are ended for a new ledger, an owner file of no term is renamed over the old one in the same
way (`leave_lock_of_ended_terms`).
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from typing import Any, Final

from tidemark.hudi_format.errors import (
    AlreadyExistsError,
    FencedOutError,
    FileMissingError,
    InvalidPathError,
    LockHeldError,
    LockLostError,
)
from tidemark.hudi_format.ports import Clock, IdSource
from tidemark.hudi_format.publication.folders import command_beat, end_command
from tidemark.hudi_format.publication.table_lock import LOCK_PATH, LockHolder, TableLock
from tidemark.hudi_format.publication.tickets import NO_TERM, TermId
from tidemark.hudi_format.storage.base import FolderStorage, Storage, checked_name, join_path, parent_of
from tidemark.hudi_format.storage.documents import ROOT

_OWNER_FILE: Final = "owner"
_LEFT: Final = f"{ROOT}/left-lock"
_OWNER_KEY: Final = "tidemark"
_LOOKS_MAX: Final = 3


def folder_lock(
    storage: FolderStorage, clock: Clock, ids: IdSource, term: TermId, term_dir: str, command: str = ""
) -> TableLock:
    """The table's lock for a term; `term_dir` is the term's folder, which has to exist. `command`: the nonce
    of the command that holds the lock beside a coordinator.
    """
    place = FolderLockPlace(storage, ids, term, term_dir, command)
    shown_at = join_path(storage.base_uri, LOCK_PATH)
    return TableLock(place, clock, term, shown_at, waits_for_terms=bool(command))


def read_lock(storage: Storage) -> LockHolder | None:
    """Who holds the lock; None when it is free."""
    return _holder_at(storage, LOCK_PATH)


def refuse_lock_of_others(storage: Storage) -> None:
    """Raises LockHeldError when another writer than Tidemark holds the lock."""
    holder = read_lock(storage)
    if holder is not None and holder.is_foreign:
        raise LockHeldError(
            f"{join_path(storage.base_uri, LOCK_PATH)} is held by another writer: let it finish; "
            "if it is dead, delete it"
        )


def leave_lock_of_ended_terms(storage: FolderStorage, ids: IdSource) -> None:
    """Gives the lock that a coordinator left to no term, in one step: it stays taken, and the next term or
    command takes it over, whatever its number and its ledger. Call it when all terms are ended.

    Raises LockHeldError when another writer holds the lock.
    """
    refuse_lock_of_others(storage)
    if read_lock(storage) is None:
        return
    storage.replace(_LEFT, _content(NO_TERM, ids.uuid()))
    try:
        storage.rename_over(_LEFT, join_path(LOCK_PATH, _OWNER_FILE))
    except FileMissingError:  # it was given back before its term ended
        storage.delete(_LEFT)


class FolderLockPlace:
    """`LockPlace` on a file system: by renames out of the term's folder and back."""

    def __init__(
        self, storage: FolderStorage, ids: IdSource, term: TermId, term_dir: str, command: str = ""
    ) -> None:
        self._storage, self._ids = storage, ids
        self._term, self._term_dir, self._command = term, term_dir, command
        self.nonce: str | None = None
        self._is_prepared = False

    def holder(self) -> LockHolder | None:
        return read_lock(self._storage)

    def put(self) -> bool:
        if self.nonce is None or not self._is_prepared:
            nonce = self._ids.uuid()
            self._prepare(nonce, self._prepared_path(nonce))
            self.nonce, self._is_prepared = nonce, True
        try:
            self._storage.rename(self._prepared_path(self.nonce), LOCK_PATH)
        except AlreadyExistsError:
            return False
        except FileMissingError as error:
            self.nonce = None
            raise self._term_is_over() from error
        return True

    def replace(self, holder: LockHolder) -> bool:
        if holder.command:
            end_command(self._storage, holder.command)
        nonce = self._ids.uuid()
        successor = join_path(self._term_dir, f"successor-{nonce}")
        self._prepare(nonce, successor)
        # Known before the step, so that a step of unknown outcome is recognised by the next call.
        self.nonce, self._is_prepared = nonce, False
        try:
            self._storage.rename_over(join_path(successor, _OWNER_FILE), join_path(LOCK_PATH, _OWNER_FILE))
        except FileMissingError as error:
            if not self._storage.exists(self._term_dir):
                raise self._term_is_over() from error
            self._storage.delete_tree(successor)
            return False
        self._storage.delete_tree(successor)
        return True

    def give_back(self) -> None:
        assert self.nonce is not None
        try:
            self._move_away(self._prepared_path(self.nonce), self.nonce)
        except FileMissingError as error:
            raise LockLostError(f"{LOCK_PATH} or the folder of term {self._term.offset} is gone") from error
        self._is_prepared = True

    def _prepare(self, nonce: str, path: str) -> None:
        """Makes a lock directory at ``path`` in the term's folder. Never makes the term's folder, which is
        the fence: raises `FencedOutError` when it is gone.
        """
        fresh = join_path(parent_of(self._term_dir), f"fresh-{self._term.offset}-{nonce}")
        self._storage.create(join_path(fresh, _OWNER_FILE), _content(self._term, nonce, self._command))
        try:
            self._storage.rename(fresh, path)
        except FileMissingError as error:
            self._storage.delete_tree(fresh)
            raise self._term_is_over() from error

    def _prepared_path(self, nonce: str) -> str:
        return join_path(self._term_dir, f"lock-{nonce}")

    def _move_away(self, target: str, nonce: str | None) -> None:
        """Renames the lock to `target`, in the term's folder. If it is not the lock with that nonce, renames
        it back and raises `LockLostError`.

        Raises `FileMissingError` when the lock or the term's folder is gone.
        """
        self._storage.rename(LOCK_PATH, target)
        moved = _holder_at(self._storage, target)
        if moved is not None and moved.nonce == nonce:
            return
        with contextlib.suppress(AlreadyExistsError):
            self._storage.rename(target, LOCK_PATH)
        raise LockLostError(f"{LOCK_PATH} changed hands while it was moved: another writer has it now")

    def _term_is_over(self) -> FencedOutError:
        return FencedOutError(f"{self._term_dir} is gone: a newer coordinator ended term {self._term.offset}")


def _content(term: TermId, nonce: str, command: str = "") -> bytes:
    named = {"ledger": term.ledger, "command": command}
    named = {key: value for key, value in named.items() if value}
    return json.dumps({_OWNER_KEY: {"term": term.offset, "nonce": nonce, **named}}).encode()


def _holder_at(storage: Storage, path: str) -> LockHolder | None:
    """Who holds the lock at `path`; None when nothing is there. A directory with our owner file is ours,
    anything else is foreign.
    """
    since_ms = 0
    for _ in range(_LOOKS_MAX):
        info = storage.stat(path)
        if info is None:
            return None
        since_ms = info.mtime_ms
        if not info.is_dir:
            break
        try:
            owner = _parse(storage.read(join_path(path, _OWNER_FILE)), since_ms)
            if owner.command:
                beat = storage.stat(command_beat(owner.command))
                owner = replace(owner, since_ms=since_ms if beat is None else beat.mtime_ms)
        except FileMissingError:  # the lock changed hands between `stat` and `read`
            continue
        return owner
    return LockHolder(None, None, since_ms)


def _parse(content: bytes, since_ms: int) -> LockHolder:
    """What an owner file that Tidemark wrote says; any other content is another engine's."""
    try:
        parsed: Any = json.loads(content)
        owner = parsed[_OWNER_KEY]
        ledger, command = str(owner.get("ledger", "")), str(owner.get("command", ""))
        if command:
            checked_name(command)
        return LockHolder(int(owner["term"]), str(owner["nonce"]), since_ms, ledger, command)
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        ArithmeticError,
        RecursionError,
        InvalidPathError,
    ):
        return LockHolder(None, None, since_ms)
