"""How a command that runs beside a coordinator waits for the table's lock.

1. A lock whose holder is alive is waited for, `LOCK_WAIT_MS` in all. A coordinator that works takes it often,
   and on a busy machine holds it for seconds.
2. A coordinator is alive while its sign of life changes. Of another engine's writer nothing can be seen but
   its lock, which has another time when it was given back and taken again.
3. A holder of whom nothing changes for `HOLDER_SILENT_MS` is dead. The error says what frees the lock.

Example: a coordinator commits for nine seconds in one hold of the lock. The command says at second five that
it waits, and goes on at second nine. If the coordinator was killed, its lock and its sign are still the same
at second 30: the command ends, and names `tidemark recover`.

Of a command that died `TableLock` takes the lock over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidemark.commit_coordinator.offline.adoption import AdoptionError
from tidemark.commit_coordinator.opening.sign_of_life import shown_sign
from tidemark.hudi_format.errors import LockHeldError
from tidemark.hudi_format.publication.table_lock import COMMAND_SILENT_MS, LOCK_PATH, LockHolder, TableLock
from tidemark.hudi_format.storage.base import Storage
from tidemark.stream_runtime.clock import Clock

LOCK_WAIT_MS: Final = 120_000
HOLDER_SILENT_MS: Final = COMMAND_SILENT_MS
_TRY_MS: Final = 1_000
_SAY_EVERY_MS: Final = 5_000
_Sign = tuple[LockHolder | None, str]


class LockWait:
    """`say` is told every five seconds who is waited for."""

    def __init__(self, storage: Storage, clock: Clock, say: Callable[[str], None]) -> None:
        self._storage, self._clock, self._say = storage, clock, say

    def acquire(self, lock: TableLock) -> None:
        """Takes the lock. Raises AdoptionError where a dead coordinator left it, and where others have it for
        all of `LOCK_WAIT_MS`; LockHeldError where a writer of another engine seems to be dead; what
        `TableLock.try_acquire` raises.
        """
        began_ms = said_ms = since_ms = self._clock.now_ms()
        seen = self._seen(lock)
        while True:
            try:
                lock.acquire(_TRY_MS)
                return
            except LockHeldError as error:
                held = error
            now_ms, now = self._clock.now_ms(), self._seen(lock)
            if now != seen:
                seen, since_ms = now, now_ms
            elif now_ms - since_ms >= HOLDER_SILENT_MS:
                _refuse_dead(seen[0], held)
            if now_ms - began_ms >= LOCK_WAIT_MS:
                raise AdoptionError(
                    f"{LOCK_PATH} was waited for {LOCK_WAIT_MS // 1_000} s, and {_named(seen[0])} that "
                    "is alive had it each time: run the command again"
                ) from held
            if now_ms - said_ms >= _SAY_EVERY_MS:
                said_ms = now_ms
                self._say(f"waiting for the table's lock: {_named(seen[0])} holds it")

    def _seen(self, lock: TableLock) -> _Sign:
        """Who holds the lock, and the holder's sign of life. A coordinator's says nothing of others."""
        holder = lock.holder()
        is_coordinators = holder is not None and not holder.is_foreign and not holder.command
        return holder, shown_sign(self._storage) if is_coordinators else ""


def _refuse_dead(holder: LockHolder | None, held: LockHeldError) -> None:
    if holder is None or holder.command:
        return
    if holder.is_foreign:
        raise held
    raise AdoptionError(
        f"{LOCK_PATH} is held by a coordinator that has given no sign of life for "
        f"{HOLDER_SILENT_MS // 1_000} s: it is dead. `tidemark recover` frees the lock"
    ) from held


def _named(holder: LockHolder | None) -> str:
    if holder is None or holder.is_foreign:
        return "another writer"
    return "a `tidemark index` command" if holder.command else "a coordinator"
