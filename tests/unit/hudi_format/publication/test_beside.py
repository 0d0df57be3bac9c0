"""A command beside a coordinator: who gets the lock, who is ended, and what an ended command can still do."""

from __future__ import annotations

import pytest

from testing.memory_storage import InMemoryStorage
from tests.unit.hudi_format.doubles import CountingIds, ManualClock
from tidemark.hudi_format.errors import FencedOutError, LockHeldError, LockLostError
from tidemark.hudi_format.publication.beside import PosixCommand
from tidemark.hudi_format.publication.folders import COMMAND_DEAD_MS
from tidemark.hudi_format.publication.locate import command_beside, open_publication, read_lock
from tidemark.hudi_format.publication.table_lock import COMMAND_SILENT_MS, TableLock
from tidemark.hudi_format.publication.tickets import TermId
from tidemark.hudi_format.storage.documents import ROOT


class StorageClock:
    """By `ahead_ms` ahead of the right time."""

    def __init__(self, right: ManualClock) -> None:
        self._right, self.ahead_ms = right, 0

    def now_ms(self) -> int:
        return self._right.now_ms() + self.ahead_ms


class Table:
    """A table with a coordinator that takes part, and commands."""

    def __init__(self) -> None:
        self.clock, self.ids = ManualClock(), CountingIds()
        self.storage_clock = StorageClock(self.clock)
        self.storage = InMemoryStorage(clock=self.storage_clock)
        self.storage.make_dir(".hoodie")
        self.publication = open_publication(self.storage, self.clock, self.ids)
        self.terms = 4

    def coordinator(self) -> TableLock:
        self.terms += 1
        return self.publication.open_term(TermId(self.terms, "l")).lock

    def command(self) -> PosixCommand:
        return PosixCommand(self.storage, self.clock, self.ids, "l")

    def names(self) -> list[str]:
        return sorted(info.path for info in self.storage.walk(""))


@pytest.fixture
def table() -> Table:
    return Table()


def test_a_coordinator_waits_for_a_command_and_a_command_for_a_coordinator(table: Table) -> None:
    coordinator, command = table.coordinator(), table.command()
    assert command.lock.try_acquire()
    assert not coordinator.try_acquire()
    with pytest.raises(LockHeldError, match="tidemark index"):
        coordinator.acquire(1_000)
    command.lock.release()
    assert coordinator.try_acquire()
    assert not command.lock.try_acquire()
    coordinator.release()
    assert command.lock.try_acquire()


def test_of_two_commands_one_has_the_lock(table: Table) -> None:
    first, second = table.command(), table.command()
    assert first.lock.try_acquire()
    assert not second.lock.try_acquire()
    first.lock.release()
    assert second.lock.try_acquire()


def test_a_command_that_gives_signs_of_life_keeps_the_lock(table: Table) -> None:
    coordinator, command = table.coordinator(), table.command()
    assert command.lock.try_acquire()
    for _ in range(10):
        assert not coordinator.try_acquire()
        table.clock.sleep_ms(COMMAND_SILENT_MS - 1)
        command.beat()
    command.storage.replace("a", b"1")
    command.lock.release()


@pytest.mark.parametrize("by_command", [False, True])
def test_a_silent_command_is_ended_and_makes_no_file_any_more(table: Table, by_command: bool) -> None:
    command = table.command()
    other = table.command().lock if by_command else table.coordinator()
    command.stage("x/y/file", b"1")
    assert command.lock.try_acquire()
    assert not other.try_acquire()
    table.clock.sleep_ms(COMMAND_SILENT_MS)
    assert other.try_acquire()
    steps = (
        lambda: command.put("x/y"),
        lambda: command.take_away(".hoodie"),
        lambda: command.stage("b", b""),
        command.beat,
        lambda: command.storage.create("b", b""),
        lambda: command.storage.replace("b", b""),
    )
    before = table.names()
    for step in steps:
        with pytest.raises(FencedOutError):
            step()
    with pytest.raises(LockLostError):
        command.lock.release()
    assert table.names() == before
    other.check()
    other.release()
    assert read_lock(table.storage) is None


def test_a_command_that_was_taken_for_dead_learns_why_at_its_next_sign_of_life(table: Table) -> None:
    """A coordinator that looks for files to clean deletes it; it never had the lock."""
    command, coordinator = table.command(), table.publication.open_term(TermId(5, "l"))
    command.stage("x/y", b"1")
    table.clock.sleep_ms(COMMAND_DEAD_MS + 1)
    assert coordinator.remove_dead_commands(lambda: False) == 2
    for step in (command.beat, lambda: command.stage("x/z", b""), lambda: command.put("x")):
        with pytest.raises(FencedOutError, match="no sign of life for 600 s, or for 30 s while it held"):
            step()


@pytest.mark.parametrize("who", ["coordinator", "command"])
def test_a_command_lives_while_the_storages_clock_is_ahead_for_a_moment(table: Table, who: str) -> None:
    command, coordinator = table.command(), table.publication.open_term(TermId(5, "l"))
    command.stage("x/y", b"1")
    table.storage_clock.ahead_ms = COMMAND_DEAD_MS + 1
    if who == "coordinator":
        assert coordinator.remove_dead_commands(lambda: False) == 0
    else:
        with command_beside(table.storage, table.clock, table.ids, "l"):
            pass
    command.beat()
    command.put("x")
    assert table.storage.read("x/y") == b"1"


def test_a_folder_is_put_in_place_of_another_in_one_step(table: Table) -> None:
    table.storage.create("x/y/old", b"0")
    with command_beside(table.storage, table.clock, table.ids, "l") as command:
        command.stage("x/y/wrong", b"1")
        command.discard("x/y")
        for content in (b"1", b"2"):
            command.stage("x/y/new", content)
        assert [info.path for info in table.storage.walk("x")] == ["x/y/old"]
        command.put("x/y")
        assert [info.path for info in table.storage.walk("x")] == ["x/y/new"]
        assert command.storage.read("x/y/new") == b"2"
    assert table.names() == ["x/y/new"]


def test_what_a_killed_command_left_is_deleted_by_a_later_one(table: Table) -> None:
    killed, alive = table.command(), table.command()
    killed.stage("x/y", b"1")
    table.clock.sleep_ms(COMMAND_DEAD_MS)
    alive.beat()
    with command_beside(table.storage, table.clock, table.ids, "l"):
        assert len(table.storage.names(ROOT)) == 3, "too early"
    table.clock.sleep_ms(1)
    with command_beside(table.storage, table.clock, table.ids, "l"):
        pass
    assert table.names() == [f"{alive._folder}/beat"]


def test_who_is_killed_while_it_asks_for_the_storages_time_leaves_nothing_for_long(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(path: str) -> int:
        raise SystemExit(path)

    with monkeypatch.context() as dying:
        dying.setattr(table.storage, "delete_tree", killed)
        with pytest.raises(SystemExit):
            table.publication.now_ms()
    assert len(table.storage.names(ROOT)) == 1
    table.clock.sleep_ms(COMMAND_DEAD_MS + 1)
    term = table.publication.open_term(TermId(5, "l"))
    assert term.remove_dead_commands(lambda: False) == 2
    assert [name for name in table.storage.names(ROOT) if name not in ("terms", "ended")] == []
