"""What building a secondary index does under the lock, and what it reads and keeps of former slices."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from testing.clock import ManualClock
from testing.ids import SeededIds
from tests.unit.table_files import existing_table, new_table, table_schema
from tidemark.commit_coordinator.offline import index_command
from tidemark.commit_coordinator.offline.adoption import AdoptionError
from tidemark.commit_coordinator.offline.secondary_build import SecondaryBuild
from tidemark.hudi_format.commit.heartbeat import heartbeat_path
from tidemark.hudi_format.commit.instants import create_inflight, create_requested
from tidemark.hudi_format.metadata_table.secondary_creation import IndexContent, secondary_partition
from tidemark.hudi_format.publication.table_lock import LOCK_PATH
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.secondary_index_scan import SecondaryIndexScan
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.storage.documents import ROOT
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import TableType, read_table_config
from tidemark.hudi_format.timeline import Action
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
