"""The edges of the tiered index: limits of memory and disk, damage, folders in use or of another table."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from tests.unit.index_assigner.index_world import (
    BIG,
    MANY,
    Change,
    DataTable,
    promoted,
)
from tidemark.hudi_format.model import ShardId
from tidemark.index_assigner.index import seen_commits
from tidemark.index_assigner.index.errors import CacheCorruptError, CacheDiskError, CacheInUseError
from tidemark.index_assigner.index.limits import IndexLimits
from tidemark.index_assigner.index.ports import StagedChanges
from tidemark.index_assigner.index.rocks import RocksTier
from tidemark.index_assigner.index.rocks_layout import STATE_PREFIX, shard_bytes


def test_memory_stays_below_its_limits(assigners):
    table = DataTable()
    table.commit_rows(MANY)
    table.compact_index(clean=True)
    limits = IndexLimits(memory_bytes=32 << 10, disk_bytes=1 << 30)
    one = assigners(table, limits=limits).open()
    for _ in range(3):
        assert {key: each.group for key, each in one.ask(list(MANY)).items()} == {
            key: group for key, (group, _) in MANY.items()
        }
        stats = one.index.stats()
        assert 0 < stats["hot_bytes"] <= limits.hot_cache
        assert 0 < stats["hot_entries"] < len(MANY)


@pytest.mark.parametrize("is_partitioned", [False, True])
def test_the_parts_of_the_memory_are_together_the_whole(is_partitioned: bool) -> None:
    limits = IndexLimits(512 << 20, 1 << 30, is_partitioned=is_partitioned)
    used = (
        limits.rocks_memory,
        limits.uncommitted,
        limits.hot_cache,
        limits.loading,
        limits.slice_values,
        limits.slice_deletes,
        limits.shared_reads,
    )
    assert sum(used) == limits.memory_bytes
    assert limits.shared_reads == (4 << 20 if is_partitioned else 0)


def test_a_promotion_makes_python_objects_of_some_thousand_entries_at_a_time(assigners):
    """40 000 entries in one shard. With objects of all of them the peak was 16 MB."""
    table = DataTable(shards=1)
    table.commit_rows({"a": (1, 1)})
    one = assigners(table, limits=IndexLimits(memory_bytes=1 << 20, disk_bytes=1 << 30)).open(table.known())
    keys = pa.array([f"order-{number:012d}" for number in range(40_000)])
    none, yes = np.zeros(len(keys), np.int64), np.ones(len(keys), np.bool_)
    shards, places = none.astype(np.int32), np.full(len(keys), one.location(1), np.int32)
    one.index.stage(0, StagedChanges(keys, shards, places, none, yes, yes, places, none))
    one.index.counted([0], 1)
    tracemalloc.start()
    try:
        one.index.promote(1, "9" * 17, 1)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert one.index.uncommitted_entries() == 0
    assert peak < 10 << 20
    assert one.ask(["order-000000039999"])["order-000000039999"].group == 1


def test_a_damaged_folder_is_moved_aside_and_filled_again(assigners, folder, caplog):
    table = DataTable()
    table.commit_rows(MANY)
    one = assigners(table).open()
    one.close()
    for path in (folder / "a").glob("MANIFEST-*"):
        path.write_bytes(b"no manifest")
    two = assigners(table).open()
    assert "damaged" in caplog.text
    assert (folder / "a.damaged").is_dir()
    assert two.ask(["k0003"])["k0003"].group == MANY["k0003"][0]


def test_damage_that_shows_while_reading_is_healed_by_the_next_start(assigners, folder):
    table = DataTable()
    table.commit_rows(BIG)
    one = assigners(table).open()
    one.rocks.reclaim(b"\x00\x00", b"\xff\xff")
    one.close()
    for path in (folder / "a").glob("*.sst"):
        data = bytearray(path.read_bytes())
        if len(data) < 20_000:
            continue  # of bookkeeping; its damage shows when it is opened
        data[100 : len(data) // 2] = bytes(len(data) // 2 - 100)
        path.write_bytes(data)
    two = assigners(table).open()
    with pytest.raises(CacheCorruptError, match="start again"):
        two.ask(list(BIG))
    two.close()
    three = assigners(table).open()
    assert {key: each.group for key, each in three.ask(list(BIG)).items()} == {
        key: group for key, (group, _) in BIG.items()
    }


def test_one_process_a_folder_which_nobody_else_may_read(assigners, folder):
    one = assigners(DataTable())
    with pytest.raises(CacheInUseError, match="another process"):
        assigners(one.table)
    assert (folder / "a").stat().st_mode & 0o777 == 0o700


def test_content_of_another_table_is_thrown_away(assigners):
    table = DataTable()
    table.commit_rows({"a": (1, 1)})
    one = assigners(table).open()
    one.close()
    other = DataTable(shards=4)
    other.commit_rows({"b": (1, 1)})
    two = assigners(other).open()
    assert {key: found.group for key, found in two.ask("ab").items()} == {"a": None, "b": 1}


@pytest.mark.parametrize(
    "text", ["IO error: No space left on device: x.log", "IO error: Writer has previous error."]
)
def test_full_disk_says_so_and_the_cache_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str):
    def refuse(*_: object) -> None:
        raise Exception(text)

    rocks = RocksTier(tmp_path / "cache", "t 1", 8 << 20)
    rocks.write([([b"a"], [b"1"])])
    with monkeypatch.context() as full:
        full.setattr(rocks, "_db", SimpleNamespace(write=refuse))
        with pytest.raises(CacheDiskError, match=r"state\.path.*Free space"):
            rocks.write([([b"b"], [b"2"])])
    rocks.close()
    with monkeypatch.context() as full:
        full.setattr(RocksTier, "_open", refuse)
        with pytest.raises(CacheDiskError, match="Free space"):
            RocksTier(tmp_path / "cache", "t 1", 8 << 20)
    again = RocksTier(tmp_path / "cache", "t 1", 8 << 20)
    assert again.get(b"a") == b"1"
    again.close()


@pytest.mark.parametrize("value", [b"\xff", b'{"stamp": "\xff"}', b"{}", b"[" * 100_000, b""])
def test_a_shard_whose_record_cannot_be_read_is_damage_and_the_next_start_begins_anew(assigners, value):
    table = DataTable()
    table.commit_rows(MANY)
    one = assigners(table).open()
    one.ask(["k0003"])
    shards = range(table.shards)
    one.rocks.write(
        [([STATE_PREFIX + shard_bytes(ShardId(each)) for each in shards], [value] * table.shards)]
    )
    one.close()
    two = assigners(table)
    with pytest.raises(CacheCorruptError, match=r"record of shard \d+ cannot be read.*start again"):
        two.open().ask(["k0003"])
    two.close()
    three = assigners(table).open()
    assert three.ask(["k0003"])["k0003"].group == MANY["k0003"][0]


def test_files_of_rocksdb_itself_are_small(tmp_path: Path):
    """They grow with flushes and not with keys, and count as disk of the cache."""
    RocksTier(tmp_path / "cache", "t 1", 8 << 20).close()
    [stored] = (tmp_path / "cache").glob("OPTIONS-*")
    options = dict(line.strip().split("=", 1) for line in stored.read_text().splitlines() if "=" in line)
    assert int(options["max_manifest_file_size"]) <= 1 << 20
    assert int(options["max_log_file_size"]) * int(options["keep_log_file_num"]) <= 2 << 20


def test_of_its_own_commits_it_remembers_those_that_the_timeline_has(
    assigners, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(seen_commits, "PROMOTED_MIN", 10)
    table = DataTable()
    table.commit_rows({"a": (1, 1)})
    one = assigners(table).open(table.known())
    held = []
    for number in range(60):
        promoted(one, table, {f"k{number}": Change(1, 1)}, number)
        held.append(len(one.index._seen.promoted))
        # As archiving leaves it: the newest ten instants stay active.
        timeline = table.storage.list(".hoodie/timeline")
        instants = sorted({info.name[:17] for info in timeline if info.name[:1].isdigit()})
        for info in timeline:
            if info.name[:17] in instants[:-10]:
                table.storage.delete(info.path)
    assert max(held) <= 2 * 11, held
    assert one.ask(["k59"])["k59"].group == 1
