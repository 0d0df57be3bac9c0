"""The table's lock: who holds it, when it is given back, and when it is left to other writers
(ARCHITECTURE.md, section 4, "Commit"). A `LockPlace` makes it visible in the table, so that Hudi's writers
see it.

**Giving it back.** Hudi's writers take times from their own clocks, and trust the clocks to agree within 200
ms. A Hudi writer that took a time therefore sleeps that long before it gives the lock back, so that the next
holder's clock shows a later time. Tidemark waits as long but does not sleep: `release` is told when the last
time was taken, the lock stays in place, and `tick` gives it back when the 200 ms are over. Meanwhile the
coordinator's own next step may take it again.

**Leaving it to others.** After `TURNS_MAX` uses in a row a step that begins something (a plan, a rollback)
waits until the lock was given back and was free for `FREE_MS`. That is longer than the pause between two
tries that `foreign_writer_options` sets, so another writer gets its turn. A step that ends an epoch never
waits for that: the plan before it left the others theirs.

**Commands beside a coordinator.** A command that runs beside a coordinator (`beside`) holds the lock like
another writer: nobody takes it over while the command gives signs of life. A term that has seen none for
`COMMAND_SILENT_MS` ends the command, which can make no file from then on, and takes the lock over.

**Losing it.** Somebody may delete the lock by hand, so `check` compares the nonce in the table with ours. A
file that must not appear without the lock is published with a `lease`, which makes the same check.
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
"""The default of Hudi's `hoodie.time.generator.max_expected_clock_skew_ms`."""
FREE_MS: Final = 150
TURNS_MAX: Final = 2
COMMAND_SILENT_MS: Final = 30_000
"""A command that holds the lock gives a sign of life more often than that."""
_NEVER_MS: Final = -FREE_MS
_WAIT_MS_MAX: Final = CLOCK_SKEW_MS + FREE_MS + 100


@dataclass(frozen=True, slots=True)
class LockHolder:
    """Who holds the lock. `term` and `nonce` are None for another engine's lock. `since_ms` (Unix epoch) is
    the modification time of the lock: of another engine's file, or of the directory that a term of ours made.
    Terms are numbers within a `ledger`. `command` is the nonce of a command that holds it beside a
    coordinator and may be alive; its signs of life change `since_ms`.
    """

    term: int | None
    nonce: str | None
    since_ms: int
    ledger: str = ""
    command: str = ""

    @property
    def is_foreign(self) -> bool:
        """Whether another engine than Tidemark holds the lock."""
        return self.term is None


class LockPlace(Protocol):
    """The lock as other writers of the table see it, for one term. ``nonce``: of the lock that this term has
    made, whether or not the term holds it now; None while it has made none.
    """

    nonce: str | None

    def holder(self) -> LockHolder | None:
        """Who holds the lock; None when it is free."""
        ...

    def put(self) -> bool:
        """Takes the free lock; False when another writer was faster. Raises `FencedOutError` when the term is
        over.
        """
        ...

    def replace(self, holder: LockHolder) -> bool:
        """Puts ours in place of the lock of an older term, or of a command that is dead, which it ends, in
        one step: no other writer finds it free. False when that lock is not there any more. Raises
        `FencedOutError` when this term is over. After another error ours may be in place: its nonce is then
        `nonce`.
        """
        ...

    def give_back(self) -> None:
        """Removes our lock. Raises `LockLostError` when it is not there any more."""
        ...


class TableLock:
    """The lock as one coordinator term holds it. Not reentrant; use it from one thread.

    `shown_at` is the lock's location for error messages.
    """

    def __init__(
        self, place: LockPlace, clock: Clock, term: TermId, shown_at: str, *, waits_for_terms: bool = False
    ) -> None:
        self._place = place
        self._clock = clock
        self._term = term
        self._shown_at = shown_at
        self._waits_for_terms = waits_for_terms
        self._command_seen: tuple[LockHolder, int] | None = None
        self._nonce: str | None = None
        self._due_ms: int | None = None
        self._free_since_ms = _NEVER_MS
        self._turns = 0

    @property
    def is_held(self) -> bool:
        """Whether this term took the lock and has not released it. Nobody else is asked: `check` does
        that.
        """
        return self._nonce is not None and self._due_ms is None

    @property
    def others_until_ms(self) -> int:
        """Until when (milliseconds, Unix epoch) a step that begins something leaves the lock to other
        writers; 0 when it may take the lock now.
        """
        if self.is_held or self._turns + 1 < TURNS_MAX:
            return 0
        until_ms = (self._free_since_ms if self._due_ms is None else self._due_ms + 1) + FREE_MS
        return until_ms if self._left_ms(until_ms) else 0

    def holder(self) -> LockHolder | None:
        """Who holds the lock now; None when it is free."""
        return self._place.holder()

    def try_acquire(self) -> bool:
        """Takes the lock if it is free or an older term of ours holds it; False when another writer holds it.

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
            if holder.term is None or self._may_be_alive(holder):
                self._free_since_ms = _NEVER_MS
                return False
            # Terms of another ledger cannot be compared with ours; all of them ended when our ledger began.
            if TermId(holder.term, holder.ledger).is_after(self._term):
                if self._waits_for_terms:
                    return False
                raise LockLostError(
                    f"{LOCK_PATH} is held by term {holder.term}, this is term {self._term.offset}"
                )
            if holder.nonce == self._place.nonce:  # an earlier call took it, and then raised an error
                self._nonce = holder.nonce
                return True
        replaced = holder is not None and self._place.replace(holder)
        if not replaced and not self._place.put():
            return False
        self._nonce = self._place.nonce
        in_a_row = self._left_ms(self._free_since_ms + FREE_MS) > 0
        self._turns = self._turns + 1 if in_a_row else 0
        return True

    def _may_be_alive(self, holder: LockHolder) -> bool:
        """Whether another process holds the lock as a command, and gave a sign of life a short while ago."""
        if not holder.command or holder.nonce == self._place.nonce:
            return False
        now_ms = self._clock.now_ms()
        seen = self._command_seen
        if seen is None or seen[0] != holder or now_ms < seen[1]:
            seen = self._command_seen = (holder, now_ms)
        return now_ms - seen[1] < COMMAND_SILENT_MS

    def acquire(self, timeout_ms: int, ends_epoch: bool = False) -> None:
        """Takes the lock. Waits until `others_until_ms` unless the step `ends_epoch`, then up to `timeout_ms`
        for another writer that holds the lock. Raises `LockHeldError` after that, and what `try_acquire`
        raises.
        """
        if not ends_epoch:
            self._leave_to_others()
        deadline_ms = self._clock.now_ms() + timeout_ms
        while not self.try_acquire():
            if self._clock.now_ms() >= deadline_ms:
                raise LockHeldError(self._held_text())
            self._clock.sleep_ms(POLL_MS)

    def check(self) -> None:
        """Raises `LockLostError` unless the lock in the table has our nonce. Call it right before each
        create.
        """
        if self._nonce is None:
            raise LockLostError(f"term {self._term.offset} does not hold {LOCK_PATH}")
        holder = self._place.holder()
        if holder is None or holder.nonce != self._nonce:
            self._nonce = self._place.nonce = self._due_ms = None
            state = "is gone" if holder is None else "was taken by another writer"
            raise LockLostError(
                f"{LOCK_PATH} {state}: somebody deleted it while it was held. "
                "Delete that directory only when no coordinator runs"
            )

    def lease(self) -> Lease:
        """The lease with which to publish files that must not appear without the lock. Raises `LockLostError`
        when the lock is not ours any more.
        """
        self.check()
        assert self._nonce is not None
        return Lease(self._nonce)

    def release(self, taken_ms: int | None = None) -> None:
        """Gives the lock back, or leaves that to `tick` until `CLOCK_SKEW_MS` have passed since the last time
        was taken under it: `taken_ms` (Unix epoch), None when no time was taken.

        Raises `LockLostError` when the lock was not ours any more; the table's lock is then left alone.
        """
        self.check()
        self._due_ms = -1 if taken_ms is None else taken_ms + CLOCK_SKEW_MS
        self.tick()

    def tick(self) -> None:
        """Gives a released lock back if its time has come. Raises `LockLostError` when it was not ours
        any more.
        """
        if self._due_ms is not None and not self._left_ms(self._due_ms + 1):
            self._due_ms = None
            self._give_back()

    def free(self) -> None:
        """Waits until a released lock can be given back, and gives it back. Raises `LockLostError` when it
        was not ours any more.
        """
        while self._due_ms is not None:
            self._clock.sleep_ms(self._left_ms(self._due_ms + 1))
            self.tick()

    def _leave_to_others(self) -> None:
        while (left_ms := self._left_ms(self.others_until_ms)) > 0:
            self.free()
            self._clock.sleep_ms(min(left_ms, POLL_MS))

    def _left_ms(self, until_ms: int) -> int:
        """Milliseconds from now to `until_ms`; 0 when that is past, or further away than any wait of ours can
        be, because the clock was set back.
        """
        left_ms = until_ms - self._clock.now_ms()
        return left_ms if 0 < left_ms <= _WAIT_MS_MAX else 0

    def _give_back(self) -> None:
        self.check()
        self._nonce = None
        self._place.give_back()
        self._free_since_ms = self._clock.now_ms()

    def _held_text(self) -> str:
        holder = self._place.holder()
        if holder is not None and holder.command:
            return (
                f"the table's lock {self._shown_at} is held by a `tidemark index` command. If that is dead, "
                f"the lock is taken over after {COMMAND_SILENT_MS // 1_000} s"
            )
        since = "a moment" if holder is None else f"{max(0, self._clock.now_ms() - holder.since_ms)} ms"
        held = f"the table's lock {self._shown_at} is held by another writer for {since}"
        return f"{held}. If it is dead, delete it"
