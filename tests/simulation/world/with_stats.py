"""Worlds whose tables keep column stats: one of eight seeds, with services or without.

What is drawn here is drawn apart, so the rest of such a world is that of its seed.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from tests.simulation.world.foreign.stats import STATS_CHANGES
from tests.simulation.world.script import Event, Script

_FIXED: Final = 1_000
"""Tests name seeds below for what their worlds show: those stay as they are."""
_ONE_OF: Final = 8
_ALONE: Final = 0.4
_CHANGES_MAX: Final = 3
_WRITER_CUT: Final = 0.5
DRAWN: Final = tuple(change for change in STATS_CHANGES if change != "more")
"""With one more column all files of before lack records until the stats are taken out, also those of a commit
that was decided before. The judge cannot tell which commits these are, so scripts alone add a column."""


def keeps_stats(seed: int) -> bool:
    """Whether the table of the seed's world keeps column stats: one of eight does."""
    return seed >= _FIXED and Random(f"stats of {seed}").randrange(_ONE_OF) == 0


def with_stats(script: Script) -> Script:
    """The script for a table with column stats. In six of ten another engine changes them, at any moment; in
    five of ten the writer dies or is frozen between two of their log files, or behind the last one.
    """
    dice, events = Random(f"changes of stats of {script.seed}"), list(script.events)
    found: list[Event] = []
    if dice.random() >= _ALONE:
        changes = [dice.choice(DRAWN) for _ in range(dice.randint(1, _CHANGES_MAX))]
        found += [("foreign", "stats", change) for change in changes]
    if dice.random() < _WRITER_CUT:
        nth = str(dice.choice((1, 1, 2, 3)))
        found.append((dice.choice(("crash", "freeze")), "writer", nth, "writer_indexed"))
    for event in found:
        events.insert(dice.randint(len(events) // 4, len(events)), event)
    return Script(replace(script.setup, stats=True), tuple(events), script.seed)
