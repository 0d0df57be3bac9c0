"""The table's lock as a folder, shared with Hudi's FileSystemBasedLockProvider.

Hudi 1.2.0 takes the lock `<base>/.hoodie/lock` (`hoodie.write.lock.filesystem.path`) as a *file*: who finds
something of that name waits. Tidemark takes it as a *directory* that holds one file, for what Hudi does to a
file that is not its own (tests/interop/test_lock_with_hudi.py runs all of it):

- a client that closes, or gives up waiting, deletes the file whoever made it; so does one with
  `hoodie.write.lock.filesystem.expire` set once the file is that old. Hudi deletes not recursively, which
  fails on a directory that is not empty: it says so in its log, and our lock stays;
- Hadoop's local file system makes the file by "look, then open", which may empty one that appeared in
  between. A directory can't be opened for writing.

A term has one such directory, in its own folder or renamed to the lock's place. `rename` puts a directory
neither on a file nor on a directory that holds something. Both ways work only while the term's folder is
there: a coordinator whose folder was renamed away by its successor can neither take the lock nor free the
successor's. There is no moment at which the directory is empty.

A lock of an older term is taken over in two steps, old one into our folder, ours in; another writer may get
in between, and then we wait like everybody else. Rename the older term's folder away first.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any, Final

from tidemark.hudi_format.errors import (
    AlreadyExistsError,
    FencedOutError,
    FileMissingError,
    LockHeldError,
    LockLostError,
)
from tidemark.hudi_format.ports import Clock, IdSource
from tidemark.hudi_format.publication.table_lock import LOCK_PATH, LockHolder, TableLock
from tidemark.hudi_format.publication.tickets import TermId
from tidemark.hudi_format.storage.base import FolderStorage, Storage, join_path, parent_of
from tidemark.hudi_format.storage.documents import ROOT

_OWNER_FILE: Final = "owner"
_OWNER_KEY: Final = "tidemark"
_LOOKS_MAX: Final = 3


def folder_lock(
    storage: FolderStorage, clock: Clock, ids: IdSource, term: TermId, term_dir: str
) -> TableLock:
    """The lock for a term; `term_dir` is its folder, made before."""
    place = FolderLockPlace(storage, ids, term, term_dir)
    return TableLock(place, clock, term, join_path(storage.base_uri, LOCK_PATH))


def read_lock(storage: Storage) -> LockHolder | None:
    """Who holds the lock; None when it is free."""
    return _holder_at(storage, LOCK_PATH)


def free_lock_of_ended_terms(storage: FolderStorage) -> None:
    """All terms were ended: nobody of ours can still act under the lock. Raises LockHeldError when it is
    another writer's.
    """
    holder = read_lock(storage)
    if holder is None:
        return
    if holder.is_foreign:
        raise LockHeldError(
            f"{join_path(storage.base_uri, LOCK_PATH)} is held by another writer: let it finish; "
            "if it is dead, delete it"
        )
    # In one step: an empty directory left behind would look like another writer's lock.
    storage.rename(LOCK_PATH, freed := join_path(ROOT, "freed-lock"))
    storage.delete_tree(freed)


class FolderLockPlace:
    """`LockPlace` by renames out of the term's folder and back."""

    def __init__(self, storage: FolderStorage, ids: IdSource, term: TermId, term_dir: str) -> None:
        self._storage, self._ids = storage, ids
        self._term, self._term_dir = term, term_dir
        self.nonce: str | None = None

    def holder(self) -> LockHolder | None:
        return read_lock(self._storage)

    def put(self) -> bool:
        if self.nonce is None:
            self.nonce = self._prepare()
        try:
            self._storage.rename(self._prepared_path(self.nonce), LOCK_PATH)
        except AlreadyExistsError:
            return False
        except FileMissingError as error:
            self.nonce = None
            raise self._term_is_over() from error
        return True

    def take_away(self, holder: LockHolder) -> None:
        taken = join_path(self._term_dir, f"taken-lock-{self._ids.uuid()}")
        try:
            self._move_away(taken, holder.nonce)
        except FileMissingError as error:
            if not self._storage.exists(self._term_dir):
                raise self._term_is_over() from error
            return
        self._storage.delete_tree(taken)

    def give_back(self) -> None:
        assert self.nonce is not None
        try:
            self._move_away(self._prepared_path(self.nonce), self.nonce)
        except FileMissingError as error:
            raise LockLostError(f"{LOCK_PATH} or the folder of term {self._term.offset} is gone") from error

    def _prepare(self) -> str:
        """Puts a lock directory into the term's folder, which is never made here: it is the fence."""
        nonce = self._ids.uuid()
        fresh = join_path(parent_of(self._term_dir), f"fresh-{self._term.offset}-{nonce}")
        self._storage.create(join_path(fresh, _OWNER_FILE), self._content(nonce))
        try:
            self._storage.rename(fresh, self._prepared_path(nonce))
        except FileMissingError as error:
            self._storage.delete_tree(fresh)
            raise self._term_is_over() from error
        return nonce

    def _prepared_path(self, nonce: str) -> str:
        return join_path(self._term_dir, f"lock-{nonce}")

    def _move_away(self, target: str, nonce: str | None) -> None:
        """Renames the lock into the term's folder; puts it back if it isn't the one with that nonce.

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

    def _content(self, nonce: str) -> bytes:
        ledger = {"ledger": self._term.ledger} if self._term.ledger else {}
        return json.dumps({_OWNER_KEY: {"term": self._term.offset, "nonce": nonce, **ledger}}).encode()


def _holder_at(storage: Storage, path: str) -> LockHolder | None:
    """Who holds the lock at `path`: ours is a directory with an owner file, anything else is foreign."""
    since_ms = 0
    for _ in range(_LOOKS_MAX):
        info = storage.stat(path)
        if info is None:
            return None
        since_ms = info.mtime_ms
        if not info.is_dir:
            break
        try:
            term, nonce, ledger = _parse(storage.read(join_path(path, _OWNER_FILE)))
        except FileMissingError:  # it changed hands between the two looks
            continue
        return LockHolder(term, nonce, since_ms, ledger)
    return LockHolder(None, None, since_ms)


def _parse(content: bytes) -> tuple[int | None, str | None, str]:
    """Term, nonce and ledger of an owner file of ours, (None, None, "") for any other content."""
    try:
        parsed: Any = json.loads(content)
        owner = parsed[_OWNER_KEY]
        return int(owner["term"]), str(owner["nonce"]), str(owner.get("ledger", ""))
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError):
        return None, None, ""
