"""The replay that a simulated table is held against at rest, other engines' rows included."""

from __future__ import annotations

from tests.simulation.world.checkers.model import Change, ForeignRow, Row, replayed

FOREIGN = Row("d9", 1_000_000, -1)


def up(key: str, at: int) -> Change:
    return Change(key, Row("d0", at, at), at)


def test_a_row_of_another_engine_comes_after_the_events_that_were_committed_before_it():
    changes = [up("a", 1), Change("a", None, 2), up("b", 1), up("a", 3)]
    for after, unordered in [(0, Row("d0", 3, 3)), (2, Row("d0", 3, 3)), (3, FOREIGN)]:
        foreign = [ForeignRow("a", after, FOREIGN)]
        assert replayed(changes, foreign, ordered=False)["a"] == unordered
    assert replayed(changes, [ForeignRow("a", 2, FOREIGN)], ordered=True)["a"] == FOREIGN
    assert replayed(changes, (), ordered=True)["a"] == Row("d0", 3, 3)


def test_a_row_of_another_engine_is_deleted_by_a_later_event_alone():
    delete = Change("a", None, None)
    for after, rows in [(0, {}), (1, {"a": FOREIGN})]:
        assert replayed([delete], [ForeignRow("a", after, FOREIGN)], ordered=True) == rows


def test_a_key_that_only_another_engine_wrote_is_there():
    assert replayed([up("a", 1)], [ForeignRow("z", 0, FOREIGN)], ordered=True).keys() == {"a", "z"}
