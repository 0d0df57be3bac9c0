"""The table's lock, shared with Hudi's FileSystemBasedLockProvider (ARCHITECTURE.md, section 4, "Commit").

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

Hudi's writers take times from their own clocks and trust them to agree within 200 ms: who took a time sleeps
that long before the lock is given back: the next holder's clock then shows a later one. Nobody sleeps here:
`release` is told when the last time was taken, the lock stays in its place, and `tick` gives it back when the
200 ms are over. Meanwhile our own next step may take it up again. After `TURNS_MAX` such turns what begins (a
plan, a rollback) leaves it to others: until it was given back, and was free for `FREE_MS`, longer than the
pause between two tries that `foreign_writer_options` asks for. What ends an epoch never waits for that, and
needs not: the plan before it left it a turn.

Holding the lock is one thing, knowing that one still holds it another (somebody may delete anything by hand):
`check` compares the nonce, and is called right before each create that needs the lock.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from typing import Any, Final

from tidemark.hudi_format.errors import (
    AlreadyExistsError,
    FileMissingError,
    LockHeldError,
    LockLostError,
    StagingGoneError,
)
from tidemark.hudi_format.ports import Clock, IdSource
from tidemark.hudi_format.storage.base import Storage, join_path, parent_of

LOCK_FOLDER: Final = ".hoodie"
LOCK_PATH: Final = ".hoodie/lock"
LOCK_PROVIDER: Final = "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
_OWNER_FILE: Final = "owner"
_OWNER_KEY: Final = "tidemark"
POLL_MS: Final = 100
CLOCK_SKEW_MS: Final = 200
"""Hudi's `hoodie.time.generator.max_expected_clock_skew_ms`, its default."""
FREE_MS: Final = 150
TURNS_MAX: Final = 2
_NEVER_MS: Final = -FREE_MS
_WAIT_MS_MAX: Final = CLOCK_SKEW_MS + FREE_MS + 100
_LOOKS_MAX: Final = 3
_INDEX: Final = "hoodie.metadata.global.record.level.index"


def foreign_writer_options(base_uri: str, shards: int = 0) -> dict[str, str]:
    """The options that every other writer of the table needs to share lock and record index with Tidemark.

    `base_uri` is the table's location as that writer sees it, `shards` the number of its record index's (0:
    leave it to Hudi). Optimistic concurrency control makes it take
    locks at all, lazy cleaning keeps it from rolling back instants that have a heartbeat. The retries (a
    minute) outlast an epoch of ours that holds the lock from plan to commit; tries 100 ms apart meet the
    moments at which we leave the lock to others (`FREE_MS`).

    Hudi's default for the record index is off, and a writer *deletes* what is off in its options. Its other
    kinds of index do not look into log files; without the partition path option it leaves rows in their old
    partition. A restore may build the index anew; without both counts Hudi chooses the number of shards (10
    for a small table).
    """
    counts = {f"{_INDEX}.{bound}.filegroup.count": str(shards) for bound in ("min", "max")}
    return {
        "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
        "hoodie.clean.failed.writes.policy": "LAZY",
        "hoodie.write.lock.provider": LOCK_PROVIDER,
        "hoodie.write.lock.filesystem.path": f"{base_uri.rstrip('/')}/{LOCK_FOLDER}",
        "hoodie.write.lock.filesystem.expire": "0",
        "hoodie.write.lock.client.num_retries": "600",
        "hoodie.write.lock.client.wait_time_ms_between_retry": "100",
        "hoodie.metadata.enable": "true",
        f"{_INDEX}.enable": "true",
        **(counts if shards else {}),
        "hoodie.index.type": "GLOBAL_RECORD_LEVEL_INDEX",
        "hoodie.record.index.update.partition.path": "true",
        "hoodie.metadata.index.column.stats.enable": "false",
        "hoodie.metadata.index.partition.stats.enable": "false",
    }


def procedure_options(shards: int = 0) -> str:
    """What Hudi's procedures (`CALL run_clustering` and others) need in `options => '…'` to keep the record
    index with its number of shards: those of `foreign_writer_options` that are about the metadata table.
    """
    options = foreign_writer_options("", shards)
    return ",".join(f"{key}={value}" for key, value in options.items() if key.startswith("hoodie.metadata."))


@dataclass(frozen=True, slots=True)
class LockHolder:
    """Who holds the lock. `term` and `nonce` are None for another engine's lock; `since_ms` is the time of
    its file, for ours the time when the term made its directory. Terms are numbers within a `ledger`.
    """

    term: int | None
    nonce: str | None
    since_ms: int
    ledger: str = ""

    @property
    def is_foreign(self) -> bool:
        """Whether it isn't Tidemark that holds the lock."""
        return self.term is None


def read_lock(storage: Storage) -> LockHolder | None:
    """Who holds the lock; None when it is free."""
    return _holder_at(storage, LOCK_PATH)


class TableLock:
    """The lock as one coordinator term holds it. Not reentrant; use it from one thread.

    `term_dir` is the term's staging folder, made by the coordinator before.
    """

    def __init__(
        self, storage: Storage, clock: Clock, ids: IdSource, *, term: int, term_dir: str, ledger: str = ""
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._ids = ids
        self._term = term
        self._ledger = ledger
        self._term_dir = term_dir
        self._own_nonce: str | None = None
        self._nonce: str | None = None
        self._due_ms: int | None = None
        self._free_since_ms = _NEVER_MS
        self._turns = 0

    @property
    def is_held(self) -> bool:
        """Whether it was taken and not released; `check` tells whether that is still true."""
        return self._nonce is not None and self._due_ms is None

    @property
    def others_until_ms(self) -> int:
        """Until when (Unix epoch) what begins leaves the lock to others; 0: it may take it now."""
        if self.is_held or self._turns + 1 < TURNS_MAX:
            return 0
        until_ms = (self._free_since_ms if self._due_ms is None else self._due_ms + 1) + FREE_MS
        return until_ms if self._left_ms(until_ms) else 0

    def try_acquire(self) -> bool:
        """Takes the lock if it is free, or is an older term's of ours; False when another writer holds it.

        Raises `StagingGoneError` when this term is over, `LockLostError` when a newer term of ours holds
        the lock.
        """
        if self._nonce is not None:
            self.check()
            if self._due_ms is not None:
                self._due_ms = None
                self._turns += 1
            return True
        holder = read_lock(self._storage)
        if holder is not None:
            if holder.term is None:
                self._free_since_ms = _NEVER_MS
                return False
            # Terms of another ledger say nothing here: its folders were renamed away when this one began.
            if self._is_comparable(holder) and holder.term > self._term:
                raise LockLostError(f"{LOCK_PATH} is held by term {holder.term}, this is term {self._term}")
            if holder.nonce == self._own_nonce:  # taken by a call whose outcome was not known
                self._nonce = holder.nonce
                return True
            self._take_away(holder)
        return self._put_in_place()

    def _is_comparable(self, holder: LockHolder) -> bool:
        """Locks of versions that named no ledger are taken for this one's."""
        return not (holder.ledger and self._ledger) or holder.ledger == self._ledger

    def acquire(self, timeout_ms: int, ends_epoch: bool = False) -> None:
        """Takes the lock, waiting up to `timeout_ms` for others, and before that until `others_until_ms`
        unless it `ends_epoch`. Raises `LockHeldError`, and what `try_acquire` raises.
        """
        if not ends_epoch:
            self._leave_to_others()
        deadline_ms = self._clock.now_ms() + timeout_ms
        while not self.try_acquire():
            if self._clock.now_ms() >= deadline_ms:
                raise LockHeldError(self._held_text())
            self._clock.sleep_ms(POLL_MS)

    def check(self) -> None:
        """Raises `LockLostError` unless the lock still holds our nonce. Call it right before each create."""
        if self._nonce is None:
            raise LockLostError(f"term {self._term} does not hold {LOCK_PATH}")
        holder = read_lock(self._storage)
        if holder is None or holder.nonce != self._nonce:
            self._nonce = self._own_nonce = self._due_ms = None
            found = "is gone" if holder is None else "was taken by another writer"
            raise LockLostError(
                f"{LOCK_PATH} {found}: somebody deleted it while it was held. "
                "Delete that directory only when no coordinator runs"
            )

    def release(self, taken_ms: int | None = None) -> None:
        """Gives the lock back, or leaves that to `tick` while the last time that was taken under it
        (`taken_ms`, Unix epoch; None: none was) is younger than the clocks' skew.

        Raises `LockLostError` when it was not ours any more; then nothing is changed.
        """
        self.check()
        self._due_ms = -1 if taken_ms is None else taken_ms + CLOCK_SKEW_MS
        self.tick()

    def tick(self) -> None:
        """Gives a released lock back when its time has come. Raises as `release`."""
        if self._due_ms is not None and not self._left_ms(self._due_ms + 1):
            self._due_ms = None
            self._give_back()

    def free(self) -> None:
        """As `tick`, and waits until that time."""
        while self._due_ms is not None:
            self._clock.sleep_ms(self._left_ms(self._due_ms + 1))
            self.tick()

    def _leave_to_others(self) -> None:
        while (left_ms := self._left_ms(self.others_until_ms)) > 0:
            self.free()
            self._clock.sleep_ms(min(left_ms, POLL_MS))

    def _left_ms(self, until_ms: int) -> int:
        """How long that is from now; 0 when no wait of ours is so long: the clock was set back."""
        left_ms = until_ms - self._clock.now_ms()
        return left_ms if 0 < left_ms <= _WAIT_MS_MAX else 0

    def _give_back(self) -> None:
        self.check()
        assert self._nonce is not None
        nonce, self._nonce = self._nonce, None
        try:
            self._move_away(self._prepared_path(nonce), nonce)
        except FileMissingError as error:
            raise LockLostError(f"{LOCK_PATH} or the folder of term {self._term} is gone") from error
        self._free_since_ms = self._clock.now_ms()

    def _put_in_place(self) -> bool:
        """Renames our directory onto the lock's place; False when another writer was faster."""
        if self._own_nonce is None:
            self._own_nonce = self._prepare()
        try:
            self._storage.rename(self._prepared_path(self._own_nonce), LOCK_PATH)
        except AlreadyExistsError:
            return False
        except FileMissingError as error:
            self._own_nonce = None
            raise self._term_is_over() from error
        self._nonce = self._own_nonce
        in_a_row = self._left_ms(self._free_since_ms + FREE_MS) > 0
        self._turns = self._turns + 1 if in_a_row else 0
        return True

    def _prepare(self) -> str:
        """Puts a lock directory into the term's folder, which is never made here: it is the fence."""
        nonce = self._ids.uuid()
        fresh = join_path(parent_of(self._term_dir), f"fresh-{self._term}-{nonce}")
        self._storage.create(join_path(fresh, _OWNER_FILE), self._content(nonce))
        try:
            self._storage.rename(fresh, self._prepared_path(nonce))
        except FileMissingError as error:
            self._storage.delete_tree(fresh)
            raise self._term_is_over() from error
        return nonce

    def _prepared_path(self, nonce: str) -> str:
        return join_path(self._term_dir, f"lock-{nonce}")

    def _take_away(self, holder: LockHolder) -> None:
        """Moves an older lock of ours out of the way, unless it went by itself."""
        taken = join_path(self._term_dir, f"taken-lock-{self._ids.uuid()}")
        try:
            self._move_away(taken, holder.nonce)
        except FileMissingError as error:
            if not self._storage.exists(self._term_dir):
                raise self._term_is_over() from error
            return
        self._storage.delete_tree(taken)

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

    def _term_is_over(self) -> StagingGoneError:
        return StagingGoneError(f"{self._term_dir} is gone: a newer coordinator ended term {self._term}")

    def _content(self, nonce: str) -> bytes:
        owner = {"term": self._term, "nonce": nonce, **({"ledger": self._ledger} if self._ledger else {})}
        return json.dumps({_OWNER_KEY: owner}).encode()

    def _held_text(self) -> str:
        holder = read_lock(self._storage)
        since = "a moment" if holder is None else f"{max(0, self._clock.now_ms() - holder.since_ms)} ms"
        path = join_path(self._storage.base_uri, LOCK_PATH)
        return f"the table's lock {path} is held by another writer for {since}. If it is dead, delete it"


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
