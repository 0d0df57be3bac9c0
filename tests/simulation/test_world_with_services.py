"""Whole worlds in which Tidemark's services run beside another engine that compacts, cleans and archives, and
in which coordinators die at their steps and the storage refuses calls: fixed seeds, which reach what they are
to reach, and one of each kind that changes with the commit, which `TIDEMARK_SEED=n` replays.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.commit_seed import content_of
from tests.simulation.commit_seeds import first_seed_of
from tests.simulation.world.ports import WorldClock
from tests.simulation.world.report import describe
from tests.simulation.world.script import parse
from tests.simulation.world.seeds import Write
from tests.simulation.world.serviced import with_refusals, with_services
from tests.simulation.world.shrink import shrink
from tests.simulation.world.storage import WatchedStorage
from tests.simulation.world.world import Outcome, run_script
from tidemark.stream_writer.failpoints import WriterFailpoint

SEEDS = (1, 2, 7, 12)
REACHED = ("compact-index done", "compact-data done", "clean-data done", "clean-index done", "archive done")
REFUSED = (4, 10)
PASSED: dict[int, Outcome] = {}
REFUSED_PASSED: dict[int, Outcome] = {}
REPLAYED = os.environ.get("TIDEMARK_SEED")
FIRST = int(REPLAYED) if REPLAYED else first_seed_of(content_of(Path(__file__).resolve().parents[2]))
# A world of these takes some seconds.
OF_THE_COMMIT = ((FIRST, with_services), (FIRST if REPLAYED else FIRST + 1, with_refusals))
NAMES = ("with services", "with refusals")


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


@pytest.mark.parametrize(("seed", "write"), OF_THE_COMMIT, ids=NAMES)
def test_every_guarantee_holds_for_a_seed_of_the_commit(seed: int, write: Write) -> None:
    script = write(seed)
    if run_script(script).violations:
        short, outcome = shrink(script)
        said = describe(short, outcome, len(script.events))
        pytest.fail(f"TIDEMARK_SEED={seed} replays this:\n{said}", pytrace=False)


ROUND = "round\n"
FED = "".join(f"feed up k1 d0 {n}\nhurry\n{6 * ROUND}" for n in range(1, 4))
MERGING = f"""
setup shards=1 lanes=1 inputs=1 assigners=1 interval_ms=0 services=yes kinds=compact_data
round
{{cut}}{FED}{30 * ROUND}
"""


@pytest.mark.parametrize("place", [each for each in WriterFailpoint if each.name.startswith("MERGES_")])
def test_a_writer_dies_among_its_merges_and_the_next_one_ends_them(place: WriterFailpoint) -> None:
    """Before the first merge, behind a wave of which nobody heard, and behind the report."""
    outcome = run_script(parse(MERGING.format(cut=f"crash writer 1 {place.value}\n")))
    assert outcome.violations == ()
    assert any(f"writer#0 is gone at failpoint {place.value}" in line for line in outcome.log)
    done = {state: count for state, count in outcome.reached.items() if state.startswith("compact-")}
    assert done.keys() == {"compact-data done"}


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
