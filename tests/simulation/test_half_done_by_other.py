"""Another engine carries out an action of ours while the storage refuses our files, and dies between the
metadata table's commit and its own. Nobody else would end that: our action ends anyway.
"""

from __future__ import annotations

import pytest

from tests.simulation.world.script import parse
from tests.simulation.world.world import run_script

ROUND = "round\n"
SCRIPT = f"""
setup type=mor shards=1 lanes=1 inputs=1 assigners=1 interval_ms=0 services=yes kinds=compact_data
round
feed up k1 d0 1
hurry
{6 * ROUND}feed up k1 d0 2
hurry
{6 * ROUND}feed up k1 d0 3
hurry
{12 * ROUND}fail-before coordinator 1 storage.link
{2 * ROUND}{{dies}}
{12 * ROUND}foreign undo
{20 * ROUND}feed up k1 d0 5
hurry
{12 * ROUND}
"""


@pytest.mark.parametrize("dies", ["foreign fail-compaction metadata", "foreign fail-compaction files"])
def test_a_compaction_is_taken_back_and_planned_again(dies: str) -> None:
    outcome = run_script(parse(SCRIPT.format(dies=dies)))
    assert outcome.violations == ()
    assert outcome.reached["foreign service rolled back"] == 1, "it did not find our plan"
    assert outcome.reached["compact-data done"] >= 1
    if "metadata" in dies:
        assert outcome.reached["compact-data taken back"] == 1
