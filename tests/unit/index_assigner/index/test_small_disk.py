"""A disk that has less than `state.disk`: RocksDB lies there beside the run files, and ends the process when
a write of it fails.
"""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from tests.unit.index_assigner.index_world import BIG, Assigner, Change, DataTable, load_runs, promoted
from tidemark.hudi_format.hfile import writer as hfile_writer
from tidemark.hudi_format.model import ShardId
from tidemark.index_assigner.index import change_tier, key_ranges, run_tier
from tidemark.index_assigner.index.copies import copy_bytes
from tidemark.index_assigner.index.limits import IndexLimits
from tidemark.index_assigner.runs.loading import ChangeLoad

KEYS = sorted(BIG)
UPDATES = {key: Change(BIG[key][0], 5_000 + at, updated=True) for at, key in enumerate(KEYS[:200:10])}


class Disk:
    """A disk of ``size`` bytes for one assigner; ``others``: bytes of somebody else there."""

    def __init__(self, one: Assigner, monkeypatch: pytest.MonkeyPatch) -> None:
        self._one, self._rocks = one, one.rocks.disk_bytes
        self.size, self.others, self.grown = 1 << 40, 0, 0
        monkeypatch.setattr(one.rocks, "disk_bytes", lambda: self._rocks() + self.grown)
        monkeypatch.setattr(
            os, "statvfs", lambda _: SimpleNamespace(f_blocks=1, f_frsize=1, f_bavail=self.free)
        )

    @property
    def taken(self) -> int:
        """By RocksDB and all run files, whole or not."""
        stats = [path.stat() for path in (self._one.folder / "runs").iterdir()]
        return self._one.rocks.disk_bytes() + sum(min(one.st_size, one.st_blocks * 512) for one in stats)

    @property
    def free(self) -> int:
        return max(self.size - self.others - self.taken, 0)


@pytest.fixture(autouse=True)
def _small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hfile_writer, "_block_bytes", lambda _: 8_000)
    monkeypatch.setattr(key_ranges, "_BLOCKS_PER_RANGE", 4)
    monkeypatch.setattr(run_tier, "_KEYS_PER_PLAN", 500)
    monkeypatch.setattr(change_tier, "_WRITTEN_MIN", 8)


def opened(assigners, shards: int) -> tuple[Assigner, DataTable]:
    table = DataTable(shards)
    table.commit_rows(BIG)
    table.compact_index(clean=True)
    one: Assigner = assigners(table, limits=IndexLimits(64 << 20, 1 << 40)).open(table.known())
    return one, table


def look(one: Assigner, table: DataTable) -> None:
    one.index._hot.drop_shards([ShardId(number) for number in range(table.shards)])
    found = one.ask(KEYS)
    assert {key: each.group for key, each in found.items()} == {key: table.rows[key][0] for key in KEYS}


def test_loads_of_several_shards_together_leave_the_disk_what_rocksdb_needs(assigners, monkeypatch) -> None:
    """Each of them alone would leave a quarter of what the one before had left."""
    one, table = opened(assigners, 4)
    disk = Disk(one, monkeypatch)
    whole = sum(map(copy_bytes, one.index._held.openings()))
    # Seven eighths of the disk, and of these three quarters.
    disk.size = round((disk.taken + 0.6 * whole) * 32 / 21)
    for _ in range(30):
        look(one, table)
        assert disk.taken <= disk.size * 7 // 8
    loaded = one.index.stats()["runs_loaded"]
    for _ in range(10):
        look(one, table)
    stats = one.index.stats()
    assert stats["runs_loaded"] == loaded
    assert 0.3 * whole < stats["run_bytes"] < 0.7 * whole
    disk.size = 1 << 40
    for _ in range(20):
        look(one, table)
    assert one.index.stats()["run_entries"] == len(BIG)


def changed(assigners, monkeypatch: pytest.MonkeyPatch) -> tuple[Assigner, DataTable, Disk]:
    """An assigner with a whole run and changes of which a take-over is due, on a disk that is full but for a
    kilobyte.
    """
    one, table = opened(assigners, 1)
    disk = Disk(one, monkeypatch)
    load_runs(one, KEYS)
    promoted(one, table, UPDATES, 5)
    disk.size = disk.taken + 1_000
    return one, table, disk


def test_a_take_over_on_a_nearly_full_disk_gets_the_room_of_the_ranges_that_leave_for_it(
    assigners, monkeypatch
) -> None:
    one, table, disk = changed(assigners, monkeypatch)
    needed = 0.3 * one.index.stats()["run_bytes"]
    monkeypatch.setattr(change_tier, "_BYTES_OF_ENTRY", round(needed / len(UPDATES)))
    for _ in range(10):
        look(one, table)
        assert disk.taken <= disk.size
    stats = one.index.stats()
    assert stats["take_overs"] == 1
    assert 0 < stats["run_entries_evicted"] < len(BIG)


def test_nothing_leaves_for_a_take_over_that_has_no_room_even_then(assigners, monkeypatch) -> None:
    one, table, _ = changed(assigners, monkeypatch)
    monkeypatch.setattr(change_tier, "_BYTES_OF_ENTRY", 1 << 20)
    for _ in range(10):
        look(one, table)
    stats = one.index.stats()
    assert (stats["take_overs"], stats["run_entries_evicted"], stats["runs_evicted"]) == (0, 0, 0)


def test_a_take_over_goes_on_where_ranges_have_to_leave_meanwhile(assigners, monkeypatch) -> None:
    """And some more leave than have to, so that the next promotion need not do the same."""
    one, table, disk = changed(assigners, monkeypatch)
    disk.size, runs = 1 << 40, one.index._runs
    while runs._loading is None or not isinstance(runs._loading[1], ChangeLoad):
        look(one, table)
    load, held = runs._loading[1], runs._copies.held_bytes()
    disk.size = disk.taken
    limit = runs.disk.limit()
    assert runs.make_room(limit)
    assert one.index.stats()["run_entries_evicted"] > 0
    assert runs.disk.over(limit) <= -held // 16
    assert runs._loading[1] is load
    while not one.index.stats()["take_overs"]:
        look(one, table)
    look(one, table)


@pytest.mark.parametrize("whose", ["grown", "others"])
def test_run_files_leave_a_small_disk_when_rocksdb_or_somebody_else_needs_it(
    assigners, monkeypatch, whose: str
) -> None:
    one, table = opened(assigners, 1)
    disk = Disk(one, monkeypatch)
    load_runs(one, KEYS)
    disk.size = disk.taken * 3 // 2
    promoted(one, table, {KEYS[0]: Change(1, 5_000, updated=True)}, 5)
    assert one.index.stats()["run_entries_evicted"] == 0
    setattr(disk, whose, disk.free - 1_000)
    promoted(one, table, {KEYS[0]: Change(2, 6_000, updated=True)}, 6)
    stats = one.index.stats()
    assert stats["run_entries_evicted"] > 0
    assert (stats["run_shards"], stats["shards_dropped"]) == (1, 0)
    assert disk.free >= (disk.size - disk.others) // 8
    assert stats["rocksdb_bytes_max"] < disk.size
    look(one, table)


def test_a_file_system_that_does_not_say_its_size_has_what_state_disk_says(assigners, monkeypatch) -> None:
    one, table = opened(assigners, 1)
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_blocks=0, f_frsize=0, f_bavail=0))
    load_runs(one, KEYS)
    assert one.index.stats()["rocksdb_bytes_max"] == one.limits.disk_bytes
    look(one, table)
