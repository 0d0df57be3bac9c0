"""Whole worlds of a table whose record index is divided by partition. What a simpler design would lose is
planted in `planted/partitioned_bugs.py`.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.world.drawn import drawn, is_partitioned
from tests.simulation.world.script import parse
from tests.simulation.world.seeds import without_folders
from tests.simulation.world.with_partitioned import partitioned
from tests.simulation.world.world import run_script

WITH_SERVICES = 10_002
OVER_OBJECTS = 10_001
FOUND_A_BUG = (10_012, 10_022, 10_031)
"""Worlds that found one of the product."""
# An epoch that begins d3 is written while the other engine begins d3; the coordinator dies behind the
# decision of one that begins d4; keys lie in several partitions, and deletes name one, or none.
SHORT = """
setup type=mor shards=2 lanes=2 inputs=1 assigners=2 interval_ms=0 index=partitioned units=1
round
round
feed up k0 d0 1
feed up k1 d1 2
feed up k0 d1 2
hurry
round
round
round
round
round
round
feed del k0 5 d1
feed del k1 5
feed up k0 d0 6
feed up k3 d3 6
hurry
step shuffler-0
step assigner-0
step assigner-1
wait 300
step coordinator
foreign insert d3
step writer
round
round
round
round
feed up k1 d4 7
feed up k2 d0 7
crash coordinator 1 before_metadata_completed
hurry
round
round
round
round
round
round
foreign update k0
foreign delete k3
lose-disk assigner-0
feed up k0 d1 9
feed del k1 9 d1
hurry
round
round
"""

# The other engine takes the commit back that began d3. What it leaves there hides nothing, and both engines
# write into the partition afterwards.
RESTORED = """
setup type=mor shards=2 lanes=2 inputs=1 assigners=1 interval_ms=0 index=partitioned units=1
round
feed up k0 d0 1
hurry
round
round
round
round
foreign insert d1
round
foreign savepoint
foreign insert d3
round
foreign restore
round
feed up k1 d3 2
hurry
round
round
round
round
round
round
foreign insert d3
round
round
"""


@pytest.mark.parametrize("seed", [WITH_SERVICES, *FOUND_A_BUG])
def test_every_guarantee_holds(seed: int) -> None:
    outcome = run_script(partitioned(seed))
    assert outcome.violations == (), "\n".join(outcome.log[-20:])


def test_partitions_that_both_engines_begin_and_a_coordinator_that_dies() -> None:
    outcome = run_script(parse(SHORT))
    assert outcome.violations == (), "\n".join(outcome.log[-20:])
    assert outcome.epochs > 2
    for state in (
        "partition begun by us",
        "partition begun by another engine",
        "key in several partitions",
        "delete without a partition",
        "part of the index closed by least use",
    ):
        assert outcome.reached.get(state), state


def test_a_partition_that_a_restore_took_back_is_begun_anew() -> None:
    outcome = run_script(parse(RESTORED))
    assert outcome.violations == (), "\n".join(outcome.log[-20:])
    assert outcome.reached["our commit after a foreign restore"]
    assert not any("left out" in line for line in outcome.log), outcome.log


def test_some_seeds_of_a_run_of_all_kinds_have_such_tables_without_services() -> None:
    seeds = [seed for seed in range(5_000, 5_200) if is_partitioned(seed)]
    assert 10 <= len(seeds) <= 40
    for script in map(drawn, seeds):
        assert script.setup.by_partition
        assert not script.setup.services
        assert script == partitioned(script.seed)
    assert drawn(min(set(range(5_000, 5_200)).difference(seeds))).setup.index == "global"


def test_random_worlds_do_what_they_are_for() -> None:
    done = Counter(
        event[1]
        for seed in range(11_000, 11_060)
        for event in partitioned(seed).events
        if event[0] == "foreign"
    )
    assert min(done[each] for each in ("half-begun", "insert", "begin", "restore", "compact-index")) > 0


def test_files_of_a_begun_partition_go_with_the_attempt_that_is_taken_back() -> None:
    """The lock was taken away from a dead coordinator, then another engine's commit made its attempt void."""
    outcome = run_script(partitioned(720_002))
    assert outcome.violations == (), "\n".join(outcome.log[-20:])
    assert outcome.reached["groups that were published and taken back"] > 0
    assert outcome.reached["lock made anew after it was taken away"] > 0


def test_worlds_over_a_store_of_objects_have_such_tables_too() -> None:
    outcome = run_script(without_folders(partitioned, OVER_OBJECTS))
    assert outcome.violations == (), "\n".join(outcome.log[-20:])


def test_the_other_engine_inserts_no_key_of_ours_in_flight_not_even_by_a_move() -> None:
    """Two engines that insert the same new key at the same time double it, in Hudi, too."""
    moved = ["wait 1000", "step coordinator", "foreign begin move k0 d5"]
    outcome = run_script(parse(SHORT + "\n".join(moved)))
    assert outcome.violations == ()
    assert any("two engines that insert the same new key" in line for line in outcome.log)
