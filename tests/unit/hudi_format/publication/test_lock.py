"""The table's lock: who gets it, who notices that it is lost, who may give it back."""

from __future__ import annotations

import pytest

from testing.faulty_storage import FaultyStorage, InjectedFaultError, When
from testing.memory_storage import InMemoryStorage
from tests.unit.hudi_format.doubles import CountingIds, ManualClock
from tidemark.errors import ErrorKind
from tidemark.hudi_format.commit.foreign_writers import foreign_writer_options
from tidemark.hudi_format.errors import (
    FencedOutError,
    LockHeldError,
    LockLostError,
)
from tidemark.hudi_format.publication.folder_lock import folder_lock
from tidemark.hudi_format.publication.locate import read_lock
from tidemark.hudi_format.publication.table_lock import LOCK_PATH, TableLock
from tidemark.hudi_format.publication.tickets import TermId

SPARKS_LOCK = b""


class Table:
    """A storage with terms 5 and 6 of a coordinator, each with its staging folder."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.ids = CountingIds()
        self.storage = InMemoryStorage(clock=self.clock)
        self.storage.make_dir("terms")
        self.storage.make_dir(".hoodie")

    def term(self, number: int) -> TableLock:
        self.storage.make_dir(f"terms/{number}")
        return folder_lock(self.storage, self.clock, self.ids, TermId(number), f"terms/{number}")

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
    lock.release()
    assert read_lock(table.storage) is None
    assert [info.name[:5] for info in table.storage.list("terms/5")] == ["lock-"]
    with pytest.raises(LockLostError):
        lock.check()


def test_a_term_uses_one_directory_again_and_again(table: Table) -> None:
    lock = table.term(5)
    for _ in range(3):
        assert lock.try_acquire()
        lock.check()
        lock.release()
    assert [info.path for info in table.storage.walk("")] == [
        f"{table.storage.list('terms/5')[0].path}/owner",
    ]


def test_an_acquire_of_unknown_outcome_is_repeated_by_the_same_lock(table: Table) -> None:
    storage = FaultyStorage(table.storage)
    table.storage.make_dir("terms/5")
    lock = folder_lock(storage, table.clock, table.ids, TermId(5), "terms/5")
    storage.fail("rename", nth=2, when=When.AFTER)
    with pytest.raises(InjectedFaultError):
        lock.try_acquire()
    assert not lock.is_held
    assert lock.try_acquire()
    lock.check()
    lock.release()
    assert read_lock(storage) is None


def test_a_lock_that_was_deleted_by_hand_is_made_anew(table: Table) -> None:
    lock = table.term(5)
    assert lock.try_acquire()
    table.storage.delete_tree(LOCK_PATH)
    with pytest.raises(LockLostError):
        lock.check()
    assert lock.try_acquire()
    lock.check()


def test_the_lock_of_another_engine_is_respected_until_it_is_gone(table: Table) -> None:
    table.storage.create(LOCK_PATH, SPARKS_LOCK)
    lock = table.term(5)
    assert not lock.try_acquire()
    started = table.clock.now_ms()
    with pytest.raises(LockHeldError, match="delete it") as held:
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


def test_a_lock_that_another_engine_takes_at_the_last_moment_is_not_held(table: Table) -> None:
    lock = table.term(5)
    rename = table.storage.rename

    def other_engine_first(src: str, dst: str, durable: bool = True) -> None:
        if dst == LOCK_PATH:
            table.storage.create(LOCK_PATH, SPARKS_LOCK)
        rename(src, dst)

    table.storage.rename = other_engine_first  # type: ignore[method-assign]
    assert not lock.try_acquire()
    assert not lock.is_held
    assert table.storage.read(LOCK_PATH) == SPARKS_LOCK
    assert len(table.storage.list("terms/5")) == 1


@pytest.mark.parametrize("found", ["nothing", "a file", "another nonce", "a directory without owner"])
def test_losing_the_lock_is_noticed_by_check_and_by_release(table: Table, found: str) -> None:
    def after() -> list[tuple[str, bytes]]:
        return [(info.path, table.storage.read(info.path)) for info in table.storage.walk(".hoodie")]

    for step in ("check", "release"):
        lock = table.term(5)
        assert lock.try_acquire()
        table.storage.delete_tree(LOCK_PATH)
        if found == "a file":
            table.storage.create(LOCK_PATH, SPARKS_LOCK)
        elif found == "another nonce":
            table.storage.create(f"{LOCK_PATH}/owner", b'{"tidemark": {"term": 5, "nonce": "other"}}')
        elif found == "a directory without owner":
            table.storage.make_dir(LOCK_PATH)
        before = after()
        with pytest.raises(LockLostError) as lost:
            getattr(lock, step)()
        assert lost.value.kind is ErrorKind.FENCED
        assert not lock.is_held
        assert after() == before
        table.storage.delete(LOCK_PATH)
        table.storage.delete_tree(LOCK_PATH)


def test_a_directory_without_owner_is_somebody_elses(table: Table) -> None:
    table.storage.make_dir(LOCK_PATH)
    holder = read_lock(table.storage)
    assert holder is not None
    assert holder.is_foreign
    assert not table.term(5).try_acquire()


def test_what_was_never_taken_can_not_be_checked_or_released(table: Table) -> None:
    for step in ("check", "release"):
        with pytest.raises(LockLostError):
            getattr(table.term(5), step)()


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
    with pytest.raises(FencedOutError):
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

    def other_engine_first(src: str, dst: str, durable: bool = True) -> None:
        if src == LOCK_PATH:
            table.storage.delete_tree(LOCK_PATH)
            table.storage.create(LOCK_PATH, SPARKS_LOCK)
        rename(src, dst)

    table.storage.rename = other_engine_first  # type: ignore[method-assign]
    with pytest.raises(LockLostError):
        lock.release()
    assert table.storage.read(LOCK_PATH) == SPARKS_LOCK


def test_foreign_writers_are_told_to_use_the_same_name_without_expiry() -> None:
    options = foreign_writer_options("file:/warehouse/t/")
    assert options["hoodie.write.lock.filesystem.path"] == "file:/warehouse/t/.hoodie"
    assert options["hoodie.write.lock.filesystem.expire"] == "0"
    assert LOCK_PATH == ".hoodie/lock"
    waits_ms = int(options["hoodie.write.lock.client.num_retries"]) * int(
        options["hoodie.write.lock.client.wait_time_ms_between_retry"]
    )
    assert waits_ms == 60_000


def test_foreign_writers_keep_column_stats_without_switching_them_on() -> None:
    stats = {
        name.removeprefix("hoodie.metadata."): value
        for name, value in foreign_writer_options("t", stats=["a", "b"]).items()
        if "stats" in name or "delete" in name
    }
    # Hudi takes the switch of column stats for that of partition stats, too.
    assert stats == {
        "index.column.stats.enable": "false",
        "auto.delete.partitions": "false",
        "index.column.stats.column.list": "a,b",
        "index.partition.stats.enable": "false",
    }
    assert "hoodie.metadata.auto.delete.partitions" not in foreign_writer_options("t")


def test_terms_are_compared_within_a_ledger(table: Table) -> None:
    table.storage.make_dir("terms/900")
    table.storage.make_dir("terms/2")
    former = folder_lock(table.storage, table.clock, table.ids, TermId(900, "former"), "terms/900")
    former.acquire(0)
    holder = read_lock(table.storage)
    assert holder is not None
    assert (holder.term, holder.ledger) == (900, "former")
    with pytest.raises(LockLostError):
        folder_lock(table.storage, table.clock, table.ids, TermId(2, "former"), "terms/2").acquire(0)
    lock = folder_lock(table.storage, table.clock, table.ids, TermId(2, "new"), "terms/2")
    lock.acquire(0)
    lock.check()


def test_a_lock_of_a_version_that_named_no_ledger_is_this_ledger_s(table: Table) -> None:
    table.term(9).acquire(0)
    table.storage.make_dir("terms/2")
    lock = folder_lock(table.storage, table.clock, table.ids, TermId(2, "new"), "terms/2")
    with pytest.raises(LockLostError):
        lock.acquire(0)
