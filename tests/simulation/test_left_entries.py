"""Index entries that another engine leaves behind when it replaces file groups: Hudi takes out the keys of
their base files alone, and the rows of ours are in log files.
"""

from __future__ import annotations

import pytest

from tests.simulation.test_foreign_engine import BEGIN, GO_ON, must_hold, played
from tests.simulation.world.checkers.left_entries import left_entries
from tests.simulation.world.checkers.model import Row
from tests.simulation.world.checkers.table import Content
from tests.simulation.world.checkers.timelines import NO_TIMELINE, Timeline
from tests.simulation.world.operator import VERIFIED

LEFT = "index entry left behind"
OVER = "our insert over an index entry left behind"
DELETED = "delete of a key whose index entry was left behind"
ARCHIVED = "index entry left behind, replacecommit archived"
LIVE, DEAD = ("d0", "group-1"), ("d0", "group-2")
ROW = Row("d0", 5, 0)
# The base files have k0, k1 (d0) and k2 (d1) by then.
IN_LOGS = """
feed up k3 d0 12
feed up k5 d0 13
hurry
rounds 7
"""
MOVED = """
feed up k0 d1 20
hurry
rounds 7
"""
AGAIN = """
feed up k3 d1 1030
feed up k5 d0 1031
hurry
rounds 7
feed del k5 1032
hurry
rounds 7
"""


@pytest.mark.parametrize("ordered", ["yes", "no"])
@pytest.mark.parametrize("replacing", ["drop", "overwrite"])
def test_keys_come_again_and_go_whose_entries_were_left_behind(replacing: str, ordered: str) -> None:
    outcome = played(f"type=mor ordered={ordered}", BEGIN, IN_LOGS, f"foreign {replacing} d0", AGAIN, GO_ON)
    must_hold(outcome)
    assert [outcome.reached.get(each, 0) for each in (LEFT, OVER, DELETED)] == [2, 2, 1]


def test_no_entry_is_left_behind_where_the_rows_are_in_base_files() -> None:
    compacted = played("type=mor", BEGIN, IN_LOGS, "foreign compact\nforeign drop d0", AGAIN)
    rewritten = played("type=cow", BEGIN, IN_LOGS, "foreign drop d0", AGAIN)
    for outcome in (compacted, rewritten):
        must_hold(outcome)
        assert LEFT not in outcome.reached


def test_entries_were_left_behind_by_a_replacecommit_that_is_archived() -> None:
    """Nobody can tell by then whether it took entries of others: the coordinator asks for a verification."""
    archived = """
foreign drop d0
foreign update k2
foreign clean versions 1
foreign update k2
foreign compact-index clean
foreign update k2
foreign archive
kill coordinator
kill assigner-0
kill assigner-1
"""
    outcome = played("type=mor", BEGIN, IN_LOGS, archived, AGAIN, GO_ON)
    must_hold(outcome)
    assert [outcome.reached.get(each, 0) for each in (LEFT, OVER, DELETED)] == [2, 2, 1]
    assert outcome.reached[ARCHIVED]
    assert outcome.reached[VERIFIED] == 1


# Nobody looks at the drop before what tells of it is gone; k2 has a log file by then, for a compaction.
UNTOLD = """
feed up k2 d1 14
hurry
rounds 7
foreign drop d0
foreign compact-index clean
"""


@pytest.mark.parametrize("then", ["", "rounds 7"], ids=["carried out before", "coordinators start before"])
def test_an_operator_verifies_whatever_the_engine_left_half_done(then: str) -> None:
    """A compaction's inflight file stays when it was carried out, and excuses no refusal any more."""
    begun = "foreign fail-compaction metadata\nkill coordinator"
    outcome = played("type=mor", BEGIN, IN_LOGS, UNTOLD, begun, then, AGAIN)
    must_hold(outcome)
    assert outcome.reached[VERIFIED]


def test_what_was_looked_at_in_time_is_not_asked_for_when_it_cannot_be_told_any_more() -> None:
    tidied = """
foreign drop d0
feed up k4 d1 1029
hurry
rounds 7
foreign update k2
foreign clean versions 1
foreign update k2
foreign compact-index clean
foreign update k2
foreign archive
kill coordinator
"""
    outcome = played("type=mor", BEGIN, IN_LOGS, tidied, AGAIN, GO_ON)
    must_hold(outcome)
    assert outcome.reached[ARCHIVED]
    assert VERIFIED not in outcome.reached


def test_an_entry_that_was_left_behind_goes_with_the_base_file_that_its_row_moved_from() -> None:
    """The row moved into a log file of d1, and its old version lies in the base file of d0."""
    outcome = played("type=mor", BEGIN, MOVED, "foreign drop d1\nforeign drop d0", GO_ON)
    must_hold(outcome)
    assert outcome.reached[LEFT] == 1


def test_the_partition_that_a_row_moved_to_was_dropped_by_a_clock_that_is_ahead() -> None:
    """By the times of the timeline that comes after the drop of the one that its base file is in."""
    drops = "foreign clock 5000\nforeign drop d1\nforeign clock 0\nforeign drop d0"
    outcome = played("type=mor", BEGIN, MOVED, drops, GO_ON)
    must_hold(outcome)
    assert outcome.reached[LEFT] == 1
    assert VERIFIED not in outcome.reached


def test_the_engine_takes_no_entry_of_a_row_that_moved_elsewhere() -> None:
    """Hudi would. We stop by name then, until the index is built anew (`tests/interop/test_left_entries.py`
    has it).
    """
    outcome = played("type=mor", BEGIN, MOVED, "foreign drop d0", GO_ON)
    assert outcome.violations == ()
    assert any("it would take the index entries of ['k0']" in line for line in outcome.log)


def test_the_engine_inserts_keys_that_have_no_entry() -> None:
    """Hudi's upserts of the others would go where nobody reads."""
    inserts = "foreign drop d0\nforeign insert d0\nforeign insert d0"
    must_hold(played("type=mor", BEGIN, IN_LOGS, inserts))


@pytest.mark.parametrize(
    ("places", "indexed", "left"),
    [
        ({}, {"k": DEAD}, {"k": DEAD}),
        ({}, {"k": LIVE}, {}),
        ({"k": LIVE}, {"k": DEAD}, {}),
        ({"k": LIVE}, {}, {}),
    ],
    ids=["left", "a group that lives", "a key with a row", "no entry"],
)
def test_what_the_judge_takes_for_left_behind(
    places: dict[str, tuple[str, str]],
    indexed: dict[str, tuple[str, str]],
    left: dict[str, tuple[str, str]],
) -> None:
    content = Content(dict.fromkeys(places, ROW), places, indexed)
    timeline = Timeline({}, frozenset(), {}, without_rows=frozenset({DEAD}))
    assert left_entries(content, timeline) == left
    assert left_entries(content, NO_TIMELINE) == {}
