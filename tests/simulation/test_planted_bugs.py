"""The checkers notice: each planted bug breaks its guarantee in a short script that is clean without it."""

from __future__ import annotations

import pytest

from tests.simulation.planted.all_bugs import BUGS
from tests.simulation.planted.mutant import SCRIPTS
from tests.simulation.world.generate import generate
from tests.simulation.world.world import run_script


@pytest.mark.parametrize("name", sorted(BUGS))
def test_a_planted_bug_breaks_its_guarantee_and_without_it_all_hold(name: str) -> None:
    bug = BUGS[name]
    assert run_script(bug.script).violations == ()
    found = bug.run(bug.script).violations
    assert found
    assert found[0].partition(":")[0] in bug.falls, found[0]


def test_a_range_that_starts_anywhere_commits_past_a_hole_at_which_its_companion_alone_stands_still() -> None:
    bug, companion = BUGS["range_need_not_start_at_next"], BUGS["start_from_group_offsets"]
    found, alone = bug.run(bug.script).violations, companion.run(bug.script).violations
    assert found[0].startswith("G6: epoch 2 has the input positions"), found
    assert any(each.startswith("G1") for each in found), "a row is lost"
    assert len(alone) == 1
    assert alone[0].startswith("G6: the world does not come to rest"), alone


def test_a_table_that_is_too_broken_for_another_engine_is_a_violation_and_no_error_of_the_harness() -> None:
    found = BUGS["start_from_the_table_alone"].run(generate(23)).violations
    assert found[0].startswith("G1: k2 lives twice"), found[0]


def test_every_script_belongs_to_a_planted_bug() -> None:
    assert sorted(BUGS) == sorted(path.stem for path in SCRIPTS.glob("*.txt"))
