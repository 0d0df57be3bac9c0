"""A successor takes the lock of an ended term over, in one step."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable

import pytest

from testing.faulty_storage import FaultyStorage, InjectedFaultError, When
from tests.unit.hudi_format.publication.test_lock import SPARKS_LOCK, Table
from tidemark.hudi_format.errors import AlreadyExistsError, FencedOutError, LockLostError
from tidemark.hudi_format.publication.folder_lock import folder_lock
from tidemark.hudi_format.publication.locate import read_lock
from tidemark.hudi_format.publication.table_lock import LOCK_PATH, TableLock
from tidemark.hudi_format.publication.tickets import TermId

_CALLS = ("create", "rename", "rename_over", "delete_tree")


@pytest.fixture
def table() -> Table:
    return Table()


def test_there_is_no_moment_at_which_the_lock_directory_is_empty(table: Table) -> None:
    """An empty directory would give way to a rename, and Hudi can delete it."""
    older, newer = table.term(5), table.term(6)
    storage = table.storage
    seen: list[bool] = []

    def looking(step: Callable[..., object]) -> Callable[..., object]:
        def stepped(*args: object, **kwargs: object) -> object:
            result = step(*args, **kwargs)
            if LOCK_PATH in storage._dirs:
                seen.append(f"{LOCK_PATH}/owner" in storage._files)
            return result

        return stepped

    for name in (*_CALLS, "delete", "make_dir"):
        setattr(storage, name, looking(getattr(storage, name)))
    assert older.try_acquire()
    assert newer.try_acquire()
    newer.release()
    assert seen
    assert all(seen)
    assert not storage.exists(LOCK_PATH)


@pytest.mark.parametrize("when", When)
@pytest.mark.parametrize("call", _CALLS)
def test_at_no_point_of_a_takeover_is_the_lock_free(table: Table, call: str, when: When) -> None:
    """The storage refuses before or after any call of the takeover: no other engine gets in, and the next try
    has the lock.
    """
    for nth in (1, 2):
        older = table.term(5)
        assert older.try_acquire()
        table.end_term(5)
        table.storage.make_dir("terms/6")
        storage = FaultyStorage(table.storage)
        newer = folder_lock(storage, table.clock, table.ids, TermId(6), "terms/6")
        storage.fail(call, nth=nth, when=when)
        with contextlib.suppress(InjectedFaultError):
            newer.try_acquire()
        with pytest.raises(AlreadyExistsError):
            table.storage.create(LOCK_PATH, SPARKS_LOCK)
        storage.fail_no_more()
        assert newer.try_acquire()
        newer.check()
        newer.release()
        assert read_lock(table.storage) is None
        assert newer.try_acquire(), "and again, with the directory that is now this term's"
        newer.release()
        table.storage.delete_tree("terms")


@pytest.mark.parametrize("found", ["nothing", "a file"])
def test_a_lock_that_is_deleted_by_hand_during_a_takeover(table: Table, found: str) -> None:
    older = table.term(5)
    assert older.try_acquire()
    table.end_term(5)
    newer = table.term(6)
    rename_over = table.storage.rename_over

    def somebody_deletes_it(src: str, dst: str) -> None:
        table.storage.delete_tree(LOCK_PATH)
        if found == "a file":
            table.storage.create(LOCK_PATH, SPARKS_LOCK)
        rename_over(src, dst)

    table.storage.rename_over = somebody_deletes_it  # type: ignore[method-assign]
    assert newer.try_acquire() == (found == "nothing")
    if found == "a file":
        assert table.storage.read(LOCK_PATH) == SPARKS_LOCK
        table.storage.delete(LOCK_PATH)
        assert newer.try_acquire()
    newer.check()
    newer.release()
    assert read_lock(table.storage) is None


@pytest.mark.parametrize("frozen_at", range(1, 5))
def test_two_successors_race_for_the_lock_and_the_newest_has_it(table: Table, frozen_at: int) -> None:
    """Term 6 is frozen before its nth change of the storage; 7 ends it and takes over; then 6 goes on. The
    last of them comes after 6 had the lock: it learns of the loss by its check.
    """
    older = table.term(5)
    assert older.try_acquire()
    table.end_term(5)
    middle = table.term(6)
    storage, steps = table.storage, itertools.count(1)
    newest: list[TableLock] = []

    def freezing(step: Callable[..., object]) -> Callable[..., object]:
        def stepped(*args: object) -> object:
            if next(steps) == frozen_at:
                table.end_term(6)
                newest.append(table.term(7))
                assert newest[0].try_acquire()
            return step(*args)

        return stepped

    for name in _CALLS:
        setattr(storage, name, freezing(getattr(storage, name)))
    with contextlib.suppress(FencedOutError, LockLostError):
        assert middle.try_acquire() == (frozen_at == len(_CALLS))
    assert newest
    newest[0].check()
    with pytest.raises(LockLostError):
        middle.check()
    assert not storage.exists("terms/6")


def test_a_lock_taken_by_the_middle_term_before_it_was_ended_goes_to_the_newest(table: Table) -> None:
    middle = table.term(6)
    assert middle.try_acquire()
    table.end_term(6)
    newest = table.term(7)
    assert newest.try_acquire()
    newest.check()
    with pytest.raises(LockLostError):
        middle.check()


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
