"""A thousand small worlds under faults: G1 to G8 hold after every step.

`TIDEMARK_SEED=n` replays one; a failure prints a script that was shrunk, and how to replay it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable

import pytest

from tests.simulation.reached_states import REACHED
from tests.simulation.world.generate import generate
from tests.simulation.world.seeds import report
from tests.simulation.world.world import run_script

SEEDS = 1_000
CHUNK = 25
CHUNKS = (
    [range(int(os.environ["TIDEMARK_SEED"]), int(os.environ["TIDEMARK_SEED"]) + 1)]
    if "TIDEMARK_SEED" in os.environ
    else [range(first, first + CHUNK) for first in range(0, SEEDS, CHUNK)]
)


@pytest.mark.parametrize("seeds", CHUNKS, ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_a_world_under_faults_keeps_every_guarantee(
    seeds: range, record_property: Callable[[str, object], None]
) -> None:
    reached = Counter[str]()
    for seed in seeds:
        outcome = run_script(generate(seed))
        if outcome.violations:
            pytest.fail("\n".join(report([seed], shrinks=True)), pytrace=False)
        reached.update(outcome.reached)
    record_property(REACHED, dict(reached))
