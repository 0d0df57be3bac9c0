"""Random schedules of commits, services of every kind and deaths, in tables of both types; at each step
readers by Hudi's rules, with and without the metadata table, see what was committed, and `verify` finds
nothing.

Two short ones run here. TIDEMARK_SERVICE_SCHEDULES=0-100 runs long ones of these seeds, ten seconds each.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tests.service_actions import EVERYTHING_NOW, DiedError
from tests.unit.commit_coordinator.table_services.story import Story
from tidemark.commit_coordinator.errors import ActionLostError
from tidemark.commit_coordinator.failpoints import SERVICE_FAILPOINTS
from tidemark.config.table_services_model import ArchiveConfig, CleanConfig
from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.hudi_format.table_config import TableType

FIRST, _, LAST = os.environ.get("TIDEMARK_SERVICE_SCHEDULES", "0-2").partition("-")
STEPS = 30 if "TIDEMARK_SERVICE_SCHEDULES" in os.environ else 8
# Readers keep a second and a half, and six writes stay on the timelines.
CONFIG = replace(
    EVERYTHING_NOW,
    archive=ArchiveConfig(min=4, max=6, batch=1),
    clean=CleanConfig(retain_ms=1_500),
    index_retain_ms=1_500,
)


class Schedule:
    """One seed's."""

    def __init__(self, story: Story, seed: int) -> None:
        self.story, self.served, self.dice = story, story.served, Random(seed)
        self.served.config = CONFIG
        self.served.begin()

    def step(self) -> None:
        chance = self.dice.random()
        if chance < 0.4:
            self.commit()
        elif chance < 0.5:
            self.story.pass_by(self.dice.choice((0.2, 1.0, 3.0)))
        else:
            self.serve(self.dice.choice(list(ServiceKind)))
        self.story.check()

    def commit(self) -> None:
        keys = self.dice.sample(range(40), self.dice.randint(1, 4))
        others = [number for key in self.story.live if (number := int(key[1:])) not in keys]
        self.story.commit(keys, self.dice.sample(others, self.dice.randint(0, 2)) if len(others) > 6 else [])

    def serve(self, kind: ServiceKind) -> None:
        """Plans an action, or decides an open one, and perhaps dies; what is decided goes first then."""
        self.story.pass_by(0.01)
        if kind not in self.served.state.services:
            self.served.list_files()
            self.served.plan(kind)
            return
        if self.dice.random() < 0.4:
            self.served.dies_at(self.dice.choice(sorted(SERVICE_FAILPOINTS)).value, self.dice.randint(1, 3))
        try:
            if self.served.decide(kind):
                self.served.sweep(kind)
        except DiedError:
            self.story.check()
            self.served.begin()
        self.served.lives()
        self.end_decided()

    def end_decided(self) -> None:
        for kind, held in list(self.served.state.services.items()):
            if held.decided is None:
                continue
            try:
                self.served.finish(kind)
            except ActionLostError:
                self.served.take_back(kind)


@pytest.mark.parametrize("seed", range(int(FIRST), int(LAST)))
def test_readers_are_right_at_every_step(tmp_path: Path, seed: int) -> None:
    story = Story(tmp_path / "t", list(TableType)[seed % 2])
    story.serve()
    schedule = Schedule(story, seed)
    for _ in range(STEPS):
        schedule.step()
    for kind in list(story.served.state.services):
        assert not story.served.decide(kind) or story.served.sweep(kind)
    story.check()
