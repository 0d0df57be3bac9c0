"""A command beside a coordinator waits for a lock whose holder is alive, and names the cure of one whose
holder is dead.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from testing.clock import ManualClock
from testing.ids import SeededIds
from testing.memory_storage import InMemoryStorage
from tests.unit.hudi_format.doubles import CountingIds
from tidemark.commit_coordinator.commit.index_at_rest import ASKED, SILENT_MS, Rest
from tidemark.commit_coordinator.offline.adoption import AdoptionError
from tidemark.commit_coordinator.offline.index_command import IndexCommand, _AtRest
from tidemark.commit_coordinator.offline.lock_wait import LOCK_WAIT_S, LockWait
from tidemark.commit_coordinator.offline.watch import WATCHED_S
from tidemark.commit_coordinator.opening.sign_of_life import SIGN
from tidemark.hudi_format.errors import LockHeldError
from tidemark.hudi_format.publication.beside import PosixCommand
from tidemark.hudi_format.publication.locate import open_publication
from tidemark.hudi_format.publication.table_lock import LOCK_PATH, TableLock
from tidemark.hudi_format.publication.tickets import TermId

SIGNS_EVERY_MS = 5_000
HOLDER_SILENT_MS, LOCK_WAIT_MS = round(WATCHED_S * 1_000), round(LOCK_WAIT_S * 1_000)


class WatchedClock(ManualClock):
    """`on_sleep` is called before each sleep. `ahead_ms`: the wall clock was set forward by so much."""

    on_sleep: Callable[[], None] = staticmethod(lambda: None)
    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms

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
        self.said: list[str] = []
        self.beats_ms: list[int] = []

    @property
    def waited_ms(self) -> int:
        return round(self.clock.monotonic_s() * 1_000)

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
        LockWait(self.storage, self.clock, self.said.append, self.beat).acquire(command.lock)
        assert command.lock.is_held

    def beat(self) -> None:
        self.beats_ms.append(self.waited_ms)


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


def test_another_engines_writer_that_holds_it_for_long_is_waited_for() -> None:
    """Its lock is the same all the time: that says nothing of whether it lives."""
    beside = Beside(is_foreign=True)
    beside.waits(free_ms=3 * HOLDER_SILENT_MS)
    assert beside.said[-1] == "waiting for the table's lock: another writer holds it"


def test_of_a_hold_of_another_engine_that_has_no_end_the_error_says_where_it_is() -> None:
    beside = Beside(is_foreign=True)
    with pytest.raises(LockHeldError, match="If it is dead, delete it"):
        beside.waits(beside.shows_signs)
    assert LOCK_WAIT_MS <= beside.waited_ms < LOCK_WAIT_MS + 5_000


def test_who_waits_gives_signs_of_life_itself() -> None:
    beside = Beside(is_foreign=True)
    beside.waits(free_ms=60_000)
    beats = [0, *beside.beats_ms, beside.waited_ms]
    assert max(later - former for former, later in pairwise(beats)) <= 2_000


def test_a_command_that_asked_for_rest_goes_on_asking_while_it_waits() -> None:
    beside = Beside(is_foreign=True)
    by = PosixCommand(beside.storage, beside.clock, beside.ids, "l")
    command = IndexCommand(beside.storage, beside.clock, SeededIds(1))
    at_rest = _AtRest(command, by, Rest(beside.storage, "by_city", "n"))
    at_rest._asks = True
    asked: dict[bytes, int] = {}

    def happens() -> None:
        asked.setdefault(bytes(beside.storage.read(ASKED)), beside.waited_ms)
        if beside.waited_ms >= 60_000 and beside.storage.exists(LOCK_PATH) and not by.lock.is_held:
            beside.give_back()

    beside.clock.on_sleep = happens
    with command.locked(by, at_rest._alive):
        pass
    times = [0, *asked.values(), 60_000]
    assert max(later - former for former, later in pairwise(times)) < SILENT_MS // 2


def test_a_wall_clock_that_is_set_forward_makes_nobody_dead() -> None:
    beside = Beside()

    def meanwhile() -> None:
        beside.shows_signs()
        beside.clock.ahead_ms = 3_600_000 if beside.waited_ms >= 3_000 else 0

    beside.waits(meanwhile, free_ms=9_000)
    assert beside.waited_ms < 12_000
