"""The checkers notice: each planted bug breaks its guarantee in a short script that is clean without it."""

from __future__ import annotations

import pytest

from tests.simulation.planted.all_bugs import BUGS
from tests.simulation.planted.mutant import SCRIPTS
from tests.simulation.world.world import run_script


@pytest.mark.parametrize("name", sorted(BUGS))
def test_a_planted_bug_breaks_its_guarantee_and_without_it_all_hold(name: str) -> None:
    bug = BUGS[name]
    assert run_script(bug.script).violations == ()
    found = bug.run(bug.script).violations
    assert found
    assert found[0].partition(":")[0] in bug.falls, found[0]


def test_every_script_belongs_to_a_planted_bug() -> None:
    assert sorted(BUGS) == sorted(path.stem for path in SCRIPTS.glob("*.txt"))
