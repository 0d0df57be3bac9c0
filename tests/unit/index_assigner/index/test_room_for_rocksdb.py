"""Run files leave a full disk for RocksDB also before the first promotion: when it opens, and while lanes are
filled.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.index_assigner.full_disk import FullDisk, copies
from tests.unit.index_assigner.index.test_small_disk import Disk
from tests.unit.index_assigner.index_world import LANES, MANY, Assigner, Change, load_runs, promoted
from tidemark.index_assigner.index import change_tier
from tidemark.index_assigner.index.errors import CacheDiskError
from tidemark.index_assigner.index.rocks import RocksTier

PLACES = {key: group for key, (group, _) in MANY.items()}


def places(one: Assigner) -> dict[str, int | None]:
    return {key: found.group for key, found in one.ask(list(MANY)).items()}


def changes(folder: Path) -> list[Path]:
    return sorted((folder / "runs").glob("*+*.run"))


@pytest.fixture
def warm(assigners, table, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder of an assigner that has ended: a copy of each of three shards, and change runs."""
    monkeypatch.setattr(change_tier, "_WRITTEN_MIN", 8)
    one = assigners(table).open(table.known())
    load_runs(one, list(MANY))
    promoted(one, table, {key: Change(group, 5_000) for key, group in PLACES.items()}, 5)
    for _ in range(20):
        one.ask(list(MANY))
    one.close()
    folder: Path = one.folder
    assert (len(copies(folder)), len(changes(folder))) == (table.shards, table.shards)
    return folder


@pytest.mark.parametrize(("fit", "left"), [(2, 2), (1, 0), (0, 0)])
@pytest.mark.parametrize("what", ["open", "put"])
def test_copies_leave_a_disk_on_which_rocksdb_cannot_open(
    assigners, table, warm: Path, monkeypatch: pytest.MonkeyPatch, what: str, fit: int, left: int
) -> None:
    """First one of them, then two more. ``put``: it opens, and cannot write whose cache it is."""
    disk, database = FullDisk(warm, fit), RocksTier._database

    def on_full_disk(rocks: RocksTier) -> object:
        if what == "put":
            return disk.refusing(database(rocks), "put")
        disk.check()
        return database(rocks)

    before = changes(warm)
    monkeypatch.setattr(RocksTier, "_database", on_full_disk)
    one = assigners(table).open(table.known())
    assert (len(copies(warm)), changes(warm)) == (left, before)
    assert disk.refused == (1 if left else 2)
    assert not warm.with_name(f"{warm.name}.damaged").exists()
    assert places(one) == PLACES
    assert one.index.stats()["change_runs_lost"] == 0


def test_without_a_copy_that_could_leave_the_start_ends_and_change_runs_stay(
    assigners, table, warm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = changes(warm)

    def refuse(_: RocksTier) -> None:
        raise Exception("IO error: No space left on device")

    with monkeypatch.context() as full:
        full.setattr(RocksTier, "_database", refuse)
        with pytest.raises(CacheDiskError):
            assigners(table)
    assert (copies(warm), changes(warm)) == ([], before)
    assert places(assigners(table).open(table.known())) == PLACES


def test_files_of_another_name_stay_where_copies_leave(
    assigners, table, warm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unfinished files and damaged ones leave as copies do. What somebody else has put there is no run."""
    disk, database = FullDisk(warm), RocksTier._database
    for name in ("00001-x.part", "00002-x+y.damaged", "notes.part", "copy.run"):
        (warm / "runs" / name).write_bytes(b"x")

    def on_full_disk(rocks: RocksTier) -> object:
        if len(copies(warm)) > 1:
            disk.check()
        return database(rocks)

    with monkeypatch.context() as full:
        full.setattr(RocksTier, "_database", on_full_disk)
        one = assigners(table)
    names = {path.name for path in (warm / "runs").iterdir()} - {path.name for path in changes(warm)}
    assert names == {"copy.run"}
    assert places(one.open(table.known())) == PLACES


def test_run_files_leave_while_lanes_are_filled(assigners, table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer has moved rows, and no promotion follows."""
    one = assigners(table).open(table.known())
    load_runs(one, list(MANY))
    for lane in range(LANES):
        one.index.close_lane(lane)
    moved = {key: (1 + group % 3, 9_000) for key, group in list(PLACES.items())[:40]}
    table.commit_rows(moved)
    disk = Disk(one, monkeypatch)
    disk.size = (disk.taken + 1_000) * 8 // 7
    one.open(table.known())
    assert 0 < one.index.stats()["runs_evicted"] < table.shards
    assert disk.taken <= disk.size * 7 // 8
    assert places(one) == {key: group for key, (group, _) in table.rows.items()}


def test_a_filling_that_the_disk_refuses_succeeds_once_copies_have_left(
    assigners, table, warm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`df` shows room, as on a volume with a quota. RocksDB takes no more in the same process, so each one
    gives up a part.
    """
    table.commit_rows({key: (1 + group % 3, 9_000) for key, group in PLACES.items()})
    # So an eighth of what the cache takes is one of the copies.
    monkeypatch.setattr(RocksTier, "disk_bytes", lambda _: 0)
    before, left = changes(warm), [len(copies(warm))]
    while True:
        one = assigners(table)
        one.rocks._db = FullDisk(warm).refusing(one.rocks._db, "write")
        try:
            one.open(table.known())
        except CacheDiskError:
            after_one = len(copies(warm))
            assert after_one < left[-1]
            left.append(after_one)
            if after_one:
                with pytest.raises(CacheDiskError):
                    one.open(table.known())
                assert len(copies(warm)) == after_one
            one.close()
            continue
        break
    assert left == [3, 2, 1, 0]
    assert changes(warm) == before
    assert places(one) == {key: group for key, (group, _) in table.rows.items()}


def test_a_full_disk_is_named_where_a_cache_of_another_table_was_emptied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is on the disk is no damage, and is not moved aside."""
    folder, database = tmp_path / "cache", RocksTier._database
    RocksTier(folder, "one", 16 << 20).close()
    disk, opened = FullDisk(folder, fit=-1), list[object]()

    def on_full_disk(rocks: RocksTier) -> object:
        found = database(rocks)
        opened.append(found)
        return found if len(opened) == 1 else disk.refusing(found, "put")

    with monkeypatch.context() as full:
        full.setattr(RocksTier, "_database", on_full_disk)
        with pytest.raises(CacheDiskError, match="No space left"):
            RocksTier(folder, "another", 16 << 20)
    assert not folder.with_name("cache.damaged").exists()
    RocksTier(folder, "another", 16 << 20).close()
