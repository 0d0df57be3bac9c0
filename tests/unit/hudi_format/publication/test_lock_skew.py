"""The lock stays while clocks may differ by more than its last time's age; others get it between turns."""

from __future__ import annotations

import itertools

import pytest

from testing.memory_storage import InMemoryStorage
from tests.unit.hudi_format.doubles import CountingIds, ManualClock
from tidemark.hudi_format.commit.foreign_writers import foreign_writer_options
from tidemark.hudi_format.errors import LockLostError
from tidemark.hudi_format.publication.folder_lock import folder_lock
from tidemark.hudi_format.publication.locate import read_lock
from tidemark.hudi_format.publication.table_lock import (
    CLOCK_SKEW_MS,
    FREE_MS,
    LOCK_PATH,
    TURNS_MAX,
)
from tidemark.hudi_format.publication.tickets import TermId

TERM_DIR = ".hoodie/.aux/tidemark/terms/1"
LATER_MS = CLOCK_SKEW_MS + 1
"""From then on a clock that is late by as much shows a later time."""
TRY_MS = int(foreign_writer_options("")["hoodie.write.lock.client.wait_time_ms_between_retry"])


class World:
    """A lock, its clock, and the moments at which it was free and taken."""

    def __init__(self) -> None:
        self.storage, self.clock = InMemoryStorage(), ManualClock()
        self.storage.make_dir(TERM_DIR)
        self.lock = folder_lock(self.storage, self.clock, CountingIds(), TermId(1), TERM_DIR)
        self.free: list[int] = []

    def is_free(self) -> bool:
        return read_lock(self.storage) is None

    def work(self, duration_ms: int) -> None:
        """A loop that does something else, and looks at its lock between two things."""
        for _ in range(duration_ms):
            self.clock.current_ms += 1
            self.lock.tick()
            self.note()

    def note(self) -> None:
        if self.is_free():
            self.free.append(self.clock.now_ms())

    def step(self, duration_ms: int, ends_epoch: bool) -> None:
        """Takes the lock, takes a time at once, and releases the lock so much later."""
        until_ms = 0 if ends_epoch else self.lock.others_until_ms
        self.work(max(until_ms - self.clock.now_ms(), 0))
        self.lock.acquire(0, ends_epoch=ends_epoch)
        taken_ms = self.clock.now_ms()
        self.work(duration_ms)
        self.lock.release(taken_ms)


@pytest.fixture
def world() -> World:
    return World()


def test_a_released_lock_stays_until_others_clocks_have_passed_the_last_time(world: World) -> None:
    world.lock.acquire(0)
    taken_ms = world.clock.now_ms()
    world.clock.current_ms += 60
    world.lock.release(taken_ms)
    assert not world.lock.is_held
    world.clock.current_ms = taken_ms + CLOCK_SKEW_MS
    world.lock.tick()
    assert not world.is_free()
    world.clock.current_ms += 1
    world.lock.tick()
    assert world.is_free()
    world.lock.tick()


@pytest.mark.parametrize("age_ms", [None, LATER_MS, -86_400_000])
def test_where_no_time_was_taken_lately_it_is_given_back_at_once(world: World, age_ms: int | None) -> None:
    world.lock.acquire(0)
    world.lock.release(None if age_ms is None else world.clock.now_ms() - age_ms)
    assert world.is_free()


def test_our_next_step_takes_the_waiting_lock_up_at_once(world: World) -> None:
    world.lock.acquire(0)
    world.lock.release(world.clock.now_ms())
    before_ms = world.clock.now_ms()
    world.lock.acquire(0)
    assert world.clock.now_ms() == before_ms
    assert world.lock.is_held
    world.clock.current_ms += 10 * CLOCK_SKEW_MS
    world.lock.tick()
    assert not world.is_free(), "it is held, not waiting"


@pytest.mark.parametrize("writes_ms", [0, 40, 130, 210, 340, 349, 350, 500])
def test_a_writer_that_tries_again_and_again_gets_it_while_epochs_come_without_a_pause(
    world: World, writes_ms: int
) -> None:
    """Plan, write, decide and commit, and at once the next plan; another writer tries every 100 ms."""
    began_ms = world.clock.now_ms()
    for _ in range(40):
        world.step(20, ends_epoch=False)
        world.work(writes_ms)
        world.step(60, ends_epoch=True)
        assert world.lock._turns <= TURNS_MAX
    free = set(world.free)
    epoch_ms = LATER_MS + FREE_MS + 20 + writes_ms + 60
    for phase in range(TRY_MS):
        tries = range(began_ms + phase, world.clock.now_ms() - epoch_ms, TRY_MS)
        got = [began_ms, *(at for at in tries if at in free)]
        waited = [later - earlier for earlier, later in itertools.pairwise(got)]
        assert max(waited) <= 2 * epoch_ms + TRY_MS, (phase, max(waited))


def test_what_ends_an_epoch_never_waits_for_others(world: World) -> None:
    for writes_ms in (0, 100, 199, 300, 600, 0, 0):
        world.step(20, ends_epoch=False)
        world.work(writes_ms)
        before_ms = world.clock.now_ms()
        world.lock.acquire(0, ends_epoch=True)
        assert world.clock.now_ms() == before_ms
        world.lock.release(world.clock.now_ms())


def test_with_a_write_as_long_as_the_wait_no_plan_waits(world: World) -> None:
    for _ in range(10):
        before_ms = world.clock.now_ms()
        world.step(20, ends_epoch=False)
        world.work(LATER_MS - 20 + FREE_MS)
        world.step(60, ends_epoch=True)
        assert world.clock.now_ms() - before_ms == LATER_MS + FREE_MS + 60


def test_a_step_that_begins_waits_by_itself_when_nobody_did_for_it(world: World) -> None:
    for ends_epoch in (False, True):
        world.lock.acquire(0, ends_epoch=ends_epoch)
        world.lock.release(world.clock.now_ms())
    before_ms = world.clock.now_ms()
    world.lock.acquire(0)
    assert world.clock.now_ms() - before_ms == LATER_MS + FREE_MS


def test_another_writer_between_two_of_our_steps_begins_the_count_anew(world: World) -> None:
    for ends_epoch in (False, True):
        world.lock.acquire(0, ends_epoch=ends_epoch)
        world.lock.release(world.clock.now_ms())
    world.lock.free()
    world.storage.create(LOCK_PATH, b"theirs")
    assert not world.lock.try_acquire()
    world.storage.delete(LOCK_PATH)
    assert world.lock.try_acquire()
    assert world.lock._turns == 0


def test_a_lock_that_was_taken_away_while_it_waited_is_said_once(world: World) -> None:
    world.lock.acquire(0)
    world.lock.release(world.clock.now_ms())
    world.storage.delete_tree(LOCK_PATH)
    world.clock.current_ms += LATER_MS
    with pytest.raises(LockLostError):
        world.lock.tick()
    world.lock.tick()
    world.lock.free()
    world.lock.acquire(0)
    assert world.lock.is_held


def test_another_writers_lock_in_its_place_is_left_alone(world: World) -> None:
    world.lock.acquire(0)
    world.lock.release(world.clock.now_ms())
    world.storage.delete_tree(LOCK_PATH)
    world.storage.create(LOCK_PATH, b"theirs")
    with pytest.raises(LockLostError):
        world.lock.free()
    assert world.storage.read(LOCK_PATH) == b"theirs"


def test_freeing_waits_for_the_rest_of_the_time(world: World) -> None:
    world.lock.acquire(0)
    world.lock.release(world.clock.now_ms() - 70)
    before_ms = world.clock.now_ms()
    world.lock.free()
    assert world.clock.now_ms() - before_ms == LATER_MS - 70
    assert world.is_free()
    world.lock.free()


def test_others_try_more_often_than_we_leave_the_lock_free() -> None:
    assert TRY_MS < FREE_MS
