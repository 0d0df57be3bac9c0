"""A tombstone that ended stays ended: neither a later delete of its key nor a new disk brings it back.

The topic keeps tombstones for longer than they hold, so who opens a lane reads ended ones once more.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.unit.index_assigner.index_world import (
    TTL_MS,
    Assigner,
    Change,
    DataTable,
    promoted,
    tombstone_rows,
)

HIGH, LOW = 90, 79


def load(assigner: Assigner, tombstones: Sequence[tuple[int, int, int | None]], at_once: bool = True) -> None:
    """Tombstones of key a, from the topic: (ordering value, when it was made, file group)."""
    rows = [
        tombstone_rows(
            {"a": Change(None, ordering, deleted_from=group)}, assigner.table.shards, made_ms + TTL_MS
        )
        for ordering, made_ms, group in tombstones
    ]
    for lane, mine in assigner.by_lane("a").items():
        for batches in [rows] if at_once else [[each] for each in rows]:
            assigner.index.load_tombstones(lane, batches if mine else [], 4)


def value_of(assigner: Assigner) -> int | None:
    return assigner.ask("a")["a"].ordering


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["as they came", "the older one once more"])
def test_a_delete_that_came_after_the_end_stands_alone(assigners, at_once: bool, order: tuple[int, int]):
    """The row that it deleted was below the ended one."""
    one = assigners(DataTable()).open()
    now_ms = one.clock.now_ms()
    made = [(HIGH, now_ms - TTL_MS, 1), (LOW, now_ms, 1)]
    load(one, [made[each] for each in order], at_once)
    assert value_of(one) == LOW
    one.clock.advance(TTL_MS / 1000)
    assert value_of(one) is None


@pytest.mark.parametrize("at_once", [True, False])
def test_of_two_that_hold_the_greater_stays_until_the_later_one_ends(assigners, at_once: bool):
    """What is older than the later delete would come back where the earlier end counted."""
    one = assigners(DataTable()).open()
    now_ms = one.clock.now_ms()
    load(one, [(HIGH, now_ms - TTL_MS + 1, 1), (LOW, now_ms, 1)], at_once)
    one.clock.advance((TTL_MS - 1) / 1000)
    assert value_of(one) == HIGH
    one.clock.advance(1 / 1000)
    assert value_of(one) is None


def test_the_deletes_of_one_read_are_taken_one_after_the_other(assigners):
    one = assigners(DataTable()).open()
    now_ms = one.clock.now_ms()
    load(one, [(HIGH, now_ms - 2 * TTL_MS, 1), (LOW, now_ms - TTL_MS, 1), (50, now_ms, 1), (40, now_ms, 1)])
    assert value_of(one) == 50


def test_an_own_delete_after_the_end_stands_alone_on_a_new_disk(assigners):
    table = DataTable()
    table.commit_rows({"z": (1, 1)})
    table.commit_rows({"a": (1, 49)})
    one = assigners(table).open()
    load(one, [(HIGH, one.clock.now_ms() - TTL_MS, 1)])
    promoted(one, table, {"a": Change(None, LOW, deleted_from=1)}, 5)
    assert value_of(one) == LOW
    one.clock.advance(2 * TTL_MS / 1000)
    assert value_of(one) == LOW, "the slice still holds the delete"


def test_a_lower_delete_in_its_slice_keeps_no_ended_tombstone(assigners):
    """It is of a row that came after the end; it has, or had, a tombstone of its own."""
    table = DataTable()
    table.commit_rows({"z": (1, 1)})
    table.commit_rows({"a": (1, 49)})
    table.commit_rows({}, {"a": LOW})
    one = assigners(table).open()
    load(one, [(HIGH, one.clock.now_ms() - TTL_MS, 1)])
    assert value_of(one) in (None, LOW)


def test_swept_is_what_its_slice_holds_a_lower_delete_of(assigners):
    table = DataTable()
    one = assigners(table).open()
    promoted(one, table, {"z": Change(1, 1)}, 5)
    promoted(one, table, {"a": Change(1, 49)}, 6, 2)
    promoted(one, table, {"a": Change(None, LOW, deleted_from=1)}, 7, 3)
    promoted(one, table, {"a": Change(None, HIGH, deleted_from=1)}, 8, 4)
    one.clock.advance(2 * TTL_MS / 1000)
    promoted(one, table, {"b": Change(1, 1)}, 9, 5)
    assert one.index.stats()["tombstones_removed"] == 1
