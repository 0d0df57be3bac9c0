"""Whole worlds of a table that keeps a secondary index, without the simulated engine, which knows none; and
that they find what a simpler design would lose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.simulation.world.generate import generate
from tests.simulation.world.script import Script
from tests.simulation.world.serviced import with_services
from tests.simulation.world.world import run_script
from tidemark.hudi_format import validation
from tidemark.hudi_format.metadata_table.partitions.secondary_index import SecondaryChanges
from tidemark.stream_writer import secondary_task

SEEDS = {1: "folders", 2: "objects"}
WITH_SERVICES = 2


@pytest.fixture(autouse=True)
def _served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "SERVES_SECONDARY", True)


def with_index(script: Script, store: str = "folders") -> Script:
    ours = tuple(event for event in script.events if event[0] != "foreign")
    return replace(script, setup=replace(script.setup, secondary=True, store=store), events=ours)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_guarantee_holds(seed: int) -> None:
    outcome = run_script(with_index(generate(seed), SEEDS[seed]))
    assert outcome.violations == (), "\n".join(outcome.log[-20:])
    assert outcome.reached["entry of a secondary index"]


def test_every_guarantee_holds_beside_services() -> None:
    outcome = run_script(with_index(with_services(WITH_SERVICES)))
    assert outcome.violations == (), "\n".join(outcome.log[-20:])
    assert outcome.reached["entry of a secondary index"]


def test_a_delete_that_beats_a_put_loses_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counterexamples 3 and 4 of the design: a row that comes back, or moves, with the value that it had."""
    real = secondary_task.reduced

    def delete_first(parts: Sequence[pa.Table]) -> SecondaryChanges:
        entries = pa.concat_tables(parts).combine_chunks()
        keys, is_put = entries.column("key").combine_chunks(), entries.column("is_put").combine_chunks()
        deletes = keys.filter(pc.invert(is_put)).unique()
        puts = real(parts).puts
        return SecondaryChanges(puts.filter(pc.invert(pc.is_in(puts, value_set=deletes))), deletes)

    monkeypatch.setattr(secondary_task, "reduced", delete_first)
    outcome = run_script(with_index(generate(1)))
    assert any("the secondary index lacks" in violation for violation in outcome.violations)
