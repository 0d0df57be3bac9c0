"""A command beside a coordinator waits for a lock whose holder is alive, and names the cure of one whose
holder is dead.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from testing.clock import ManualClock
from testing.memory_storage import InMemoryStorage
from tests.unit.hudi_format.doubles import CountingIds
from tidemark.commit_coordinator.offline.adoption import AdoptionError
from tidemark.commit_coordinator.offline.lock_wait import HOLDER_SILENT_MS, LOCK_WAIT_MS, LockWait
from tidemark.commit_coordinator.opening.sign_of_life import SIGN
from tidemark.hudi_format.errors import LockHeldError
from tidemark.hudi_format.publication.beside import PosixCommand
from tidemark.hudi_format.publication.locate import open_publication
from tidemark.hudi_format.publication.table_lock import LOCK_PATH, TableLock
from tidemark.hudi_format.publication.tickets import TermId

SIGNS_EVERY_MS = 5_000


class WatchedClock(ManualClock):
    """`on_sleep` is called before each sleep."""

    on_sleep: Callable[[], None] = staticmethod(lambda: None)

    def sleep(self, seconds: float) -> None:
        self.on_sleep()
        super().sleep(seconds)


class Beside:
    """A command, and who holds the lock when the command begins: a coordinator, or another engine's
    writer.
    """

    def __init__(self, is_foreign: bool = False) -> None:
        self.is_foreign = is_foreign
        self.clock, self.ids = WatchedClock(), CountingIds()
        self.storage = InMemoryStorage(clock=self.clock)
        self.storage.make_dir(".hoodie")
        if is_foreign:
            self.storage.create(LOCK_PATH, b"Hudi's")
        else:
            publication = open_publication(self.storage, self.clock, self.ids)
            self.lock: TableLock = publication.open_term(TermId(1, "l")).lock
            self.lock.acquire(0)
        self.began_ms = self.clock.now_ms()
        self.said: list[str] = []

    @property
    def waited_ms(self) -> int:
        return self.clock.now_ms() - self.began_ms

    def shows_signs(self) -> None:
        """A coordinator that is alive does this on a thread of its own."""
        self.storage.replace(SIGN, f"c {self.waited_ms // SIGNS_EVERY_MS}".encode())

    def changes_hands(self) -> None:
        """The writer gives it back, and another one takes it before the command looks."""
        self.storage.delete(LOCK_PATH)
        self.storage.create(LOCK_PATH, b"Hudi's")

    def give_back(self) -> None:
        self.storage.delete(LOCK_PATH) if self.is_foreign else self.lock.release()

    def waits(self, meanwhile: Callable[[], None] = lambda: None, free_ms: int | None = None) -> None:
        """``meanwhile``: what happens between two looks; ``free_ms``: when the holder gives the lock back."""

        def happens() -> None:
            if free_ms is not None and self.waited_ms >= free_ms:
                self.clock.on_sleep = lambda: None
                self.give_back()
            else:
                meanwhile()

        self.clock.on_sleep = happens
        command = PosixCommand(self.storage, self.clock, self.ids, "l")
        LockWait(self.storage, self.clock, self.said.append).acquire(command.lock)
        assert command.lock.is_held


def test_a_short_hold_is_waited_for_without_a_word() -> None:
    beside = Beside()
    beside.waits(free_ms=4_000)
    assert not beside.said


def test_a_coordinator_that_holds_it_for_seconds_is_waited_for() -> None:
    """Nine seconds of a busy machine, in which its sign of life changes once."""
    beside = Beside()
    beside.waits(beside.shows_signs, free_ms=9_000)
    assert beside.said == ["waiting for the table's lock: a coordinator holds it"]
    assert beside.waited_ms < 10_000


ALIVE = pytest.mark.parametrize(
    ("is_foreign", "meanwhile"), [(False, Beside.shows_signs), (True, Beside.changes_hands)]
)


@ALIVE
def test_one_that_is_alive_is_waited_for_longer_than_a_dead_one(
    is_foreign: bool, meanwhile: Callable[[Beside], None]
) -> None:
    beside = Beside(is_foreign)
    beside.waits(lambda: meanwhile(beside), free_ms=3 * HOLDER_SILENT_MS)
    assert beside.waited_ms >= 3 * HOLDER_SILENT_MS
    assert len(beside.said) > 10


@pytest.mark.parametrize("left", [b"", b"c 7"])
def test_a_coordinator_that_gives_no_sign_is_dead_and_its_cure_is_named(left: bytes) -> None:
    beside = Beside()
    if left:
        beside.storage.replace(SIGN, left)
    with pytest.raises(AdoptionError, match="`tidemark recover` frees the lock"):
        beside.waits()
    assert HOLDER_SILENT_MS <= beside.waited_ms < HOLDER_SILENT_MS + 5_000


@ALIVE
def test_the_wait_has_an_end_and_nobody_is_called_dead(
    is_foreign: bool, meanwhile: Callable[[Beside], None]
) -> None:
    beside = Beside(is_foreign)
    with pytest.raises(AdoptionError, match="run the command again") as ended:
        beside.waits(lambda: meanwhile(beside))
    assert "recover" not in str(ended.value)
    assert LOCK_WAIT_MS <= beside.waited_ms < LOCK_WAIT_MS + 5_000


def test_a_sign_of_a_coordinator_says_nothing_of_another_engines_writer() -> None:
    beside = Beside(is_foreign=True)
    with pytest.raises(LockHeldError, match="delete it"):
        beside.waits(beside.shows_signs)
    assert HOLDER_SILENT_MS <= beside.waited_ms < HOLDER_SILENT_MS + 5_000
