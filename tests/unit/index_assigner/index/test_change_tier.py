"""When entries of RocksDB move into a change run, what it answers, and what ends it
(docs/adr/0015-change-runs.md).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.index_assigner.index.test_index_beside_services import superseded
from tests.unit.index_assigner.index.test_run_tier import forget_hot, groups
from tests.unit.index_assigner.index_world import LANES, MANY, Assigner, Change, DataTable, promoted
from tidemark.hudi_format.model import ShardId
from tidemark.index_assigner.index import change_tier
from tidemark.index_assigner.index.limits import IndexLimits
from tidemark.index_assigner.index.ports import Tier
from tidemark.index_assigner.index.rocks import RocksTier
from tidemark.index_assigner.index.rocks_layout import (
    CHANGED_PREFIX,
    STATE_PREFIX,
    shard_bytes,
    shard_range,
)
from tidemark.index_assigner.runs.files import RunFolder, is_change

GROUPS = {key: group for key, (group, _) in MANY.items()}
UPDATES = {f"k{n:04d}": Change(1 + n % 3, 1_000 + n, updated=True) for n in range(0, 40, 2)}
GONE = {"k0001": Change(None, 990, deleted_from=MANY["k0001"][0])}


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_tier, "_WRITTEN_MIN", 8)


@pytest.fixture
def table() -> DataTable:
    table = DataTable(shards=1)
    table.commit_rows(MANY)
    table.compact_index(clean=True)
    return table


def change_files(assigner: Assigner) -> list[Path]:
    return [path for path in sorted((assigner.folder / "runs").glob("*.run")) if is_change(path.name)]


def in_rocksdb(assigner: Assigner) -> int:
    return len(assigner.rocks.keys_between(*shard_range(b"", ShardId(0))))


def take_over(assigner: Assigner) -> None:
    """Look-ups until nothing goes on."""
    for _ in range(60):
        assigner.ask(["k0399"])
        forget_hot(assigner)


def updated(assigners, table: DataTable, changes=None) -> Assigner:
    one: Assigner = assigners(table).open(table.known())
    promoted(one, table, changes or {**UPDATES, **GONE}, 5)
    take_over(one)
    assert one.index.stats()["take_overs"] == 1
    return one


def test_entries_move_out_of_rocksdb_and_answer_as_before_also_after_a_restart_and_a_compaction(
    assigners, table
) -> None:
    one = assigners(table).open(table.known())
    completion = promoted(one, table, {**UPDATES, **GONE}, 5)
    forget_hot(one)
    before = one.ask(list(MANY))
    assert in_rocksdb(one) == len(UPDATES) + 1
    take_over(one)
    assert in_rocksdb(one) == 0
    table.compact_index(clean=True)
    for two in (one, None):
        if two is None:
            one.close()
            two = assigners(table).open(table.known(completion))
        after = two.ask([*MANY, "new"])
        for key in MANY:
            was, found = before[key], after[key]
            fields = ("group", "ordering", "exact", "deleted_from")
            assert [getattr(found, name) for name in fields] == [getattr(was, name) for name in fields], key
        assert {after[key].tier for key in UPDATES} == {Tier.RUN}
        assert {after[key].exact for key in UPDATES} == {True}
        assert (after["k0001"].group, after["k0001"].ordering) == (None, 990)
        stats = two.index.stats()
        assert (stats["change_run_shards"], stats["change_run_entries"]) == (1, len(UPDATES) + 1)
        [file] = change_files(two)
        assert stats["change_run_bytes"] == file.stat().st_size


def test_the_next_change_run_has_the_newer_of_both_and_the_former_file_goes(assigners, table) -> None:
    one = updated(assigners, table)
    [former] = change_files(one)
    again = {f"k{n:04d}": Change(3, 2_000 + n, updated=True) for n in range(10)}
    promoted(one, table, again, 6)
    take_over(one)
    assert one.index.stats()["take_overs"] == 2
    assert len(change_files(one)) == 1
    assert former not in change_files(one)
    assert in_rocksdb(one) == 0
    found = one.ask(list(MANY))
    assert {key: each.group for key, each in found.items()} == {
        **GROUPS,
        **{key: change.group for key, change in {**UPDATES, **GONE, **again}.items()},
    }
    assert found["k0002"].ordering == 2_002
    assert found["k0038"].ordering == 1_038
    assert one.index.stats()["change_run_entries"] == len({**UPDATES, **GONE, **again})


def test_what_is_promoted_during_a_take_over_stays_newer_than_the_run(assigners, table) -> None:
    one = assigners(table).open(table.known())
    promoted(one, table, UPDATES, 5)
    one.ask(["k0399"])
    assert one.index._runs._loads.is_busy
    promoted(one, table, {"k0000": Change(2, 3_000), "new": Change(1, 3_001)}, 6)
    take_over(one)
    assert in_rocksdb(one) == 2
    found = one.ask(["k0000", "k0002", "new"])
    assert [(found[key].group, found[key].ordering) for key in found] == [(2, 3000), (3, 1002), (1, 3001)]
    assert [found[key].tier for key in found] == [Tier.ROCKSDB, Tier.RUN, Tier.ROCKSDB]


def test_more_than_fits_into_memory_meanwhile_ends_the_take_over_and_nothing_is_lost(
    assigners, table
) -> None:
    """Two entries with keys of some KiB: memory counts, not their number."""
    one = assigners(table, limits=IndexLimits(memory_bytes=1 << 17, disk_bytes=1 << 30)).open(table.known())
    promoted(one, table, UPDATES, 5)
    one.ask(["k0399"])
    promoted(one, table, {"k0000": Change(2, 3_000), "new" * 2_700: Change(1, 3_001)}, 6)
    take_over(one)
    assert one.index.stats()["take_overs"] == 0
    assert change_files(one) == []
    assert in_rocksdb(one) == len(UPDATES) + 1
    assert one.ask(["k0000"])["k0000"].group == 2


def test_what_is_not_committed_is_in_no_run_so_a_rewind_takes_it_back(assigners, table) -> None:
    one = assigners(table).open(table.known())
    completion = promoted(one, table, UPDATES, 5)
    one.stage({"k0000": Change(2, 5_000), "new": Change(1, 5_001)})
    one.index.counted(range(LANES), 6)
    take_over(one)
    assert one.index.stats()["take_overs"] == 1
    one.index.rewind()
    one.open(table.known(completion))
    assert groups(one, ["k0000", "new"]) == {"k0000": 1, "new": None}


def test_a_take_over_that_began_before_the_shard_was_opened_again_is_never_published(
    assigners, table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here nobody ends it: it is whole when it is asked for again."""
    one = assigners(table).open(table.known())
    promoted(one, table, UPDATES, 5)
    one.ask(["k0399"])
    assert one.index._runs._loads.is_busy
    monkeypatch.setattr(one.index._runs, "end_load", lambda *_: None)
    monkeypatch.setattr(one.index._runs.changes, "next_load", lambda _: None)
    table.commit_rows({"k0000": (2, 9_000)})
    one.index.rewind()
    one.open(table.known())
    take_over(one)
    assert change_files(one) == []
    assert groups(one, ["k0000", "k0002"]) == {"k0000": 2, "k0002": 3}


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("at", [20, -40, None])
def test_a_change_run_that_is_damaged_or_gone_ends_the_life_of_its_shard(
    assigners, table, at: int | None, is_open: bool
) -> None:
    one = updated(assigners, table)
    before = groups(one)
    [path] = change_files(one)
    if not is_open:
        one.close()
    data = bytearray(path.read_bytes())
    if at is None:
        path.unlink()
    else:
        data[at] ^= 1
        path.write_bytes(data)
    if is_open:
        for run in one.index._runs.changes._runs.values():
            run.give_back_pages()
    two = one if is_open else assigners(table).open(table.known())
    assert groups(two) == before
    if at != -40 and not (is_open and at is None):
        stats = two.index.stats()
        assert (stats["change_runs_lost"], stats["change_run_shards"]) == (1, 0)
        assert stats["runs_damaged"] == (at is not None)
        assert two.ask(["k0000"])["k0000"].ordering is None, "filled anew from the record index"


def test_a_former_run_that_is_found_damaged_by_the_next_take_over_ends_the_life(assigners, table) -> None:
    one = updated(assigners, table)
    [path] = change_files(one)
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)
    promoted(one, table, {f"k{n:04d}": Change(3, 2_000 + n) for n in range(10)}, 6)
    take_over(one)
    assert groups(one) == {key: group for key, (group, _) in table.rows.items()}
    assert one.index.stats()["change_runs_lost"] == 1


@pytest.mark.parametrize("at", [-40, None])
def test_a_former_run_that_the_next_take_over_cannot_open_ends_the_life(
    assigners, table, at: int | None
) -> None:
    """Its directory is damaged, or its file is gone; look-ups do not read either of them again."""
    one = updated(assigners, table)
    [path] = change_files(one)
    data = bytearray(path.read_bytes())
    path.unlink()
    if at is not None:
        data[at] ^= 1
        path.write_bytes(data)
    promoted(one, table, {f"k{n:04d}": Change(3, 2_000 + n) for n in range(10)}, 6)
    take_over(one)
    assert groups(one) == {key: group for key, (group, _) in table.rows.items()}
    assert one.index.stats()["change_runs_lost"] == 1


def test_a_file_has_its_name_before_the_record_and_the_former_one_goes_after_it_is_durable(
    assigners, table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a loss of power could leave a record that names a file which is not there."""
    one = updated(assigners, table)
    done: list[str] = []
    for owner, name in (
        (RunFolder, "finish"),
        (RunFolder, "publish"),
        (RocksTier, "write"),
        (RocksTier, "sync"),
        (RunFolder, "remove"),
    ):
        real = getattr(owner, name)

        def watched(*arguments, name=name, real=real, **named):
            done.append(name)
            return real(*arguments, **named)

        monkeypatch.setattr(owner, name, watched)
    promoted(one, table, {f"k{n:04d}": Change(3, 2_000 + n) for n in range(10)}, 6)
    done.clear()
    take_over(one)
    assert done == ["finish", "publish", "write", "sync", "remove"]


def test_a_file_that_no_record_names_is_deleted_and_not_asked(assigners, table) -> None:
    """It is left where the process ended before the record was written, or comes back after a loss of
    power.
    """
    one = updated(assigners, table)
    [former] = change_files(one)
    data = former.read_bytes()
    promoted(one, table, {f"k{n:04d}": Change(3, 2_000 + n) for n in range(10)}, 6)
    take_over(one)
    expected = groups(one)
    one.close()
    former.write_bytes(data)
    two = assigners(table).open(table.known())
    assert groups(two) == expected
    assert former not in change_files(two)


def test_a_few_keys_that_are_written_again_and_again_stay_in_rocksdb(assigners, table) -> None:
    one = assigners(table).open(table.known())
    for number in range(6):
        promoted(one, table, {f"k{n:04d}": Change(1, number * 10 + 500 + n) for n in range(3)}, 5 + number)
        take_over(one)
    assert one.index.stats()["take_overs"] == 0
    assert change_files(one) == []


def test_values_are_exact_only_until_another_writer_commits(assigners, table) -> None:
    one = updated(assigners, table)
    table.commit_rows({"other": (1, 1)})
    one.index.rewind()
    one.open(table.known())
    found = one.ask(["k0000"])["k0000"]
    assert (found.ordering, found.exact, found.tier) == (1_000, False, Tier.RUN)
    promoted(one, table, {f"k{n:04d}": Change(3, 2_000 + n) for n in range(1, 20, 2)}, 6)
    take_over(one)
    both = one.ask(["k0000", "k0003"])
    assert [(both[key].ordering, both[key].exact) for key in both] == [(1_000, False), (2_003, True)]


def test_a_delete_of_another_writer_finds_the_former_place_in_the_change_run(assigners, table) -> None:
    one = updated(assigners, table, {**UPDATES, "new": Change(2, 800)})
    table.commit_rows({}, {"new": 950})
    one.index.rewind()
    one.open(table.known())
    found = one.ask(["new"])["new"]
    assert (found.group, found.ordering, found.deleted_from) == (None, 950, 2)


def test_the_disk_limit_takes_no_change_run_before_its_shard(assigners, table) -> None:
    one = updated(assigners, table)
    expected = groups(one)
    while one.index._runs.evict(one.index._runs.disk.limit()):
        pass
    assert len(change_files(one)) == 1
    assert groups(one) == expected
    one.index._store.drop(ShardId(0))
    assert list((one.folder / "runs").iterdir()) == []


def test_a_former_version_finds_no_record_of_a_shard_with_a_change_run_and_its_own_ends_the_other(
    assigners, table
) -> None:
    one = updated(assigners, table)
    key = shard_bytes(ShardId(0))
    assert one.rocks.get(STATE_PREFIX + key) is None
    record = json.loads(one.rocks.get(CHANGED_PREFIX + key) or b"")
    former = {name: value for name, value in record.items() if name not in ("change", "written")}
    one.rocks.write([([STATE_PREFIX + key], [json.dumps(former).encode()])])
    one.close()
    two = assigners(table).open(table.known())
    assert change_files(two) == []
    promoted(two, table, UPDATES, 7)
    take_over(two)
    assert two.index.stats()["take_overs"] == 1
    assert two.rocks.get(STATE_PREFIX + key) is None


def test_a_folder_of_a_former_version_that_has_many_entries_in_rocksdb_is_taken_over(
    assigners, table
) -> None:
    one = assigners(table).open(table.known())
    promoted(one, table, UPDATES, 5)
    key = STATE_PREFIX + shard_bytes(ShardId(0))
    former = json.loads(one.rocks.get(key) or b"")
    del former["change"], former["written"]
    one.rocks.write([([key], [json.dumps(former).encode()])])
    one.close()
    two = assigners(table).open(table.known())
    take_over(two)
    assert two.index.stats()["take_overs"] == 1
    assert groups(two) == {key: group for key, (group, _) in table.rows.items()}


def test_an_index_whose_files_are_all_gone_is_still_answered_from_the_change_run(assigners, table) -> None:
    """Entries move and never change: what RocksDB knew alone, the run knows alone."""
    one = updated(assigners, table)
    table.compact_index(clean=False)
    for path in superseded(table):
        table.storage.delete(path)
    assert groups(one) == {key: group for key, (group, _) in table.rows.items()} | {"k0001": None}
    assert one.ask(["k0000"])["k0000"].tier in (Tier.RUN, Tier.HOT)
