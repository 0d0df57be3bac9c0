"""An action of ours is completed in the metadata table and not in the table itself: the storage refused the
last file, or the coordinator died and its successor's first call for the lock was refused. The lock is free
meanwhile, and others complete something. The action can only go on, and it completes above all of them: a
reader that follows the table by completion times has passed the decided time.
"""

from __future__ import annotations

import pytest

from tests.simulation.test_half_done_by_other import FED, ROUND, SETUP
from tests.simulation.world.script import parse
from tests.simulation.world.world import run_script

CLEAN_DUE = "foreign compact\nwait 6000\n"
CLEAN, COMPACTION = f"{SETUP}clean{FED}{CLEAN_DUE}", f"{SETUP}compact_data{FED}"
LAST_FILE = "fail-before coordinator {} storage.publish\n" + 2 * ROUND
DEATH = f"crash coordinator 1 after_service_metadata\n{3 * ROUND}fail-before coordinator 1 lock-\n{2 * ROUND}"
OTHERS = {"foreign": "foreign empty\n", "ours": f"feed up k2 d0 4\nhurry\n{6 * ROUND}"}
REST = f"wait 6000\n{12 * ROUND}feed up k1 d0 5\nhurry\n{12 * ROUND}"


@pytest.mark.parametrize("how", [LAST_FILE.format(10), DEATH], ids=["refused", "died"])
def test_a_clean_completes_above_what_came_between(how: str) -> None:
    outcome = run_script(parse(f"{CLEAN}{how}{OTHERS['foreign']}{REST}"))
    assert outcome.violations == ()
    assert outcome.reached["clean-data done"] >= 1
    assert "clean-data taken back" not in outcome.reached


@pytest.mark.parametrize("other", OTHERS)
def test_a_compaction_completes_above_what_came_between(other: str) -> None:
    outcome = run_script(parse(f"{COMPACTION}{LAST_FILE.format(7)}{OTHERS[other]}{REST}"))
    assert outcome.violations == ()
    assert outcome.reached["compact-data done"] >= 1
    assert "compact-data taken back" not in outcome.reached
