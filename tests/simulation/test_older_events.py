"""Events older than a delete: kept out while the delete is known, else visible and where the index says.

All on real files in memory, through tagger, tiered index and RocksDB; `OrderedTable.feed` compares slices and
record index after every epoch. What must be so by the model is said in each test.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.simulation.sliced_table import TTL_MS, OrderedTable
from tests.unit.index_assigner.assign_rig import Event

SEEDS = [int(os.environ["TIDEMARK_SEED"])] if "TIDEMARK_SEED" in os.environ else list(range(6))
TTL_S = TTL_MS / 1000


@pytest.fixture
def table(tmp_path: Path) -> Iterator[OrderedTable]:
    made = OrderedTable(tmp_path)
    yield made
    made.close()


def insert(key: str, at: int, day: str = "d1") -> Event:
    return Event(key, day, at, note=f"{key}@{at}")


def delete(key: str, at: int | None = None) -> Event:
    return Event(key, None, at, delete=True)


def outlive_tombstones(table: OrderedTable) -> None:
    """Time to live and margin pass, and the disk is lost: nobody knows of any delete."""
    table.clock.advance(2 * TTL_S)
    table.lose_disk()


# ---------------------------------------------------------------- deletes of another engine


@pytest.mark.parametrize("how", ["at once", "after promotions", "empty disk", "old disk", "index compacted"])
def test_below_a_foreign_delete_with_a_value_nothing_changes(table: OrderedTable, how: str) -> None:
    table.feed(insert("a", 10), insert("b", 10))
    if how == "old disk":
        table.start("another")
        table.feed(insert("a", 11))
    table.foreign_delete("a", 20)
    if how == "after promotions":
        # In another partition: nothing else makes anybody look at the file group of the delete.
        for at in range(3):
            table.feed(insert("c", at, "d2"))
        assert table.stats()["foreign_deletes"] == 1
        table.table.compact()
    elif how == "empty disk":
        table.lose_disk()
    elif how == "old disk":
        table.start("disk")
    elif how == "index compacted":
        table.table.compact_index()
    assert table.feed(insert("a", 15)).superseded == 1
    assert table.feed(insert("a", 20)).inserts == 1
    assert table.place("a") == ("d1", "shared-d1"), "not below the delete: it may lie above it"
    table.table.compact()
    table.check()


def test_after_a_foreign_delete_without_a_value_every_event_counts_and_is_seen(table: OrderedTable) -> None:
    """Hudi's DELETE operation. In the same file group the deleted row would come back."""
    table.feed(*(insert(key, 10) for key in "abcd"))
    table.foreign_delete("a", None)
    table.foreign_delete("b", None)
    assert table.feed(insert("a", 5), insert("b", 15)).inserts == 2
    apart = table.place("a")
    assert apart != table.place("c")
    table.foreign_delete("c", None)
    table.feed(insert("c", 1), insert("e", 1), insert("a", 6))
    assert table.place("e") == ("d1", "shared-d1"), "a key that was never there goes where there is room"
    table.table.compact()
    table.check()
    table.feed(insert("f", 1), delete("d", 11), insert("a", 7))
    table.foreign_delete("f", None)
    table.feed(insert("f", 0))
    assert table.place("f") != table.place("e")


def test_rows_kept_apart_share_a_file_group(table: OrderedTable) -> None:
    keys = [f"k{number}" for number in range(20)]
    table.feed(*(insert(key, 10) for key in keys))
    for key in keys[:10]:
        table.foreign_delete(key, None)
    for key in keys[:10]:
        table.feed(insert(key, 1))
    groups = {table.place(key) for key in keys[:10]}
    assert len(groups) == 1
    assert ("d1", "shared-d1") not in groups
    assert table.stats()["kept_apart"] == 10


def test_a_move_goes_round_what_another_engine_deleted(table: OrderedTable) -> None:
    table.feed(insert("a", 50, "d2"), insert("b", 1, "d2"))
    table.foreign_delete("a", None)
    table.feed(insert("a", 20, "d1"))
    assert table.feed(insert("a", 25, "d2")).moves == 1
    assert table.place("a") != table.place("b")


# ---------------------------------------------------------------- tombstones end


def test_a_tombstone_ends_with_its_time_and_its_slice_and_the_old_event_is_seen(table: OrderedTable) -> None:
    table.feed(insert("a", 10), insert("b", 10))
    table.feed(delete("a", 20), delete("no", 20))
    assert table.feed(insert("a", 15), insert("no", 15)).superseded == 2
    table.clock.advance(2 * TTL_S)
    assert table.feed(insert("a", 15)).superseded == 1, "its slice still has the delete"
    assert table.feed(insert("no", 15)).inserts == 1
    table.table.compact()
    table.feed(insert("c", 1))
    assert table.feed(insert("a", 16)).inserts == 1
    assert table.stats()["tombstones_removed"] >= 1
    table.table.compact()
    table.check()


@pytest.mark.parametrize("compacted", [False, True])
def test_with_all_tombstones_lost_an_old_event_is_seen_and_found(
    table: OrderedTable, compacted: bool
) -> None:
    table.feed(insert("a", 10), insert("b", 10))
    table.feed(delete("a", 20))
    # Compaction of the record index takes away what else tells of the delete.
    table.table.compact_index()
    if compacted:
        table.table.compact()
    outlive_tombstones(table)
    assert table.feed(insert("a", 15)).inserts == 1
    assert (table.place("a") == table.place("b")) is compacted
    table.feed(insert("a", 16))
    table.table.compact()
    table.check()


def test_what_a_move_left_behind_hides_no_old_event(table: OrderedTable) -> None:
    """The tombstone names the place of the delete; the move before it left another delete elsewhere."""
    table.feed(insert("a", 10, "d1"), insert("b", 10, "d1"))
    table.feed(insert("a", 12, "d2"))
    table.feed(delete("a", 13))
    table.table.compact_index()
    outlive_tombstones(table)
    table.feed(insert("a", 11, "d1"))
    assert table.place("a") != table.place("b")


def test_a_file_group_that_was_looked_at_before_a_delete_is_looked_at_again(table: OrderedTable) -> None:
    """One process all the time: its view of a file group ends before the tombstones do that it rests on."""
    table.feed(insert("a", 10, "d1"), insert("b", 10, "d1"))
    table.feed(insert("c", 1, "d1"))
    table.feed(insert("a", 12, "d2"))
    table.feed(delete("a", 13))
    table.clock.advance(2 * TTL_S)
    # The file group of the delete forgets; that of the move does not.
    table.table.compact("d2")
    table.feed(insert("x", 1, "d2"))
    assert table.stats()["tombstones_removed"] == 1
    assert table.feed(insert("a", 11, "d1")).inserts == 1
    assert table.place("a") != table.place("b")


# ---------------------------------------------------------------- tables without deletes, and at random


def test_a_table_without_deletes_has_each_log_file_looked_at_once_at_most(table: OrderedTable) -> None:
    for at in range(6):
        table.feed(*(insert(f"k{at}-{number}", at) for number in range(5)), insert("k0-0", at))
    assert table.tiers._deletes.files_read == 0, "the file group was empty when it was first looked at"
    table.lose_disk()
    for at in range(6, 12):
        table.feed(*(insert(f"k{at}-{number}", at) for number in range(5)))
    assert table.tiers._deletes.files_read == 5
    assert table.stats()["kept_apart"] == 0
    assert {place for place, _, _ in table.table.live().values()} == {("d1", "shared-d1")}


def test_deletes_newer_than_what_comes_back_cost_no_file_group(table: OrderedTable) -> None:
    """A table that deletes much and is never compacted."""
    for at in range(0, 20, 2):
        table.feed(*(insert(f"k{number}", at) for number in range(8)))
        table.feed(*(delete(f"k{number}", at + 1) for number in range(8)))
        if at % 10 == 0:
            table.lose_disk()
    assert {each.file_id for each in table.table.slices()} == {"shared-d1"}


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_is_forgotten_every_row_is_seen_where_the_index_says(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    table = OrderedTable(tmp_path, seed)
    keys = [f"k{number}" for number in range(10)]
    try:
        for _ in range(60):
            act = random.random()
            if act < 0.55:
                table.feed(*_events(random, keys))
            elif act < 0.75 and table.expected:
                key = random.choice(sorted(table.expected))
                at = table.expected[key][0] + random.randrange(5)
                table.foreign_delete(key, at if random.random() < 0.5 else None)
                table.check()
            elif act < 0.81:
                table.table.compact()
            elif act < 0.86:
                table.table.compact_index()
            elif act < 0.92:
                table.clock.advance(random.choice((0.3, 0.6, 2.0)) * TTL_S)
            elif act < 0.96:
                table.start(random.choice(("disk", "another")))
            else:
                table.lose_disk()
        table.table.compact()
        table.check()
    finally:
        table.close()


def _events(random: Random, keys: list[str]) -> list[Event]:
    made = []
    for _ in range(random.randrange(1, 6)):
        key, at = random.choice(keys), random.randrange(30)
        if random.random() < 0.25:
            made.append(delete(key, at if random.random() < 0.7 else None))
        else:
            made.append(insert(key, at, f"d{random.randrange(2)}"))
    return made
