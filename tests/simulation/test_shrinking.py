"""Shrinking a failing script ends with the shortest one, or with what it has when its time is over."""

from __future__ import annotations

from testing.clock import ManualClock
from tests.simulation.world.generate import generate
from tests.simulation.world.script import Script
from tests.simulation.world.shrink import shrink
from tests.simulation.world.world import Outcome

_SCRIPT = generate(1)
_NEEDED = _SCRIPT.events[len(_SCRIPT.events) // 2]


class Counted:
    """A world that fails while one event is in the script; each run takes a minute."""

    def __init__(self) -> None:
        self.clock, self.runs = ManualClock(), 0

    def run(self, script: Script) -> Outcome:
        self.runs += 1
        self.clock.advance(60.0)
        return Outcome(("G1: planted",) if _NEEDED in script.events else (), -1, (), 0)


def test_the_one_event_that_is_needed_is_left() -> None:
    world = Counted()
    short, outcome = shrink(_SCRIPT, world.run, seconds_max=1e9, clock=world.clock)
    assert list(short.events) == [_NEEDED]
    assert outcome.violations


def test_what_is_short_so_far_is_taken_when_the_time_is_over() -> None:
    world = Counted()
    short, outcome = shrink(_SCRIPT, world.run, seconds_max=300, clock=world.clock)
    assert world.runs == 5
    assert outcome.violations
    assert 1 < len(short.events) < len(_SCRIPT.events)
