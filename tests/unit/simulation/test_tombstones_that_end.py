"""The model of a table whose tombstones end: an event that is older than a delete may count or not."""

from __future__ import annotations

import pytest

from tests.simulation.world.checkers.model import Change, LastWriter, Row, State, replayed


def up(at: int) -> Change:
    return Change("a", Row("d0", at, at), at)


def delete(at: int) -> Change:
    return Change("a", None, at)


OLDER = [up(1), delete(5), up(3)]


def table_of(*changes: Change) -> LastWriter:
    model = LastWriter(ordered=True, ends=True)
    for each in changes:
        model.apply(each)
    return model


@pytest.mark.parametrize("rows", [{}, {"a": Row("d0", 3, 3)}], ids=["it holds", "it ended"])
def test_the_table_says_whether_the_tombstone_ended(rows: dict[str, Row]) -> None:
    model = table_of(*OLDER)
    assert model.rows == {}
    model.settle(rows)
    assert (model.rows, model.others, model.ended) == (rows, {}, len(rows))
    assert replayed(OLDER, (), ordered=True, ends=True, found=rows) == rows


def test_a_row_that_no_event_made_is_never_agreed_with() -> None:
    model = table_of(*OLDER)
    model.settle({"a": Row("d0", 1, 1)})
    assert model.rows == {}


def test_a_newer_event_counts_in_any_case() -> None:
    model = table_of(*OLDER, up(6))
    assert model.rows == {"a": Row("d0", 6, 6)}
    model.settle({})
    assert model.rows == {"a": Row("d0", 6, 6)}


def test_what_comes_after_depends_on_what_may_have_been() -> None:
    """The row of 3, if it came, is there when the delete at 2 comes; if it did not, neither delete shows."""
    model = table_of(*OLDER, delete(2))
    assert {model._state("a"), *model.others["a"]} == {
        State(None, 5),
        State(Row("d0", 3, 3)),
        State(None, 2),
    }


def test_of_a_table_whose_tombstones_stay_nothing_is_left_open() -> None:
    model = LastWriter(ordered=True)
    for each in OLDER:
        model.apply(each)
    model.settle({"a": Row("d0", 3, 3)})
    assert (model.rows, model.others) == ({}, {})
    assert replayed(OLDER, (), ordered=True) == {}
