"""A minute of the soak at a lower rate, with fixed limits instead of the rule of growth (docs/soak.md)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.memory_watch import LIMITS_MIB
from tests.soak.soak import Settings, Soak

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]
MIB = 1 << 20
LIMITS = {
    **{f"memory: {kind}": limit * MIB for kind, limit in LIMITS_MIB.items()},
    "memory: run": 200 * MIB,
    # Two workers and the daemon that forks them, shared pages counted in each; a third while one is replaced.
    "memory: writer's Python worker": 800 * MIB,
    "heap: ": 150 * MIB,
    "descriptors: ": 250,
    "descriptors: writer's JVM": 500,
    "descriptors: kafka": 500,
    "disk: state": 64 * MIB,
    "disk: logs": 16 * MIB,
    "disk: kafka": 150 * MIB,
    # Both, run.log and temporary files.
    "disk: all but the table": 250 * MIB,
    "topic: orders.epochs": 3_000,
    "topic: orders.ledger": 25_000,
    "topic: ": 50_000,
}


def test_a_minute_of_the_soak_stays_within_its_limits(tmp_path: Path):
    said: list[str] = []
    # A hundred records five times a second, not 25 twenty times: each handful makes transactions of both
    # stages on every lane, most of what the broker does, and no latency is held against a limit here.
    settings = Settings(
        tmp_path / "soak",
        minutes=1,
        rate=500.0,
        keys=5_000,
        retention_s=600,
        limits=LIMITS,
        tick_s=0.2,
    )
    outcome = Soak(settings, said.append).run()
    assert outcome.problems == [], (said, outcome)
    assert outcome.malformed > 0.03 * outcome.sent > 0, said
    assert outcome.commits > 0, said
    # However slow the machine: enough that each key can have been written (a sixth of what the rate says).
    assert outcome.sent >= settings.keys, said
