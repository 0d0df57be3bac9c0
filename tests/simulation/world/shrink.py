"""From a failing script to a short one that fails alike (delta debugging over its events)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.simulation.world.script import Event, Script
from tests.simulation.world.world import Outcome, run_script
from tidemark.stream_runtime.clock import Clock, SystemClock

RUNS_MAX: Final = 600
SECONDS_MAX: Final = 300.0
"""Of the clock, after which the shortest script so far is good enough: a run of a long script takes half a
minute on a busy machine, and six hundred of them would take more time than all tests together have.
"""
_CLOCK: Final = SystemClock()


def failure_of(outcome: Outcome) -> str:
    """What two runs have in common that fail alike: the guarantee, and the kind of end if it is one."""
    if not outcome.violations:
        return ""
    first = outcome.violations[0]
    guarantee, _, text = first.partition(":")
    if guarantee != "unexpected":
        return guarantee
    return f"{guarantee} {text.partition(' ends with ')[2].partition(':')[0] or text[:40]}"


def shrink(
    script: Script,
    run: Callable[[Script], Outcome] = run_script,
    runs_max: int = RUNS_MAX,
    seconds_max: float = SECONDS_MAX,
    clock: Clock = _CLOCK,
) -> tuple[Script, Outcome]:
    """The shortest script that was found in `runs_max` runs and `seconds_max` of `clock`, and its outcome.
    ``script`` has to fail.
    """
    ends_s = clock.monotonic_s() + seconds_max
    outcome = run(script)
    wanted = failure_of(outcome)
    if not wanted:
        raise ValueError("the script does not fail")
    if outcome.at >= 0:
        # What comes after the first violation does not matter.
        script = script.of(script.events[: outcome.at + 1])
    runs = 0

    def is_over() -> bool:
        return runs >= runs_max or clock.monotonic_s() >= ends_s

    def fails(events: list[Event]) -> Outcome | None:
        nonlocal runs
        runs += 1
        found = run(script.of(events))
        return found if failure_of(found) == wanted else None

    events, size = list(script.events), max(len(script.events) // 2, 1)
    while size >= 1 and not is_over():
        at, removed = 0, False
        while at < len(events) and not is_over():
            shorter = events[:at] + events[at + size :]
            found = fails(shorter)
            if found is None:
                at += size
            else:
                events, outcome, removed = shorter, found, True
        if size == 1 and not removed:
            break
        size = size if removed and size == 1 else size // 2
    return script.of(events), outcome
