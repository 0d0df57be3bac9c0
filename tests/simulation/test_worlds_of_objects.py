"""Whole worlds over a store without folders and renames: what writers make is published by the coordinator,
once a decision names it. Twenty seeds, which change with the commit, so that some commits have as many as
`TIDEMARK_COMMIT_WORLDS=300 make simulation` tries at once.

A script that breaks a guarantee here is run with folders, too: where it does not there, publishing is to
blame, and the failure says so. `TIDEMARK_SEED=n` replays one, and the same seed in `test_world.py`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from testing.objects.publication import ObjectTerm
from testing.objects.store import NoSuchUploadError, ObjectStore, Where
from tests.simulation.commit_seeds import commit_chunks
from tests.simulation.world.actors import CoordinatorActor
from tests.simulation.world.drawn import drawn
from tests.simulation.world.report import describe
from tests.simulation.world.script import Script, Setup, parse
from tests.simulation.world.seeds import without_folders
from tests.simulation.world.shrink import shrink
from tests.simulation.world.world import World, run_script

ROOT = Path(__file__).resolve().parents[2]
REPLAYED = os.environ.get("TIDEMARK_SEED")
CHUNKS = [(int(REPLAYED),)] if REPLAYED else commit_chunks(ROOT)
NAMES = [REPLAYED] if REPLAYED else [f"of the commit {n}" for n in range(len(CHUNKS))]


def over_objects(seed: int) -> Script:
    """The script of the seed, in a world without folders."""
    return without_folders(drawn, seed)


@pytest.mark.parametrize("seeds", CHUNKS, ids=NAMES)
def test_a_world_without_folders_keeps_every_guarantee(seeds: Sequence[int]) -> None:
    for seed in seeds:
        script = over_objects(seed)
        if run_script(script).violations:
            short, outcome = shrink(script)
            beside = "breaks" if run_script(drawn(seed)).violations else "does not break"
            said = describe(short, outcome, len(script.events))
            with_folders = f"with folders it {beside} a guarantee"
            pytest.fail(f"TIDEMARK_SEED={seed} replays this; {with_folders}:\n{said}", pytrace=False)


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


def zombie_thaws_after(place: str, *meanwhile: str) -> Script:
    """A coordinator is frozen at a place in an epoch's second write; its successor finishes, and goes on."""
    setup = "setup shards=1 lanes=1 inputs=1 assigners=1 interval_ms=0 ids=7 store=objects"
    events = [
        *["round"] * 4, "feed up k0 d0 5", *["round"] * 7, "feed up k0 d0 7", *["round"] * 4, "hurry",
        f"freeze coordinator {place}", *["round"] * 3, "replace coordinator", *["round"] * 8, *meanwhile,
        "thaw coordinator", *["round"] * 3,
    ]  # fmt: skip
    return parse("\n".join([setup, *events]))


def published_again(self: ObjectStore, path: str, upload_id: str, where: Where | None = None) -> None:
    """A file that is made on the condition that its name is free, which is all that a plain write has."""
    upload = self._uploads.get(upload_id)
    if upload is None:
        raise NoSuchUploadError(path)
    self.create(upload.path, upload.data)


WORK = ["feed up k1 d0 8", *["round"] * 8]
OVER_TERM = zombie_thaws_after("5 storage.upload", *WORK, "foreign compact-index", "foreign archive")
CLEANED = zombie_thaws_after(
    "1 storage.publish", *WORK, "feed up k0 d0 9", *["round"] * 7, "foreign compact",
    "foreign clean versions 1", *["round"] * 2,
)  # fmt: skip


@pytest.mark.parametrize(
    ("owner", "broken", "script"),
    [
        (ObjectTerm, {"_here": property(lambda _: {})}, OVER_TERM),
        (ObjectStore, {"publish": published_again, "abort": lambda *_: True}, CLEANED),
    ],
    ids=["a term that is over publishes", "a used ticket is good again when its file was deleted"],
)
def test_a_rule_of_the_port_that_is_broken_is_found(
    owner: type, broken: dict[str, object], script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_script(script).violations == ()
    for name, by in broken.items():
        monkeypatch.setattr(owner, name, by)
    (first, *_) = run_script(script).violations
    assert first.startswith("G5")
