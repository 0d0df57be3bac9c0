"""A failure as text that a person can read and replay."""

from __future__ import annotations

from tests.simulation.world.script import Script
from tests.simulation.world.world import Outcome


def describe(script: Script, outcome: Outcome, was: int | None = None) -> str:
    """Violations, the script, and what happened. ``was``: the number of events before shrinking."""
    shrunk = "" if was is None else f" (shrunk from {was})"
    lines = [
        f"seed {script.seed}: {outcome.violations[0] if outcome.violations else 'no violation'}",
        *(f"  also: {each}" for each in outcome.violations[1:6]),
        f"script of {len(script.events)} events{shrunk}; replay it with",
        "  python -m tests.simulation.world replay FILE",
        "",
        script.text(),
        "what happened:",
        *outcome.log[-60:],
    ]
    return "\n".join(lines)
