"""Whole worlds of a table that keeps column stats."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulation.world.generate import generate
from tests.simulation.world.script import Script, parse
from tests.simulation.world.serviced import with_services
from tests.simulation.world.with_stats import keeps_stats
from tests.simulation.world.world import run_script

OVER_OBJECTS = 2
WITH_SERVICES = 2
# The writer ends behind its nth log file of the stats, the first of two or the last. Another driver writes
# the same epoch.
WRITER_CUT = """
setup stats=yes shards=1 lanes=1 inputs=1 assigners=1 interval_ms=0
round
round
feed up k0 d0 1
round
round
round
{verb} writer {nth} writer_indexed
feed up k1 d1 2
feed up k2 d2 3
round
round
round
round
{then}
round
round
feed up k1 d2 4
feed del k2 5
round
round
round
round
"""


def with_stats(script: Script, store: str = "folders") -> Script:
    return replace(script, setup=replace(script.setup, stats=True, store=store))


def test_every_guarantee_holds_over_a_store_of_objects() -> None:
    outcome = run_script(with_stats(generate(OVER_OBJECTS), "objects"))
    assert outcome.violations == (), "\n".join(outcome.log[-20:])
    assert outcome.reached["record of column stats"]


def test_every_guarantee_holds_beside_services() -> None:
    outcome = run_script(with_stats(with_services(WITH_SERVICES)))
    assert outcome.violations == (), "\n".join(outcome.log[-20:])
    assert outcome.reached["record of column stats"]
    assert outcome.reached["merged record of column stats"]
    assert outcome.reached["compact-index done"]


@pytest.mark.parametrize(("verb", "nth"), [("crash", 1), ("crash", 2), ("freeze", 1)])
def test_a_writer_that_ends_between_its_log_files_of_the_stats_leaves_them_whole(verb: str, nth: int) -> None:
    then = "replace writer\nround\nround\nthaw writer\nzombie writer" if verb == "freeze" else "round"
    outcome = run_script(parse(WRITER_CUT.format(verb=verb, nth=nth, then=then)))
    assert outcome.violations == (), "\n".join(outcome.log[-20:])
    assert [line for line in outcome.log if "writer_indexed" in line and "failpoint" in line]
    assert outcome.reached["record of column stats"]


def test_random_worlds_beside_services_keep_them_too() -> None:
    """As many as without services; in some the writer ends between its log files, and nulls are in some."""
    seeds = [seed for seed in range(5_000, 5_100) if keeps_stats(seed)]
    scripts = [with_services(seed) for seed in seeds]
    assert all(script.setup.stats and script.setup.services for script in scripts)
    cut = [event for script in scripts for event in script.events if event[-1:] == ("writer_indexed",)]
    assert 0 < len(cut) < len(seeds)
    assert 0 < sum(script.setup.nullable for script in scripts) < len(seeds)
