"""Whole worlds in which Tidemark's services run beside another engine that compacts, cleans and archives, and
in which coordinators die at their steps and the storage refuses calls.
"""

from __future__ import annotations

import pytest

from tests.simulation.world.ports import WorldClock
from tests.simulation.world.serviced import with_refusals, with_services
from tests.simulation.world.storage import WatchedStorage
from tests.simulation.world.world import Outcome, run_script

SEEDS = (1, 2, 7, 12)
REACHED = ("compact-index done", "compact-data done", "clean-data done", "clean-index done", "archive done")
REFUSED = (4, 10)
PASSED: dict[int, Outcome] = {}
REFUSED_PASSED: dict[int, Outcome] = {}


def run_refused(seed: int) -> Outcome:
    if seed not in REFUSED_PASSED:
        REFUSED_PASSED[seed] = run_script(with_refusals(seed))
    return REFUSED_PASSED[seed]


def run_seed(seed: int) -> Outcome:
    if seed not in PASSED:
        PASSED[seed] = run_script(with_services(seed))
    return PASSED[seed]


@pytest.mark.parametrize("seed", SEEDS)
def test_every_guarantee_holds(seed: int) -> None:
    outcome = run_seed(seed)
    assert outcome.violations == (), "\n".join(outcome.log[-20:])


@pytest.mark.parametrize("seed", REFUSED)
def test_every_guarantee_holds_where_the_storage_refuses_calls(seed: int) -> None:
    outcome = run_refused(seed)
    assert outcome.violations == (), "\n".join(outcome.log[-20:])


@pytest.mark.parametrize("half", ["after_metadata_commit", "after_service_metadata"])
def test_a_successor_meets_refused_storage_between_the_commits_of_both_tables(half: str) -> None:
    scripts = [with_refusals(seed).events for seed in range(20)]
    deaths = [events for events in scripts if ("crash", "coordinator", "1", half) in events]
    assert len(deaths) > 3
    assert any(run_refused(seed).reached.get("takeover between our two commits") for seed in REFUSED)


def test_every_kind_has_work_to_do() -> None:
    reached = [run_seed(seed).reached for seed in SEEDS]
    assert [kind for kind in REACHED if not any(kind in states for states in reached)] == []


def test_a_script_has_the_same_outcome_again() -> None:
    assert run_script(with_services(SEEDS[0])) == run_seed(SEEDS[0])


@pytest.mark.parametrize("has_folders", [True, False])
def test_the_product_lists_folders_by_name_in_a_world_too(has_folders: bool) -> None:
    """Archival asks for the partitions of the metadata table by name."""
    storage = WatchedStorage(WorldClock(), has_folders)
    storage.create("metadata/files/a", b"a")
    storage.create("metadata/b", b"b")
    assert (
        set(storage.names("metadata")) == {each.name for each in storage.list("metadata")} == {"files", "b"}
    )
    assert storage.file_names("metadata") == ["b"]
