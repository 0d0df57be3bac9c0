"""The table's lock: who may act, when it is given back, and when it is left to others (ARCHITECTURE.md,
section 4, "Commit"). How it lies in the table, so that Hudi's writers see it, is a `LockPlace`.

Hudi's writers take times from their own clocks and trust them to agree within 200 ms: who took a time sleeps
that long before the lock is given back: the next holder's clock then shows a later one. Nobody sleeps here:
`release` is told when the last time was taken, the lock stays in its place, and `tick` gives it back when the
200 ms are over. Meanwhile our own next step may take it up again. After `TURNS_MAX` such turns what begins (a
plan, a rollback) leaves it to others: until it was given back, and was free for `FREE_MS`, longer than the
pause between two tries that `foreign_writer_options` asks for. What ends an epoch never waits for that, and
needs not: the plan before it left it a turn.

Holding the lock is one thing, knowing that one still holds it another (somebody may delete anything by hand):
`check` compares the nonce. What must not appear without the lock is published with a `lease`, which asks the
same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from tidemark.hudi_format.errors import LockHeldError, LockLostError
from tidemark.hudi_format.ports import Clock
from tidemark.hudi_format.publication.tickets import Lease, TermId

LOCK_FOLDER: Final = ".hoodie"
LOCK_PATH: Final = ".hoodie/lock"
POLL_MS: Final = 100
CLOCK_SKEW_MS: Final = 200
"""Hudi's `hoodie.time.generator.max_expected_clock_skew_ms`, its default."""
FREE_MS: Final = 150
TURNS_MAX: Final = 2
_NEVER_MS: Final = -FREE_MS
_WAIT_MS_MAX: Final = CLOCK_SKEW_MS + FREE_MS + 100


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


class LockPlace(Protocol):
    """The lock as it lies in the table, for one term. ``nonce``: of the lock that this term has made, whether
    or not it is in its place; None while there is none.
    """

    nonce: str | None

    def holder(self) -> LockHolder | None:
        """Who holds the lock; None when it is free."""
        ...

    def put(self) -> bool:
        """Puts ours in its place; False when another writer was faster. Raises `FencedOutError`."""
        ...

    def take_away(self, holder: LockHolder) -> None:
        """Takes an older lock of ours away, unless it went by itself. Raises `FencedOutError`, and
        `LockLostError` when it changed hands meanwhile.
        """
        ...

    def give_back(self) -> None:
        """Takes ours away. Raises `LockLostError`."""
        ...


class TableLock:
    """The lock as one coordinator term holds it. Not reentrant; use it from one thread.

    `shown_at` names the place in messages.
    """

    def __init__(self, place: LockPlace, clock: Clock, term: TermId, shown_at: str) -> None:
        self._place = place
        self._clock = clock
        self._term = term
        self._shown_at = shown_at
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

    def holder(self) -> LockHolder | None:
        """Who holds the lock now; None when it is free."""
        return self._place.holder()

    def try_acquire(self) -> bool:
        """Takes the lock if it is free, or is an older term's of ours; False when another writer holds it.

        Raises `FencedOutError` when this term is over, `LockLostError` when a newer term of ours holds
        the lock.
        """
        if self._nonce is not None:
            self.check()
            if self._due_ms is not None:
                self._due_ms = None
                self._turns += 1
            return True
        holder = self._place.holder()
        if holder is not None:
            if holder.term is None:
                self._free_since_ms = _NEVER_MS
                return False
            # Terms of another ledger say nothing here: they were all ended when this one began.
            if TermId(holder.term, holder.ledger).is_after(self._term):
                raise LockLostError(
                    f"{LOCK_PATH} is held by term {holder.term}, this is term {self._term.offset}"
                )
            if holder.nonce == self._place.nonce:  # taken by a call whose outcome was not known
                self._nonce = holder.nonce
                return True
            self._place.take_away(holder)
        if not self._place.put():
            return False
        self._nonce = self._place.nonce
        in_a_row = self._left_ms(self._free_since_ms + FREE_MS) > 0
        self._turns = self._turns + 1 if in_a_row else 0
        return True

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
            raise LockLostError(f"term {self._term.offset} does not hold {LOCK_PATH}")
        holder = self._place.holder()
        if holder is None or holder.nonce != self._nonce:
            self._nonce = self._place.nonce = self._due_ms = None
            found = "is gone" if holder is None else "was taken by another writer"
            raise LockLostError(
                f"{LOCK_PATH} {found}: somebody deleted it while it was held. "
                "Delete that directory only when no coordinator runs"
            )

    def lease(self) -> Lease:
        """To publish with what must not appear without the lock. Raises `LockLostError`."""
        self.check()
        assert self._nonce is not None
        return Lease(self._nonce)

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
        self._nonce = None
        self._place.give_back()
        self._free_since_ms = self._clock.now_ms()

    def _held_text(self) -> str:
        holder = self._place.holder()
        since = "a moment" if holder is None else f"{max(0, self._clock.now_ms() - holder.since_ms)} ms"
        held = f"the table's lock {self._shown_at} is held by another writer for {since}"
        return f"{held}. If it is dead, delete it"
