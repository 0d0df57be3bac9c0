"""Whole worlds over a store without folders and renames: what writers make is published by the coordinator,
once a decision names it.

`TIDEMARK_SEED=n` replays one. The seeds are others than those of `test_world.py`, and so are the scripts.
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from tests.simulation.reached_states import CHUNK, SEEDS
from tests.simulation.world.actors import CoordinatorActor
from tests.simulation.world.generate import generate
from tests.simulation.world.report import describe
from tests.simulation.world.script import Script, Setup
from tests.simulation.world.shrink import shrink
from tests.simulation.world.world import World, run_script

WORLDS = 300
CHUNKS = (
    [range(int(os.environ["TIDEMARK_SEED"]), int(os.environ["TIDEMARK_SEED"]) + 1)]
    if "TIDEMARK_SEED" in os.environ
    else [range(first, first + CHUNK) for first in range(SEEDS, SEEDS + WORLDS, CHUNK)]
)


def over_objects(seed: int) -> Script:
    """The script of the seed, in a world without folders."""
    drawn = generate(seed)
    return Script(replace(drawn.setup, store="objects"), drawn.events, seed)


@pytest.mark.parametrize("seeds", CHUNKS, ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_a_world_without_folders_keeps_every_guarantee(seeds: range) -> None:
    for seed in seeds:
        script = over_objects(seed)
        if run_script(script).violations:
            short, outcome = shrink(script)
            said = describe(short, outcome, len(script.events))
            pytest.fail(f"TIDEMARK_SEED={seed} replays this:\n{said}", pytrace=False)


def played(world: World, *events: str) -> None:
    for event in events:
        world.apply(tuple(event.split()))
        world._happened()


def test_a_void_attempt_that_is_not_settled_keeps_its_instant_and_its_heartbeat() -> None:
    """C6. The store cannot say at once that no file of epoch 2's first attempt will appear."""
    world = World(Script(Setup(store="objects")))
    with world.edges.in_place(world.setup):
        played(world, "feed up k0 d0 1")
        for _ in range(40):
            played(world, "round", "wait 100")
            if world.judge.epoch == 1:
                break
        played(world, "feed up k1 d0 2", "fail-job")
        seen = None
        for _ in range(40):
            played(world, "round", "wait 20")
            actor = world._coordinator()
            assert isinstance(actor, CoordinatorActor)
            assert actor.loop is not None
            seen = actor.loop._coordinator.seen
            if seen.unsettled:
                break
        assert seen is not None
        (voided,) = seen.unsettled
        assert (voided.epoch, voided.attempt) == (2, 1)
        paths = world.storage.paths()
        assert f".hoodie/.heartbeat/{voided.instant}" in paths
        assert any(f"/{voided.instant}.deltacommit.inflight" in path for path in paths)
        world._settle()
        assert voided in seen.cleaned
        assert world.judge.violations == []
        assert world.judge.epoch == 2
        for each in world._actors():
            each.process.kill()
