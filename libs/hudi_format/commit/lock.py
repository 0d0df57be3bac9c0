"""The table's lock: a file that Hudi's FileSystemBasedLockProvider respects (ARCHITECTURE.md, section 6).

What Hudi 1.2.0 does with it (tests/interop/test_lock_with_hudi.py): the lock is the file `lock` in the
folder `hoodie.write.lock.filesystem.path` (left out: `<base>/.hoodie`). Who finds it there waits; who
doesn't makes it, and it stays empty. With `hoodie.write.lock.filesystem.expire` above 0 (minutes) a file of
that age is deleted and taken, so it has to be 0. Unlocking, and closing the provider, deletes the file
whoever made it; its writers were not seen to do that to a lock of ours, whether they waited for it or gave
up. Hadoop's local file system makes the file by "look, then open", which may empty one that appeared in
between (only read).

So holding the lock is not enough to be safe from Hudi on Spark; knowing that one still holds it is what
counts:

- our file holds a nonce. `check` compares it, and is called right before each create that needs the lock;
- after taking it we wait a moment and check, so that a writer that was just between looking and opening
  shows;
- it appears by `publish` out of the term's staging folder, and goes by a rename into it: a coordinator
  whose folder was renamed away by its successor can neither take the lock nor free the successor's;
- a lock of an older term is taken over in one step, never free in between. First rename the older term's
  folder.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from hudi_format.errors import (
    AlreadyExistsError,
    FileMissingError,
    LockHeldError,
    LockLostError,
)
from hudi_format.model import instant_from_ms
from hudi_format.ports import Clock, IdSource
from hudi_format.storage.base import Storage, join_path

LOCK_FOLDER: Final = ".hoodie"
LOCK_PATH: Final = ".hoodie/lock"
LOCK_PROVIDER: Final = "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
_OWNER_KEY: Final = "tidemark"
# Longer than a JVM takes from `exists` to `open` of the same file, unless it is paused just there.
SETTLE_MS: Final = 20
POLL_MS: Final = 100


def foreign_writer_options(base_uri: str) -> dict[str, str]:
    """The options that every other writer of the table needs to share this lock with Tidemark.

    `base_uri` is the table's location as that writer sees it. Optimistic concurrency control makes it take
    locks at all, lazy cleaning keeps it from rolling back instants that have a heartbeat.
    """
    return {
        "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
        "hoodie.clean.failed.writes.policy": "LAZY",
        "hoodie.write.lock.provider": LOCK_PROVIDER,
        "hoodie.write.lock.filesystem.path": f"{base_uri.rstrip('/')}/{LOCK_FOLDER}",
        "hoodie.write.lock.filesystem.expire": "0",
    }


@dataclass(frozen=True, slots=True)
class LockHolder:
    """Who holds the lock. `term` and `nonce` are None for another engine's lock; `since_ms` is the file's
    time.
    """

    term: int | None
    nonce: str | None
    since_ms: int

    @property
    def is_foreign(self) -> bool:
        """Whether it isn't Tidemark that holds the lock."""
        return self.term is None


def read_lock(storage: Storage) -> LockHolder | None:
    """Who holds the lock; None when it is free."""
    info = storage.stat(LOCK_PATH)
    try:
        content = storage.read(LOCK_PATH)
    except FileMissingError:
        return None
    term, nonce = _parse(content)
    return LockHolder(term, nonce, info.mtime_ms if info is not None else 0)


class TableLock:
    """The lock as one coordinator term holds it. Not reentrant; use it from one thread.

    `term_dir` is the term's staging folder, made by the coordinator before.
    """

    def __init__(self, storage: Storage, clock: Clock, ids: IdSource, *, term: int, term_dir: str) -> None:
        self._storage = storage
        self._clock = clock
        self._ids = ids
        self._term = term
        self._term_dir = term_dir
        self._nonce: str | None = None

    @property
    def is_held(self) -> bool:
        """Whether it was taken and not given back; `check` tells whether that is still true."""
        return self._nonce is not None

    def try_acquire(self) -> bool:
        """Takes the lock if it is free, or is an older term's of ours; False when another writer holds it.

        Raises `StagingGoneError` when this term is over, `LockLostError` when a newer term of ours holds
        the lock.
        """
        if self._nonce is not None:
            self.check()
            return True
        holder = read_lock(self._storage)
        if holder is not None and holder.is_foreign:
            return False
        if holder is not None and holder.term is not None and holder.term > self._term:
            raise LockLostError(f"{LOCK_PATH} is held by term {holder.term}, this is term {self._term}")
        nonce = self._ids.uuid()
        try:
            # An older term's lock is replaced, this term's own is a leftover of an acquire of unknown
            # outcome.
            content = self._content(nonce)
            self._storage.publish(self._term_dir, LOCK_PATH, content, overwrite=holder is not None)
        except AlreadyExistsError:
            return False
        self._clock.sleep_ms(SETTLE_MS)
        current = read_lock(self._storage)
        if current is None or current.nonce != nonce:
            return False
        self._nonce = nonce
        return True

    def acquire(self, timeout_ms: int) -> None:
        """Takes the lock, waiting up to `timeout_ms`. Raises `LockHeldError`, and what `try_acquire`
        raises.
        """
        deadline_ms = self._clock.now_ms() + timeout_ms
        while not self.try_acquire():
            if self._clock.now_ms() >= deadline_ms:
                raise LockHeldError(self._held_text())
            self._clock.sleep_ms(POLL_MS)

    def check(self) -> None:
        """Raises `LockLostError` unless the lock file still holds our nonce. Call it right before each
        create.
        """
        if self._nonce is None:
            raise LockLostError(f"term {self._term} does not hold {LOCK_PATH}")
        holder = read_lock(self._storage)
        if holder is None or holder.nonce != self._nonce:
            self._nonce = None
            found = "is gone" if holder is None else "was taken by another writer"
            raise LockLostError(
                f"{LOCK_PATH} {found}: a writer closed, or runs with other lock settings. "
                "Other writers need hoodie.write.lock.filesystem.expire=0"
            )

    def release(self) -> None:
        """Gives the lock back. Raises `LockLostError` when it was not ours any more; then nothing is
        changed.
        """
        self.check()
        released = join_path(self._term_dir, f"released-lock-{self._nonce}")
        nonce, self._nonce = self._nonce, None
        try:
            self._storage.rename(LOCK_PATH, released)
        except FileMissingError as error:
            raise LockLostError(f"{LOCK_PATH} or the folder of term {self._term} is gone") from error
        content = self._storage.read(released)
        self._storage.delete(released)
        if _parse(content)[1] != nonce:
            # Between the check and the rename another writer deleted our lock and made its own: put that
            # one back.
            self._storage.create(LOCK_PATH, content)
            raise LockLostError(f"{LOCK_PATH} was taken by another writer while it was released")

    def _content(self, nonce: str) -> bytes:
        # The first three keys are those of Hudi's own lock info, for whoever looks at the file.
        info = {
            "lockCreateTime": instant_from_ms(self._clock.now_ms()),
            "lockThreadName": "tidemark-coordinator",
            "lockStacksInfo": [],
            _OWNER_KEY: {"term": self._term, "nonce": nonce},
        }
        return json.dumps(info).encode()

    def _held_text(self) -> str:
        holder = read_lock(self._storage)
        since = "a moment" if holder is None else f"{max(0, self._clock.now_ms() - holder.since_ms)} ms"
        path = join_path(self._storage.base_uri, LOCK_PATH)
        return (
            f"the table's lock {path} is held by another writer for {since}. "
            "If that writer is dead, delete the file"
        )


def _parse(content: bytes) -> tuple[int | None, str | None]:
    """Term and nonce of a lock file of ours, (None, None) for any other content."""
    try:
        parsed: Any = json.loads(content)
        owner = parsed[_OWNER_KEY]
        return int(owner["term"]), str(owner["nonce"])
    except (ValueError, KeyError, TypeError):
        return None, None
