"""What each tier answers, and how commits, catch-up, promotion and tombstones change it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tests.unit.index_assigner.index_world import (
    BIG,
    LANES,
    MANY,
    TTL_MS,
    Change,
    DataTable,
    Found,
    index_rows,
    load_runs,
    promoted,
    tombstone_rows,
)
from tidemark.hudi_format.errors import CorruptFileError
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX_FOLDER
from tidemark.index_assigner.index.errors import (
    IndexMismatchError,
    IndexOutdatedError,
    IndexRebuiltError,
    LaneNotOpenError,
    SnapshotBehindError,
)
from tidemark.index_assigner.index.ports import Tier


def test_a_key_is_answered_by_the_newest_tier_that_knows_it(assigners):
    table = DataTable()
    table.commit_rows({"a": (1, 10), "b": (1, 11), "gone": (1, 12)})
    table.compact_index(clean=True)
    table.commit_rows({}, {"gone": 13})
    one = assigners(table).open()
    first = one.ask(["a", "b", "gone", "never"])
    assert first == {
        "a": Found(1, None, False, Tier.MDT),
        "b": Found(1, None, False, Tier.MDT),
        "gone": Found(None, 13, True, Tier.ROCKSDB, 1),
        "never": Found(None, None, False, Tier.NONE),
    }
    assert one.ask(["a"])["a"].tier is Tier.HOT
    load_runs(one, ["a", "b", "never"])
    one.stage({"a": Change(2, 20), "never": Change(1, 5)})
    assert one.ask(["a", "never"]) == {
        "a": Found(2, 20, True, Tier.UNCOMMITTED),
        "never": Found(1, 5, True, Tier.UNCOMMITTED),
    }
    one.close()
    two = assigners(table).open()
    assert two.ask(["b", "never"]) == {
        "b": Found(1, None, False, Tier.RUN),
        "never": Found(None, None, False, Tier.NONE),
    }
    assert two.index.stats()["blocks_read"] == 0, "run files outlive the process"
    assert two.index.stats()["keys_run"] == 1


def test_a_lane_answers_nothing_before_it_is_open(assigners):
    table = DataTable()
    one = assigners(table)
    with pytest.raises(LaneNotOpenError):
        one.ask(["a"])
    one.open()
    assert one.ask(["a"])["a"].tier is Tier.NONE
    one.index.rewind()
    with pytest.raises(LaneNotOpenError):
        one.ask(["a"])
    one.open()
    for lane in range(LANES):
        one.index.close_lane(lane)
    with pytest.raises(LaneNotOpenError):
        one.stage({"a": Change(1, 1)})


def test_an_index_with_another_number_of_shards_is_not_opened(assigners):
    """Keys would be looked for in the wrong shard."""
    table, other = DataTable(), DataTable(shards=9)
    one = assigners(table)
    with pytest.raises(IndexRebuiltError, match="has 9 shards, not 3"):
        one.index.open_lane(0, other.snapshot())


def test_a_snapshot_behind_the_last_committed_epoch_is_refused(assigners):
    table = DataTable()
    table.commit_rows({"a": (1, 1)})
    stale = table.snapshot()
    completion = table.commit_rows({"b": (1, 1)})
    one = assigners(table)
    with pytest.raises(SnapshotBehindError):
        one.index.open_lane(0, stale, table.known(completion))
    one.open(table.known(completion))
    assert one.ask(["b"])["b"].group == 1
    with pytest.raises(SnapshotBehindError):
        one.index.open_lane(0, stale)


def test_a_damaged_index_block_is_an_error_and_not_an_absent_key(assigners):
    table = DataTable()
    table.commit_rows(MANY)
    table.compact_index(clean=True)
    for info in table.storage.list(RECORD_INDEX_FOLDER):
        if info.name.endswith(".hfile"):
            data = bytearray(table.storage.read(info.path))
            data[40:60] = b"\xff" * 20
            table.storage.delete(info.path)
            table.storage.create(info.path, bytes(data))
    one = assigners(table).open()
    with pytest.raises(CorruptFileError):
        one.ask(list(MANY))


def test_changes_of_others_are_caught_up_from_the_stamp_and_values_become_bounds(assigners):
    table = DataTable()
    one = assigners(table).open()
    promoted(one, table, {"a": Change(1, 10), "b": Change(1, 10), "c": Change(1, 10)}, 5)
    assert one.ask("abc")["a"] == Found(1, 10, True, Tier.HOT)
    one.close()
    table.commit_rows({"a": (2, 30), "d": (2, 30)}, {"b": 31})
    two = assigners(table).open()
    assert two.ask("abcd") == {
        "a": Found(2, None, False, Tier.ROCKSDB),
        "b": Found(None, 31, True, Tier.ROCKSDB, 1),
        "c": Found(1, 10, False, Tier.ROCKSDB),
        "d": Found(2, None, False, Tier.ROCKSDB),
    }
    assert two.index.stats()["shards_dropped"] == 0
    assert two.exact("a", 2) == 30
    assert two.exact("c", 1) == 10


def test_a_shard_whose_changes_are_gone_is_filled_again(assigners):
    table = DataTable()
    table.commit_rows({"a": (1, 1), "b": (1, 1), "c": (1, 1)})
    one = assigners(table).open()
    one.ask("abc")
    one.close()
    table.commit_rows({"a": (2, 2), "d": (1, 1)}, {"b": 2})
    table.compact_index(clean=True)
    two = assigners(table).open()
    assert {key: found.group for key, found in two.ask("abcd").items()} == {
        "a": 2,
        "b": None,
        "c": 1,
        "d": 1,
    }
    assert two.index.stats()["shards_dropped"] == 0, "given up means for want of space"


def test_files_that_were_cleaned_under_an_open_lane_make_it_load_a_newer_snapshot(assigners):
    table = DataTable(shards=1)
    table.commit_rows(BIG)
    table.compact_index(clean=True)
    one = assigners(table).open()
    first, second, *others = sorted(BIG)
    one.stage({second: Change(9, 10_000)})
    table.commit_rows({"new": (1, 1)}, {first: 10_000})
    table.compact_index(clean=True)
    found = one.ask([*BIG, "new"])
    assert found[first].group is None
    assert found["new"].group == 1
    assert found[second] == Found(9, 10_000, True, Tier.UNCOMMITTED)
    assert all(found[key].group == BIG[key][0] for key in others)


def test_promotion_is_repeatable_and_later_entries_stay_in_memory(assigners):
    table = DataTable()
    one = assigners(table).open()
    one.stage({"a": Change(1, 1), "b": Change(1, 1)})
    one.index.counted(range(LANES), 7)
    one.stage({"a": Change(1, 5, updated=True)})
    one.index.counted(range(LANES), 9)
    one.stage({"c": Change(2, 1)})
    assert one.index.uncommitted_entries() == 4
    completion = table.commit_rows({"a": (1, 1), "b": (1, 1)})
    for _ in range(2):
        one.index.promote(7, completion, 1)
        assert one.index.uncommitted_entries() == 2
        assert one.ask("abc") == {
            "a": Found(1, 5, True, Tier.UNCOMMITTED),
            "b": Found(1, 1, True, Tier.HOT),
            "c": Found(2, 1, True, Tier.UNCOMMITTED),
        }
    for lane in range(LANES):
        one.index.drop_staged(lane)
    assert one.ask("ac") == {
        "a": Found(1, 5, True, Tier.UNCOMMITTED),
        "c": Found(None, None, False, Tier.NONE),
    }


def test_a_transaction_without_entries_of_a_lane_keeps_its_tombstones_position_until_its_own_epoch(assigners):
    """It ends at the same entry as the transaction before it, whose epoch comes first."""
    table = DataTable()
    one = assigners(table).open()
    for offset in (7, 9):
        one.index.counted(range(LANES), offset, dict.fromkeys(range(LANES), offset))
    for _ in range(2):
        one.index.promote(7, None, 1)
        assert [one.index.tombstones_position(lane) for lane in range(LANES)] == [7, 7]
    one.index.promote(9, None, 2)
    assert [one.index.tombstones_position(lane) for lane in range(LANES)] == [9, 9]


def test_promotion_never_puts_an_older_place_over_a_newer_one(assigners):
    """Another writer moved the key after our commit, and the lane was opened before we read of either."""
    table = DataTable()
    completion = table.commit_rows({"a": (1, 10)})
    table.commit_rows({"a": (2, 20)})
    one = assigners(table).open()
    one.stage({"a": Change(1, 10), "no": Change(None, 7)})
    one.index.counted(range(LANES), 5)
    one.index.promote(5, completion, 1)
    assert one.ask(["a", "no"]) == {
        "a": Found(2, None, False, Tier.ROCKSDB),
        "no": Found(None, 7, True, Tier.NONE),
    }


def test_a_key_that_is_not_where_the_index_places_it_stops_loudly(assigners):
    table = DataTable()
    table.commit_rows({"a": (1, 4)})
    table.commit({"a": 2})
    one = assigners(table).open()
    assert one.ask("a")["a"].group == 2
    with pytest.raises(IndexMismatchError, match=r"'a'.*partition 'p'.*000000000002"):
        one.exact("a", 2)


def test_a_key_that_another_writer_moved_is_looked_up_again(assigners):
    table = DataTable()
    table.commit_rows({"a": (1, 4)})
    one = assigners(table).open()
    assert one.ask("a")["a"].group == 1
    table.commit_rows({"a": (2, 6)})
    with pytest.raises(IndexOutdatedError):
        one.exact("a", 1)
    assert one.ask("a")["a"].group == 2
    assert one.exact("a", 2) == 6


def test_our_uncommitted_entries_wait_until_the_coordinator_sees_the_commit_that_contradicts_them(assigners):
    """The lane was opened after the other writer's commit, and its entries were tagged before it."""
    table = DataTable()
    table.commit_rows({"a": (1, 4)})
    before = table.known()
    table.commit_rows({"a": (2, 6)})
    one = assigners(table).open(before)
    one.stage({"a": Change(1, 7, exact=False, updated=True)})
    one.index.counted(range(LANES), 5)
    assert one.ask("a")["a"].group == 1
    with pytest.raises(IndexOutdatedError, match="another writer committed meanwhile"):
        one.exact("a", 1)
    # Once all is seen, the same entries would be a contradiction.
    one.index.rewind()
    one.open(table.known())
    one.stage({"a": Change(1, 7, exact=False, updated=True)})
    with pytest.raises(IndexMismatchError, match="rebuild the record index"):
        one.exact("a", 1)


def test_a_delete_of_another_writer_that_is_caught_up_without_a_rewind_is_read_anew(assigners):
    table = DataTable()
    moved, deleted = next(keys for keys in assigners(table).by_lane("abc").values() if keys[1:])[:2]
    table.commit_rows({moved: (1, 4), deleted: (1, 4)})
    one = assigners(table, "b").open()
    where = np.array([one.location(1)], np.int32)
    assert not one.index.is_masked_by_delete(pa.array([deleted]), where, np.array([1])).any()
    table.commit_rows({moved: (2, 6)}, {deleted: 20})
    one.index.promote(0, None, 1)  # an epoch without rows: the table's files are listed anew
    with pytest.raises(IndexOutdatedError):
        one.exact(moved, 1)
    assert one.ask([deleted])[deleted] == Found(None, 20, True, Tier.ROCKSDB, 1)
    assert one.index.is_masked_by_delete(pa.array([deleted]), where, np.array([1])).all()


def test_the_exact_value_is_the_greater_one_of_slice_and_memory(assigners):
    table = DataTable()
    table.commit_rows({"a": (1, 10), "b": (1, 10)})
    one = assigners(table).open()
    one.stage({"a": Change(1, 7, exact=False, updated=True), "b": Change(1, 12, exact=False, updated=True)})
    assert [one.exact(key, 1) for key in "ab"] == [10, 12]


def test_a_successor_takes_no_lower_bound_for_the_stored_value(assigners):
    """What counts after the last epoch comes from the index topic; its rows say whether a value is exact."""
    table = DataTable()
    table.commit_rows({"a": (1, 10), "b": (1, 10)})
    changes = {"a": Change(1, 7, exact=False, updated=True), "b": Change(1, 12, exact=True, updated=True)}
    two = assigners(table, "b").open()
    for lane, mine in two.by_lane(list(changes)).items():
        rows = index_rows({key: changes[key] for key in mine}, table.shards)
        two.index.load_counted(lane, 5, [rows], [tombstone_rows({}, table.shards, 0)])
    found = two.ask(["a", "b"])
    assert (found["a"].ordering, found["a"].exact) == (7, False)
    assert (found["b"].ordering, found["b"].exact) == (12, True)
    assert two.exact("a", 1) == 10


def test_a_tombstone_lasts_until_its_time_and_until_its_slice_forgot_the_key(assigners):
    table = DataTable()
    one = assigners(table).open()
    promoted(one, table, {"a": Change(1, 10)}, 5)
    promoted(one, table, {"a": Change(None, 20, deleted_from=1), "no": Change(None, 20)}, 6, 2)
    assert one.ask(["a", "no"]) == {
        "a": Found(None, 20, True, Tier.ROCKSDB, 1),
        "no": Found(None, 20, True, Tier.ROCKSDB),
    }
    one.clock.advance(2 * TTL_MS / 1000)
    assert one.ask(["a", "no"]) == {
        "a": Found(None, 20, True, Tier.ROCKSDB, 1),
        "no": Found(None, None, False, Tier.ROCKSDB),
    }
    names = [info.path for info in table.storage.list("p")]
    for path in names:
        table.storage.delete(path)
    table.has_base.clear()
    promoted(one, table, {"z": Change(1, 1)}, 7, 3)
    assert one.ask("a")["a"] == Found(None, None, False, Tier.ROCKSDB)


def test_tombstones_come_from_the_topic_after_a_takeover_and_the_greatest_stays(assigners):
    table = DataTable()
    one = assigners(table).open()
    later = one.clock.now_ms() + TTL_MS
    assert [one.index.tombstones_position(lane) for lane in range(LANES)] == [0, 0]
    for ordering, position in ((9, 3), (5, 4)):
        rows = tombstone_rows({"a": Change(None, ordering, deleted_from=1)}, table.shards, later)
        for lane, mine in one.by_lane("a").items():
            one.index.load_tombstones(lane, [rows] if mine else [], position)
    assert one.ask("a")["a"] == Found(None, 9, True, Tier.NONE, 1)
    one.close()
    two = assigners(table).open()
    assert [two.index.tombstones_position(lane) for lane in range(LANES)] == [4, 4]
    assert two.ask("a")["a"].ordering == 9


def test_ended_tombstones_of_keys_that_never_come_back_are_swept(assigners):
    table = DataTable()
    one = assigners(table).open()
    promoted(one, table, {f"no-{number}": Change(None, 1) for number in range(50)}, 5)
    promoted(one, table, {"a": Change(1, 1)}, 6, 2)
    promoted(one, table, {"a": Change(None, 2, deleted_from=1)}, 7, 3)
    assert one.index.stats()["tombstones_removed"] == 0
    one.clock.advance(2 * TTL_MS / 1000)
    promoted(one, table, {"b": Change(1, 1)}, 8, 4)
    assert one.index.stats()["tombstones_removed"] == 50
    assert one.ask("a")["a"].ordering == 2, "the slice still holds the delete"
