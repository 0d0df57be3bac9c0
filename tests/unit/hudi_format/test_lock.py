"""The table's lock: who gets it, who notices that it is lost, who may give it back."""

from __future__ import annotations

import json

import pytest

from hudi_format.commit.lock import LOCK_PATH, TableLock, foreign_writer_options, read_lock
from hudi_format.errors import ErrorKind, LockHeldError, LockLostError, StagingGoneError
from hudi_format.storage import InMemoryStorage
from tests.unit.hudi_format.doubles import CountingIds, ManualClock

SPARKS_LOCK = b""


class Table:
    """A storage with terms 5 and 6 of a coordinator, each with its staging folder."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.ids = CountingIds()
        self.storage = InMemoryStorage(clock=self.clock)
        self.storage.make_dir("terms")

    def term(self, number: int) -> TableLock:
        self.storage.make_dir(f"terms/{number}")
        return TableLock(self.storage, self.clock, self.ids, term=number, term_dir=f"terms/{number}")

    def end_term(self, number: int) -> None:
        self.storage.rename(f"terms/{number}", f"terms/{number}-over")


@pytest.fixture
def table() -> Table:
    return Table()


def test_a_free_lock_is_taken_checked_and_given_back(table: Table) -> None:
    lock = table.term(5)
    assert read_lock(table.storage) is None
    assert lock.try_acquire()
    assert lock.is_held
    lock.check()
    holder = read_lock(table.storage)
    assert holder is not None
    assert (holder.term, holder.is_foreign) == (5, False)
    assert {"lockCreateTime", "lockThreadName", "lockStacksInfo"} < set(
        json.loads(table.storage.read(LOCK_PATH))
    )
    lock.release()
    assert read_lock(table.storage) is None
    assert table.storage.list("terms/5") == []
    with pytest.raises(LockLostError):
        lock.check()


def test_the_lock_of_another_engine_is_respected_until_it_is_gone(table: Table) -> None:
    table.storage.create(LOCK_PATH, SPARKS_LOCK)
    lock = table.term(5)
    assert not lock.try_acquire()
    started = table.clock.now_ms()
    with pytest.raises(LockHeldError, match="delete the file") as held:
        lock.acquire(timeout_ms=1000)
    assert held.value.kind is ErrorKind.RETRYABLE
    assert 1000 <= table.clock.now_ms() - started < 1500
    assert table.storage.read(LOCK_PATH) == SPARKS_LOCK

    def other_engine_unlocks() -> None:
        table.storage.delete(LOCK_PATH)
        table.clock.on_sleep = None

    table.clock.on_sleep = other_engine_unlocks
    lock.acquire(timeout_ms=1000)
    lock.check()


def test_a_lock_that_another_engine_emptied_while_it_settled_is_not_held(table: Table) -> None:
    lock = table.term(5)
    table.clock.on_sleep = lambda: table.storage.replace(LOCK_PATH, SPARKS_LOCK)
    assert not lock.try_acquire()
    assert not lock.is_held
    assert table.storage.read(LOCK_PATH) == SPARKS_LOCK


@pytest.mark.parametrize("content", [None, SPARKS_LOCK, b'{"tidemark": {"term": 5, "nonce": "other"}}'])
def test_losing_the_lock_is_noticed_by_check_and_by_release(table: Table, content: bytes | None) -> None:
    for step in ("check", "release"):
        lock = table.term(5)
        table.storage.delete(LOCK_PATH)
        assert lock.try_acquire()
        table.storage.delete(LOCK_PATH)
        if content is not None:
            table.storage.create(LOCK_PATH, content)
        with pytest.raises(LockLostError) as lost:
            getattr(lock, step)()
        assert lost.value.kind is ErrorKind.FENCED
        assert not lock.is_held
        assert (table.storage.read(LOCK_PATH) if table.storage.exists(LOCK_PATH) else None) == content


def test_what_was_never_taken_can_not_be_checked_or_released(table: Table) -> None:
    for step in ("check", "release"):
        with pytest.raises(LockLostError):
            getattr(table.term(5), step)()


def test_a_successor_takes_the_lock_over_and_the_older_term_can_not_free_it(table: Table) -> None:
    older = table.term(5)
    assert older.try_acquire()
    table.end_term(5)
    newer = table.term(6)
    assert newer.try_acquire()
    newer.check()
    with pytest.raises(LockLostError):
        older.check()
    with pytest.raises(LockLostError):
        older.release()
    newer.check()


def test_a_frozen_older_term_that_had_checked_can_not_free_the_successors_lock(table: Table) -> None:
    older = table.term(5)
    assert older.try_acquire()
    table.end_term(5)
    # Between its check and its rename: only the rename into the folder that is gone is left to stop it.
    with pytest.raises(LockLostError, match="gone"):
        older.release()
    holder = read_lock(table.storage)
    assert holder is not None
    assert holder.term == 5


def test_an_older_term_can_not_take_the_lock_any_more(table: Table) -> None:
    older = table.term(5)
    table.end_term(5)
    with pytest.raises(StagingGoneError):
        older.try_acquire()
    assert read_lock(table.storage) is None
    newer = table.term(6)
    assert newer.try_acquire()
    table.storage.make_dir("terms/5")
    with pytest.raises(LockLostError, match="term 6"):
        older.try_acquire()


def test_an_acquire_of_unknown_outcome_is_repeated_by_the_same_term(table: Table) -> None:
    lost_outcome = table.term(5)
    assert lost_outcome.try_acquire()
    again = table.term(5)
    assert again.try_acquire()
    again.check()
    again.release()
    assert read_lock(table.storage) is None


def test_releasing_puts_back_a_lock_that_another_engine_took_in_between(table: Table) -> None:
    lock = table.term(5)
    assert lock.try_acquire()
    rename = table.storage.rename

    def other_engine_first(src: str, dst: str) -> None:
        table.storage.replace(LOCK_PATH, SPARKS_LOCK)
        rename(src, dst)

    table.storage.rename = other_engine_first  # type: ignore[method-assign]
    with pytest.raises(LockLostError):
        lock.release()
    assert table.storage.read(LOCK_PATH) == SPARKS_LOCK


def test_foreign_writers_are_told_to_use_the_same_file_without_expiry() -> None:
    options = foreign_writer_options("file:/warehouse/t/")
    assert options["hoodie.write.lock.filesystem.path"] == "file:/warehouse/t/.hoodie"
    assert options["hoodie.write.lock.filesystem.expire"] == "0"
    assert LOCK_PATH == ".hoodie/lock"
