"""How a command that runs beside a coordinator waits for the table's lock.

1. A lock is waited for, `LOCK_WAIT_S` in all. A coordinator that works takes it often, and on a busy machine
   holds it for seconds.
2. A coordinator that holds it is alive while its sign of life changes. One of which nothing changes for
   `WATCHED_S` is dead. The error says what frees the lock.
3. Another engine's writer shows nothing while it holds the lock: it is waited for to the end, and never
   called dead.
4. While the command waits it gives signs of life itself: it may have asked the coordinator for a moment
   without commits, which ends when it is silent.

Example: a coordinator commits for nine seconds in one hold of the lock. The command says at second five that
it waits, and goes on at second nine. If the coordinator was killed, its lock and its sign are still the same
at second 30: the command ends, and names `tidemark recover`.

Of a command that died `TableLock` takes the lock over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidemark.commit_coordinator.offline.adoption import AdoptionError
from tidemark.commit_coordinator.offline.watch import WATCHED_S, SignWatch
from tidemark.hudi_format.errors import LockHeldError
from tidemark.hudi_format.publication.table_lock import LOCK_PATH, LockHolder, TableLock
from tidemark.hudi_format.storage.base import Storage
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.retry import Deadline

LOCK_WAIT_S: Final = 120.0
_TRY_MS: Final = 1_000
_SAY_EVERY_S: Final = 5.0


class LockWait:
    """``say`` is told every five seconds who is waited for; ``beat`` is called at each try, about once a
    second.
    """

    def __init__(
        self, storage: Storage, clock: Clock, say: Callable[[str], None], beat: Callable[[], None]
    ) -> None:
        self._storage, self._clock, self._say, self._beat = storage, clock, say, beat

    def acquire(self, lock: TableLock) -> None:
        """Takes the lock. Raises AdoptionError where a dead coordinator left it, and where others take turns
        with it for all of `LOCK_WAIT_S`; LockHeldError where one writer of another engine has it for all
        that time; what `TableLock.try_acquire` raises.
        """
        deadline, quiet = Deadline(self._clock, LOCK_WAIT_S), Deadline(self._clock, _SAY_EVERY_S)
        first = holder = lock.holder()
        takes_turns, watch = False, SignWatch(self._storage, self._clock)
        while True:
            self._beat()
            try:
                lock.acquire(_TRY_MS)
                return
            except LockHeldError as error:
                held = error
            before, holder = holder, lock.holder()
            takes_turns |= holder != first
            if not watch.look() and holder != before:
                watch.moved()
            if _is_coordinators(holder) and watch.is_silent:
                raise AdoptionError(
                    f"{LOCK_PATH} is held by a coordinator that has given no sign of life for "
                    f"{WATCHED_S:.0f} s: it is dead. `tidemark recover` frees the lock"
                ) from held
            if deadline.is_over:
                if holder is not None and holder.is_foreign and not takes_turns:
                    raise held
                raise AdoptionError(
                    f"{LOCK_PATH} was waited for {LOCK_WAIT_S:.0f} s, and {_named(holder)} had it each time: "
                    "run the command again"
                ) from held
            if quiet.is_over:
                quiet = Deadline(self._clock, _SAY_EVERY_S)
                self._say(f"waiting for the table's lock: {_named(holder)} holds it")


def _is_coordinators(holder: LockHolder | None) -> bool:
    return holder is not None and not holder.is_foreign and not holder.command


def _named(holder: LockHolder | None) -> str:
    if holder is None or holder.is_foreign:
        return "another writer"
    return "a `tidemark index` command" if holder.command else "a coordinator"
