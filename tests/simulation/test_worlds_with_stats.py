"""Whole worlds of a table that keeps column stats."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulation.world.generate import generate
from tests.simulation.world.script import Script
from tests.simulation.world.serviced import with_services
from tests.simulation.world.world import run_script

SEEDS = {1: "folders", 2: "objects"}
WITH_SERVICES = 2


def with_stats(script: Script, store: str = "folders") -> Script:
    return replace(script, setup=replace(script.setup, stats=True, store=store))


@pytest.mark.parametrize("seed", SEEDS)
def test_every_guarantee_holds(seed: int) -> None:
    outcome = run_script(with_stats(generate(seed), SEEDS[seed]))
    assert outcome.violations == (), "\n".join(outcome.log[-20:])
    assert outcome.reached["record of column stats"]


def test_every_guarantee_holds_beside_services() -> None:
    outcome = run_script(with_stats(with_services(WITH_SERVICES)))
    assert outcome.violations == (), "\n".join(outcome.log[-20:])
    assert outcome.reached["record of column stats"]
