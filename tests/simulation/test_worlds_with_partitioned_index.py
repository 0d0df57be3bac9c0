"""Whole worlds of a table whose record index is divided by partition; and that they find what a simpler
design would lose.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.simulation.world.script import Script, parse
from tests.simulation.world.with_partitioned import partitioned
from tests.simulation.world.world import run_script
from tidemark.hudi_format.metadata_table import begun_groups, partitioned_index
from tidemark.hudi_format.partitioned_lanes import identity_lanes
from tidemark.index_assigner.shuffle import row_identity
from tidemark.stream_writer import partition_task

SEEDS = range(10_000, 10_003)
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


@pytest.mark.parametrize("seed", [*SEEDS, *FOUND_A_BUG])
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


def test_random_worlds_do_what_they_are_for() -> None:
    done = Counter(
        event[1]
        for seed in range(11_000, 11_060)
        for event in partitioned(seed).events
        if event[0] == "foreign"
    )
    assert min(done[each] for each in ("half-begun", "insert", "begin", "restore", "compact-index")) > 0


def late_task_writes_into_later_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task takes groups that began after its instant for groups that were there."""
    monkeypatch.setattr(
        partition_task, "layout_before", lambda snapshot, _: partitioned_index.layout_of(snapshot)
    )


def first_files_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group without entries gets no file: its partition has fewer groups than keys were divided by."""
    monkeypatch.setattr(begun_groups, "initial_logs", lambda groups, instant: [])


def lane_by_key_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shuffle takes a row's lane from its key, and the assigner from the partition and the key."""
    real = identity_lanes

    def lanes(keys: Any, ids: Any, paths: Any, count: int) -> Any:
        return real(keys, np.zeros_like(ids), [""], count) if len(keys) else real(keys, ids, paths, count)

    monkeypatch.setattr(row_identity, "identity_lanes", lanes)


@pytest.mark.parametrize(
    ("plant", "script"),
    [
        (late_task_writes_into_later_groups, partitioned(10_031)),
        (first_files_left_out, parse(SHORT)),
        (lane_by_key_alone, parse(SHORT)),
    ],
)
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert run_script(script).violations, plant.__doc__
