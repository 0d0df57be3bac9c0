"""Another engine carries out an action of ours while the storage refuses our files. It may die between the
metadata table's commit and its own: nobody else would end that, our action ends anyway.
"""

from __future__ import annotations

import pytest

from tests.simulation.world.script import parse
from tests.simulation.world.world import run_script

ROUND = "round\n"
FED = f"""
round
feed up k1 d0 1
hurry
{6 * ROUND}feed up k1 d0 2
hurry
{6 * ROUND}feed up k1 d0 3
hurry
{12 * ROUND}"""
SETUP = "setup type=mor shards=1 lanes=1 inputs=1 assigners=1 interval_ms=0 services=yes kinds="
SCRIPT = f"""{SETUP}compact_data{FED}fail-before coordinator {{nth}}
{2 * ROUND}{{dies}}
{12 * ROUND}foreign undo
{20 * ROUND}feed up k1 d0 5
hurry
{12 * ROUND}
"""
CLEAN = f"""{SETUP}clean{FED}foreign compact
wait 6000
fail-before coordinator {{nth}} storage.publish
{4 * ROUND}foreign clean time 1
{12 * ROUND}feed up k1 d0 5
hurry
{12 * ROUND}
"""


@pytest.mark.parametrize("nth", range(5, 11))
def test_another_engine_carries_our_clean_out_wherever_the_storage_refused_it(nth: int) -> None:
    """From the inflight file to the completed one, with the metadata table's commit in between. Before them
    the coordinator asks the storage for its time, with a file each.
    """
    outcome = run_script(parse(CLEAN.format(nth=nth)))
    assert outcome.violations == ()
    assert outcome.reached["foreign clean"] == outcome.reached["clean-data by_other"] == 1


@pytest.mark.parametrize("nth", [*(f"{n} storage.publish" for n in range(3, 8)), "1 storage.link"])
def test_another_engine_carries_our_compaction_out_wherever_the_storage_refused_it(nth: str) -> None:
    """It takes back what is begun, and does not know our base file if that is there: our sweep deletes it."""
    outcome = run_script(parse(SCRIPT.format(dies="foreign run-compaction", nth=nth)))
    assert outcome.violations == ()
    assert outcome.reached["foreign service rolled back"] == outcome.reached["compact-data by_other"] == 1


@pytest.mark.parametrize("dies", ["foreign fail-compaction metadata", "foreign fail-compaction files"])
def test_a_compaction_is_taken_back_and_planned_again(dies: str) -> None:
    outcome = run_script(parse(SCRIPT.format(dies=dies, nth="1 storage.link")))
    assert outcome.violations == ()
    assert outcome.reached["foreign service rolled back"] == 1, "it did not find our plan"
    assert outcome.reached["compact-data done"] >= 1
    if "metadata" in dies:
        assert outcome.reached["compact-data taken back"] == 1


def test_a_compaction_goes_on_over_what_a_dead_executor_made_of_it() -> None:
    """Our inflight file was refused, and it made one: nobody rolled it back. Its markers go, too."""
    outcome = run_script(parse(SCRIPT.format(dies="foreign fail-compaction files", nth="2 storage.publish")))
    assert outcome.violations == ()
    assert "foreign service rolled back" not in outcome.reached
    assert outcome.reached["compact-data done"] >= 1
