"""What building a secondary index does under the lock, and what it reads and keeps of former slices."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from testing.clock import ManualClock
from testing.ids import SeededIds
from tests.simulation.clocked_storage import ClockedStorage
from tests.unit.table_files import existing_table, new_table, table_schema
from tidemark.commit_coordinator.offline import index_command, secondary_build, secondary_repair
from tidemark.commit_coordinator.offline.adoption import AdoptionError
from tidemark.commit_coordinator.offline.secondary_build import SecondaryBuild
from tidemark.commit_coordinator.offline.secondary_repair import SecondaryRepair
from tidemark.hudi_format import secondary_differences
from tidemark.hudi_format.commit.heartbeat import heartbeat_path
from tidemark.hudi_format.commit.instants import create_inflight, create_requested
from tidemark.hudi_format.errors import FencedOutError
from tidemark.hudi_format.metadata_table.partitions.partition import StoredEntries
from tidemark.hudi_format.metadata_table.secondary_creation import IndexContent, secondary_partition
from tidemark.hudi_format.publication.beside import PosixCommand
from tidemark.hudi_format.publication.folders import COMMAND_DEAD_MS, end_command
from tidemark.hudi_format.publication.table_lock import LOCK_PATH
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.secondary_index_scan import SecondaryIndexScan
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.storage.documents import ROOT
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import TableType, read_table_config
from tidemark.hudi_format.table_services.merging import sorted_entries
from tidemark.hudi_format.table_services.merging.sorted_entries import Entries
from tidemark.hudi_format.timeline import Action, load_timeline
from tidemark.stream_runtime.retry import Deadline
from tidemark.table_verification.verify import verify_table

INDEX = secondary_partition("by_note")


def rows(days: int, each: int, at: int, value: Callable[[int], str] = str) -> pa.Table:
    """So many rows in each of so many partitions, that is file groups."""
    found = [
        {"id": f"{day}-{number}", "day": f"d{day:02d}", "at": at, "note": value(number)}
        for day in range(days)
        for number in range(each)
    ]
    return pa.Table.from_pylist(found)


class Counted:
    """A storage that counts the calls, and the bytes that go through them, from the taking of the lock to
    giving it back.
    """

    def __init__(self, inner: Storage) -> None:
        self._inner, self._is_locked = inner, False
        self.calls: list[str] = []
        self.bytes = 0
        self.holds = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name.startswith("_") or not callable(found):
            return found

        def called(*args: Any, **kwargs: Any) -> Any:
            if name == "rename" and args[0] == LOCK_PATH:
                self._is_locked = False
            result = found(*args, **kwargs)
            if self._is_locked:
                self.calls.append(name)
                passed = [*args, *kwargs.values(), result]
                self.bytes += sum(len(some) for some in passed if isinstance(some, bytes | memoryview))
            if name == "rename" and args[1] == LOCK_PATH:
                self._is_locked, self.holds = True, self.holds + 1
            return result

        return called


def built(storage: Storage) -> None:
    build = SecondaryBuild(storage, ManualClock(2_000_000_000_000), SeededIds(1))
    build.make(INDEX, read_table_config(storage), table_schema(), "note")


@pytest.mark.parametrize("is_made_anew", [False, True])
def test_what_is_done_under_the_lock_does_not_depend_on_the_size_of_the_table(
    tmp_path: Path, is_made_anew: bool
) -> None:
    done = []
    for name, days, each in (("small", 1, 3), ("large", 12, 500)):
        new_table(tmp_path / name).commit(rows(days, each, 1))
        storage = Counted(LocalStorage(tmp_path / name))
        if is_made_anew:
            built(LocalStorage(tmp_path / name))
        built(cast(Storage, storage))
        assert storage.holds == 1
        assert "open_input" not in storage.calls
        done.append((storage.calls, storage.bytes))
        assert verify_table(LocalStorage(tmp_path / name), lambda text: None).agrees
    assert done[0][0] == done[1][0]
    assert abs(done[0][1] - done[1][1]) < 200, "sizes have more digits in the large one"
    assert done[1][1] < 20_000


class SlowTable:
    """The storage of a table whose files take seven minutes each to read, and an entry two and a half in
    each merge of sorted runs, of which there are many. After each of these times another command begins, and
    deletes what commands left that were silent for ten minutes: `deleted` files.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder, self._inner, self._ids = folder, LocalStorage(folder), SeededIds(2)
        self.waits = self.deleted = 0
        windows = sorted_entries.windows

        def slowly(sources: Sequence[Iterator[Entries]]) -> Iterator[list[Entries]]:
            for parts in windows(sources):
                self._wait(150)
                yield parts

        monkeypatch.setattr(sorted_entries, "windows", slowly)
        monkeypatch.setattr(sorted_entries, "_BATCH_BYTES", 1)
        monkeypatch.setattr(sorted_entries, "RUNS_MAX", 2)
        for module in (secondary_build, secondary_repair):
            monkeypatch.setattr(module, "HELD_BYTES", 1)
        monkeypatch.setattr(secondary_differences, "_HELD_BYTES", 1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def open_input(self, path: str) -> pa.NativeFile:
        if not path.startswith(".hoodie"):
            self._wait(420)
        return self._inner.open_input(path)

    def _wait(self, seconds: int) -> None:
        self.waits += 1
        is_dead = False
        for beat in self._folder.glob(f"{ROOT}/command-*/beat"):
            beaten_s = beat.stat().st_mtime - seconds
            os.utime(beat, (beaten_s, beaten_s))
            is_dead |= time.time() - beaten_s > COMMAND_DEAD_MS / 1_000
        if not is_dead:
            return
        other = PosixCommand(self._inner, ManualClock(2_000_000_000_000), self._ids, "")
        self.deleted += other.remove_dead()
        other.end()


@pytest.mark.parametrize(("is_there", "repairs"), [(False, False), (True, False), (True, True)])
def test_a_command_that_works_for_an_hour_is_not_taken_for_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool, repairs: bool
) -> None:
    new_table(tmp_path, TableType.COPY_ON_WRITE).commit(rows(4, 4, 1))
    if is_there:
        built(LocalStorage(tmp_path))
    slow = SlowTable(tmp_path, monkeypatch)
    command = SecondaryRepair(cast(Storage, slow), ManualClock(2_000_000_000_000), SeededIds(3))
    act = command.repair if repairs else command.make
    act(INDEX, read_table_config(LocalStorage(tmp_path)), table_schema(), "note")
    assert slow.waits >= 50
    assert slow.deleted == 0
    assert verify_table(LocalStorage(tmp_path), lambda text: None).agrees


def test_a_repair_that_was_ended_says_so_and_blames_no_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_table(tmp_path).commit(rows(1, 3, 1))
    storage, said = LocalStorage(tmp_path), list[str]()
    built(storage)
    stored = secondary_differences.stored_entries

    def ended(*args: Any) -> Iterator[StoredEntries]:
        [command] = [name for name in storage.names(ROOT) if name.startswith("command-")]
        end_command(storage, command.removeprefix("command-"))
        yield from stored(*args)

    monkeypatch.setattr(secondary_repair, "stored_entries", ended)
    repair = SecondaryRepair(storage, ManualClock(2_000_000_000_000), SeededIds(2), said.append)
    with pytest.raises(FencedOutError, match="took this command for dead"):
        repair.repair(INDEX, read_table_config(storage), table_schema(), "note")
    assert not [text for text in said if "made anew" in text]


def test_a_command_that_was_ended_while_it_held_the_lock_says_that_and_not_that_the_lock_is_gone(
    tmp_path: Path,
) -> None:
    new_table(tmp_path).commit(rows(1, 3, 1))
    storage = LocalStorage(tmp_path)

    def stopped(place: str) -> None:
        """For so long that another process took it for dead, and its lock over."""
        for command in [name for name in storage.names(ROOT) if name.startswith("command-")]:
            end_command(storage, command.removeprefix("command-"))
        storage.delete_tree(".hoodie/lock")

    build = SecondaryBuild(storage, ManualClock(2_000_000_000_000), SeededIds(2), hit=stopped)
    with pytest.raises(FencedOutError, match="took this command for dead"):
        build.make(INDEX, read_table_config(storage), table_schema(), "note")


class Scan:
    """A table with three rows in each of two file groups, scanned and prepared."""

    def __init__(self, folder: Path, table_type: TableType = TableType.MERGE_ON_READ) -> None:
        new_table(folder / "table", table_type).commit(rows(2, 3, 1))
        self.storage = LocalStorage(folder / "table")
        self.writer = existing_table(folder / "table")
        (folder / "scratch").mkdir()
        config = read_table_config(self.storage)
        self.scan = SecondaryIndexScan(
            self.storage, config, table_schema(), "note", folder / "scratch", 1 << 20
        )
        self.scan.scan()
        self.scan.prepare()

    def changes(self) -> tuple[set[str], set[str]]:
        """Puts and deletes since it was prepared."""
        content: IndexContent = self.scan.content()
        puts = {key for some in content.changes.values() for key in some.puts.to_pylist()}
        return puts, {key for some in content.changes.values() for key in some.deletes.to_pylist()}


def test_of_a_slice_that_changed_only_the_entries_that_differ_are_written(tmp_path: Path) -> None:
    table = Scan(tmp_path)
    table.writer.commit(rows(1, 1, 2, lambda number: "new"))
    table.scan.scan()
    assert table.changes() == ({"new$0-0"}, {"0$0-0"})
    table.writer.commit(rows(1, 1, 3))
    table.scan.scan()
    assert table.changes() == ({"0$0-0"}, {"new$0-0"}), "as it was; the newest of each key counts"


def test_a_former_slice_is_not_read_again(tmp_path: Path) -> None:
    """It may be cleaned away, or restored, and still says which entries go."""
    table = Scan(tmp_path, TableType.COPY_ON_WRITE)
    former = [info.path for info in table.storage.list("d00") if info.name.endswith(".parquet")]
    table.writer.commit(rows(1, 1, 2, lambda number: "new"))
    for path in former:
        table.storage.replace(path, b"nobody reads that")
    table.scan.scan()
    assert table.scan.slices_read == 1
    assert table.changes() == ({"new$0-0"}, {"0$0-0"})


def pending_since(storage: Storage, instant: str) -> None:
    by = Unfenced(storage)
    create_inflight(by, create_requested(by, instant, Action.DELTA_COMMIT))


class Beating(ManualClock):
    """While somebody sleeps, the heartbeat is kept."""

    beaten: Path | None = None

    def sleep_ms(self, duration_ms: int) -> None:
        super().sleep_ms(duration_ms)
        if self.beaten is not None:
            os.utime(self.beaten, ns=(self.now_ms() * 1_000_000,) * 2)


def test_a_living_write_is_waited_for_while_the_storages_clock_is_ahead_for_a_moment(tmp_path: Path) -> None:
    new_table(tmp_path / "table")
    clock = ManualClock(int(time.time() * 1_000))
    storage = ClockedStorage(tmp_path / "table", clock)
    pending_since(storage, "20330101000000000")
    storage.create(heartbeat_path("20330101000000000"), b"")
    storage.clock = ManualClock(clock.now_ms() + 600_000)
    command = index_command.IndexCommand(storage, clock, SeededIds(1))
    pending = load_timeline(storage).pending()
    command.wait_for(pending, Deadline(clock, 60.0))
    storage.clock = clock
    clock.advance(121.0)
    with pytest.raises(AdoptionError, match="is pending"):
        command.wait_for(pending, Deadline(clock, 60.0))


@pytest.mark.parametrize("is_alive", [False, True])
def test_a_pending_write_is_refused_by_name_once_its_writer_is_dead_or_takes_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_alive: bool
) -> None:
    monkeypatch.setattr(index_command, "PENDING_WAIT_S", 3.0)
    new_table(tmp_path / "table").commit(rows(1, 3, 1))
    storage, clock = LocalStorage(tmp_path / "table"), Beating(2_000_000_000_000)
    pending_since(storage, "20330101000000000")
    if is_alive:
        storage.create(heartbeat_path("20330101000000000"), b"")
        clock.beaten = tmp_path / "table" / heartbeat_path("20330101000000000")
    clock.sleep_ms(1)
    began_ms = clock.now_ms()
    with pytest.raises(AdoptionError, match="20330101000000000 is pending"):
        SecondaryBuild(storage, clock, SeededIds(1)).make(
            INDEX, read_table_config(storage), table_schema(), "note"
        )
    assert (clock.now_ms() - began_ms >= 3_000) == is_alive
    assert INDEX.name not in read_table_config(storage).metadata_partitions
    assert not storage.exists(LOCK_PATH)
    assert storage.names(ROOT) == []
