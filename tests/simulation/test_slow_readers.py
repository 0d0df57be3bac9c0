"""What a reader may lose that lists the data timeline and opens files later."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulation.world.script import parse
from tests.simulation.world.world import World, run_world

_OF_OURS = [
    "setup type=cow services=yes interval_ms=0", "feed up k1 d2 7", *["round"] * 24,
    "reader begin", "feed up k1 d2 8", *["round"] * 36, "reader end",
]  # fmt: skip
_OF_ANOTHER = [
    "setup type=cow", "feed up k1 d2 7", *["round"] * 8,
    "reader begin", "feed up k1 d2 8", *["round"] * 8,
    "foreign overwrite d1", "foreign clean commits 1", "reader end",
]  # fmt: skip


def run(lines: list[str], retain_ms: int = 1_000) -> tuple[str, ...]:
    """The violations, where the checkers believe that Tidemark keeps files for so long."""
    world = World(parse("\n".join(lines)))
    services = world.config.table_services
    services = replace(services, clean=replace(services.clean, retain_ms=retain_ms))
    world.config = replace(world.config, table_services=services)
    return run_world(world).violations


def test_a_clean_of_another_engine_keeps_what_its_own_policy_says() -> None:
    assert run(_OF_ANOTHER) == ()


@pytest.mark.parametrize(("retain_ms", "is_lost"), [(1_000, False), (60_000, True)])
def test_ours_keeps_files_for_its_retention_and_no_longer(retain_ms: int, is_lost: bool) -> None:
    found = run(_OF_OURS, retain_ms)
    assert bool(found) is is_lost
    assert all(each.startswith("G4: a slow reader lost ['d2/") for each in found)
