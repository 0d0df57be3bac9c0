"""The checkers' model where another engine deletes rows above the input's own deletes: what has to be, and
what may be.
"""

from __future__ import annotations

import pytest

from tests.simulation.world.checkers.model import Change, LastWriter, Row

KEY = "k1"
LATE = Row("d1", 25, 3)


def model(*steps: Row | int | str, ends: bool = False) -> LastWriter:
    """A number is a delete of the input, a row with a number above 0 an upsert, all else another engine's."""
    writer = LastWriter(ordered=True, ends=ends)
    for step in steps:
        if isinstance(step, int):
            writer.apply(Change(KEY, None, step))
        elif isinstance(step, Row) and step.number > 0:
            writer.apply(Change(KEY, step, step.at))
        else:
            writer.put(KEY, step if isinstance(step, Row) else None)
    return writer


def settled(writer: LastWriter, row: Row | None) -> Row | None:
    writer.settle({KEY: row} if row is not None else {})
    return writer.rows.get(KEY)


@pytest.mark.parametrize("found", [None, LATE])
def test_an_event_below_a_delete_stays_away_after_another_engine_was_there(found: Row | None) -> None:
    assert settled(model(26, Row("d0", 30, -1), "deleted", LATE), found) is None
    assert settled(model(26, Row("d0", 30, -1), "deleted", Row("d1", 26, 3)), found) == Row("d1", 26, 3)


@pytest.mark.parametrize("found", [None, LATE])
def test_a_delete_below_a_later_row_of_the_input_may_be_forgotten(found: Row | None) -> None:
    """The product takes one event of a key from each batch: the row, when both are in one."""
    assert settled(model(26, Row("d0", 30, 2), "deleted", LATE), found) == found
    newer = Row("d1", 26, 3)
    assert settled(model(26, Row("d0", 30, 2), "deleted", newer), None) == newer, "it has to count"
    assert settled(model(Row("d0", 30, 2), "deleted", LATE), None) == LATE, "nothing is above it"


def test_without_another_engine_nothing_is_open() -> None:
    writer = model(26, Row("d0", 30, 2), 40, Row("d1", 35, 3), Row("d2", 41, 4), 41)
    assert settled(writer, LATE) is None
    assert writer.ended == 0


def test_a_tombstone_that_ends_is_open_below_another_engines_row_too() -> None:
    for found in (None, LATE):
        assert settled(model(26, Row("d0", 30, -1), "deleted", LATE, ends=True), found) == found
