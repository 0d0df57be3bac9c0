"""A table whose run files do not fit into `state.disk`: which key ranges have a place there, and that every
answer is the same without one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pytest

from tests.unit.index_assigner.full_disk import created_on_full_disk
from tests.unit.index_assigner.index_world import BIG, Assigner, Change, DataTable, load_runs, promoted
from tidemark.hudi_format.hfile import writer as hfile_writer
from tidemark.hudi_format.model import ShardId
from tidemark.index_assigner.index import copies, key_ranges, run_tier
from tidemark.index_assigner.index.copies import copy_bytes
from tidemark.index_assigner.index.key_ranges import KeyRanges, RangeTable
from tidemark.index_assigner.index.limits import IndexLimits
from tidemark.index_assigner.index.ports import Tier
from tidemark.index_assigner.runs.files import RunFolder

GROUPS = {key: group for key, (group, _) in BIG.items()}
IN_ORDER = sorted(BIG)
OLD, NEW = IN_ORDER[:1_000], IN_ORDER[-1_000:]


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> DataTable:
    """One shard, of about 45 blocks in 12 key ranges, whose images take several pages."""
    monkeypatch.setattr(hfile_writer, "_block_bytes", lambda _: 8_000)
    monkeypatch.setattr(key_ranges, "_BLOCKS_PER_RANGE", 4)
    monkeypatch.setattr(run_tier, "_KEYS_PER_PLAN", 500)
    table = DataTable(shards=1)
    table.commit_rows(BIG)
    table.compact_index(clean=True)
    return table


def opened(assigners, table: DataTable, share: float) -> Assigner:
    """An assigner whose disk has room for this share of the run file."""
    limits = IndexLimits(64 << 20, 1 << 30)
    one: Assigner = assigners(table, limits=limits).open(table.known())
    [shard] = one.index._held.openings()
    allow(one, round(copy_bytes(shard) * share))
    return one


def allow(one: Assigner, run_bytes: int) -> None:
    disk = one.rocks.disk_bytes() + run_bytes
    object.__setattr__(one.limits, "disk_bytes", disk * 4 // 3 + 1)


def look(one: Assigner, keys: Sequence[str], times: int = 1) -> float:
    """Looks the keys up so often; returns the share of them that a run file answered the last time."""
    for _ in range(times):
        one.index._hot.drop_shards([ShardId(0)])
        found = one.ask(keys)
        assert {key: each.group for key, each in found.items()} == {key: GROUPS.get(key) for key in keys}
        assert one.index._runs.disk.run_bytes <= one.limits.disk_bytes
    return sum(each.tier is Tier.RUN for each in found.values()) / len(keys)


def test_without_room_for_all_what_is_used_is_loaded_and_the_rest_is_counted(assigners, table) -> None:
    one = opened(assigners, table, 0.5)
    assert one.index.stats()["run_entries_lacking"] == 0, "nothing was read yet"
    assert look(one, NEW, 8) == 1
    assert 0.3 < look(one, IN_ORDER) < 0.6
    stats = one.index.stats()
    assert stats["run_entries"] + stats["run_entries_lacking"] == pytest.approx(len(BIG), rel=0.01)
    assert 0.3 < stats["run_entries"] / len(BIG) < 0.6
    absent = [f"{key}x" for key in IN_ORDER[::40]]
    assert look(one, absent) == 0, "absent keys are answered too, wherever they are"
    one.close()
    again = assigners(table, limits=one.limits).open(table.known())
    assert look(again, NEW) == 1
    assert again.index.stats()["run_entries"] == stats["run_entries"]


def test_when_other_keys_are_used_they_take_the_place(assigners, table) -> None:
    one = opened(assigners, table, 0.5)
    look(one, NEW, 8)
    assert look(one, OLD, 25) > 0.95
    assert one.index.stats()["runs_loaded"] <= 4


def test_uniform_keys_are_loaded_once(assigners, table) -> None:
    one = opened(assigners, table, 0.5)
    random = np.random.default_rng(7)
    for _ in range(8):
        look(one, [IN_ORDER[at] for at in random.choice(len(IN_ORDER), 400, replace=False)])
    loaded = one.index.stats()["runs_loaded"]
    assert loaded >= 1
    for _ in range(20):
        look(one, [IN_ORDER[at] for at in random.choice(len(IN_ORDER), 400, replace=False)])
    stats = one.index.stats()
    assert (stats["runs_loaded"], stats["run_entries_evicted"], stats["runs_evicted"]) == (loaded, 0, 0)


def test_what_is_used_least_leaves_when_rocksdb_grows_and_comes_back_when_there_is_room(
    assigners, table
) -> None:
    one = opened(assigners, table, 4)
    load_runs(one, IN_ORDER)
    look(one, NEW, 3)
    whole = one.index.stats()["run_bytes"]
    object.__setattr__(one.limits, "disk_bytes", one.rocks.disk_bytes() + whole // 2)
    promoted(one, table, {"new": Change(2, 1)}, 5)
    stats = one.index.stats()
    assert stats["run_entries_evicted"] > 500
    assert (stats["runs_evicted"], stats["shards_dropped"], stats["run_shards"]) == (0, 0, 1)
    assert stats["run_bytes"] <= whole // 2
    assert look(one, NEW) == 1
    assert look(one, OLD) == 0
    one.close()
    again = assigners(table, limits=one.limits).open(table.known())
    assert (look(again, NEW), look(again, OLD)) == (1, 0)
    allow(again, 4 * int(whole))
    look(again, OLD, 10)
    assert look(again, IN_ORDER) == 1
    assert again.index.stats()["run_entries_lacking"] == 0


def test_warming_ends_where_the_disk_has_no_room_though_look_ups_go_on(assigners, table) -> None:
    one = opened(assigners, table, 0.5)
    assert one.index.warm(start=True).left == 1
    for _ in range(20):
        look(one, IN_ORDER[::10])
    progress = one.index.warm(start=False)
    assert (progress.left, progress.loaded) == (0, 0)
    assert 0.3 < progress.entries / progress.entries_max < 0.6
    look(one, IN_ORDER)
    assert one.index.warm(start=False).left == 0


def test_a_shard_that_takes_more_than_was_thought_is_loaded_in_parts(assigners, table, monkeypatch) -> None:
    """Its first key is shorter than most, say: half of what it takes is thought to be enough."""
    monkeypatch.setattr(copies, "_BYTES_BESIDE_KEY", -len(IN_ORDER[0]) // 2)
    one = opened(assigners, table, 1.2)
    for _ in range(20):
        look(one, IN_ORDER[::10])
    [shard] = one.index._held.openings()
    assert shard.may_load
    assert shard.entry_bytes > len(IN_ORDER[0]), "a first load found it"
    assert 0.3 < look(one, IN_ORDER) < 0.9
    assert one.index.warm(start=False).left == 0


def test_key_ranges_that_take_more_than_others_end_after_a_few_loads(
    assigners, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short keys and long ones lie apart. A range of the short ones, which alone are asked for, has more
    entries than the shard's average, and takes more; an entry of theirs takes less than was thought.
    """
    monkeypatch.setattr(hfile_writer, "_block_bytes", lambda _: 2_000)
    monkeypatch.setattr(key_ranges, "_BLOCKS_PER_RANGE", 4)
    monkeypatch.setattr(run_tier, "_KEYS_PER_PLAN", 500)
    short = [f"a{number:06d}" for number in range(4_000)]
    table, begun, create = DataTable(shards=1), 0, RunFolder.create

    def counted(folder: RunFolder, name: str) -> BinaryIO:
        nonlocal begun
        begun += 1
        return create(folder, name)

    long = [f"z{number:0299d}" for number in range(4_000)]
    table.commit_rows(dict.fromkeys([*short, *long], (1, 1)))
    table.compact_index(clean=True)
    one = assigners(table, limits=IndexLimits(64 << 20, 1 << 30)).open(table.known())
    allow(one, 28_000)
    monkeypatch.setattr(RunFolder, "create", counted)
    one.index.warm(start=True)
    for _ in range(20):
        one.index._hot.drop_shards([ShardId(0)])
        one.ask(short[::10])
    stats = one.index.stats()
    assert stats["runs_loaded"] == 1
    assert stats["run_entries"] > 1_000
    assert begun <= 4
    assert one.index.warm(start=False).left == 0


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_disk_with_less_room_than_state_disk_is_not_filled(
    assigners, table, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    """RocksDB lies there, too: without room it ends the process, and the next one would load again."""
    one = opened(assigners, table, 4)
    [shard] = one.index._held.openings()
    free = [round(copy_bytes(shard) * share)]
    monkeypatch.setattr(RunFolder, "free_bytes", lambda _: free[0])
    look(one, IN_ORDER, 8)
    assert one.index.stats()["run_bytes"] <= free[0]
    assert (one.index.stats()["runs_loaded"] > 0) is (share > 0)
    free[0] = 1 << 30
    assert look(one, IN_ORDER, 8) == 1


def test_a_load_that_the_disk_refused_is_tried_again_but_not_with_each_look_up(
    assigners, table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else filled the disk for a while."""
    refused: list[str] = []

    def refuse(folder: RunFolder, name: str) -> BinaryIO:
        refused.append(name)
        return created_on_full_disk(folder, name)

    one = opened(assigners, table, 4)
    with monkeypatch.context() as full:
        full.setattr(RunFolder, "create", refuse)
        assert look(one, IN_ORDER, 6) == 0
    assert len(refused) == 1
    assert list((one.folder / "runs").iterdir()) == []
    assert look(one, IN_ORDER, 4) == 0
    assert look(one, IN_ORDER, 6) == 1


def test_a_file_in_which_nothing_is_left_is_deleted_by_the_next_process(assigners, table) -> None:
    one = opened(assigners, table, 4)
    load_runs(one, IN_ORDER)
    [copy] = one.index._runs._copies._copies.values()
    copy.run.evict(np.ones(len(copy.run.held), np.bool_))
    one.close()
    again = assigners(table, limits=one.limits).open(table.known())
    stats = again.index.stats()
    assert (stats["run_shards"], stats["run_bytes"], stats["runs_damaged"]) == (0, 0, 0)
    assert look(again, IN_ORDER) == 0


def test_ranges_are_chosen_by_use_and_one_in_a_file_counts_for_more() -> None:
    uses = np.array([600.0, 900, 1_100, 2_000])
    of_shards = [(ShardId(3), uses, np.full(4, 10.0), np.array([True, False, False, False]))]
    ranges = RangeTable.of(of_shards)
    assert ranges.worth_a_place(20).tolist() == [True, False, False, True]
    assert ranges.worth_a_place(30).tolist() == [True, False, True, True]
    assert ranges.worth_a_place(9).tolist() == [False] * 4
    assert ranges.least_used(np.ones(4, np.bool_), 1).tolist() == [0]
    assert RangeTable.of([]).worth_a_place(5).tolist() == []


def test_chance_moves_nothing() -> None:
    random, held = np.random.default_rng(1), np.arange(400) < 200
    for keys in (0, 1, 10, 100, 1_000):
        for _ in range(20):
            uses = random.poisson(keys, 400).astype(np.float64)
            ranges = RangeTable.of([(ShardId(1), uses, np.full(400, 10.0), held)])
            assert ranges.worth_a_place(2_000).tolist() == held.tolist()


def test_keys_are_counted_where_they_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_ranges, "_BLOCKS_PER_RANGE", 2)
    ranges = KeyRanges([b"b", b"d", b"f", b"h", b"j"])
    found = ranges.of(pa.array(["a", "b", "e", "f", "i", "j", "z"]))
    assert found.tolist() == [0, 0, 0, 1, 1, 2, 2]
    ranges.used(found)
    assert ranges.uses.tolist() == [3, 2, 2]
