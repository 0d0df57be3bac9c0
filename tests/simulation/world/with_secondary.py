"""Worlds whose tables have a secondary index: one of eight seeds, with services or without. In half of them
the table has it from its first commits on, in the others another engine builds it, and dies at any step of
that, or does not. In every second one an operator makes, repairs and drops it.

What is drawn here is drawn apart, so the rest of such a world is that of its seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Final

from tests.simulation.world.richer import QUOTED
from tests.simulation.world.script import Event, Script

_FIXED: Final = 1_000
"""Tests name seeds below for what their worlds show: those stay as they are."""
_ONE_OF: Final = 8
_FROM_THE_START: Final = 0.5
_DIES: Final = 0.6
_STEPS: Final = 8
_KEYS, _DAYS = 6, 3
_LEFT: Final = ("bloom_filters", "column_stats", "expr_index_by_day", "vector_index_x")
"""What an indexer leaves half made in one of three such worlds."""
_COMMANDED: Final = 0.5
_COMMANDS: Final = ("create", "create", "repair", "drop")
_KILLED: Final = 0.5
_PLACES: Final = (
    "storage.create", "storage.replace", "storage.rename", "storage.delete", "storage.publish",
    "storage.list", "storage.read", "clock.sleep", "lock", "hoodie.properties", "index_defs",
    ".hoodie/metadata/.hoodie",
)  # fmt: skip
"""Words of places at which a command of an operator's is killed."""
_SEEN_MS, _HOUR_MS = 125_000, 3_605_000
"""After so long nobody builds what is defined, or what is defined and has an indexing instant."""


def has_secondary(seed: int) -> bool:
    """Whether the table of the seed's world gets a secondary index: one of eight does."""
    drawn = Random(f"secondary index of {seed}").randrange(_ONE_OF) == 0
    return seed >= _FIXED and seed not in QUOTED and drawn


def with_secondary(script: Script) -> Script:
    """The script for a table with a secondary index, and values that are too long for it."""
    dice, events = Random(f"builders of {script.seed}"), list(script.events)
    starts = dice.random() < _FROM_THE_START
    if not starts:
        at = dice.randint(len(events) // 4, len(events))
        events[at:at] = _builders(dice)
    for number in range(dice.choice((0, 1, 2))):
        at = dice.randint(len(events) // 2, len(events))
        if not _is_restored(events[at:]):
            events.insert(at, ("feed", "long", f"l{number}"))
    _leave_another(Random(f"left builds of {script.seed}"), events)
    events = _commanded(Random(f"index commands of {script.seed}"), events)
    return Script(replace(script.setup, secondary=starts), tuple(events), script.seed)


def _is_restored(events: Sequence[Event]) -> bool:
    """Whether a restore is among them: it takes the index away, and a record that nobody has tagged before
    is a row like any other, however long it is.
    """
    return ("foreign", "restore") in {event[:2] for event in events}


def _commanded(dice: Random, events: list[Event]) -> list[Event]:
    """With an operator's commands, of which half are killed. Where one makes or drops the index, a record
    that is too long may come while nobody knows that there is one, and is a row then: such are left out.
    """
    if dice.random() >= _COMMANDED:
        return events
    commands = [dice.choice(_COMMANDS) for _ in range(dice.choice((1, 2, 3)))]
    if set(commands) != {"repair"}:
        events = [event for event in events if event[:2] != ("feed", "long")]
    for command in commands:
        at = dice.randint(len(events) // 4, len(events))
        events[at:at] = [*_epoch(dice), ("index", command, *_killed(dice)), *_epoch(dice)]
    return events


def _killed(dice: Random) -> Event:
    """Nowhere, at any place, or at one of a kind."""
    if dice.random() >= _KILLED:
        return ()
    if dice.random() < 0.5:
        return (str(int(2 ** dice.uniform(0, 7))),)
    return (str(dice.choice((1, 1, 2, 3))), dice.choice(_PLACES))


def _leave_another(dice: Random, events: list[Event]) -> None:
    if dice.randrange(3) == 0:
        at = dice.randint(len(events) // 4, len(events))
        events.insert(at, ("foreign", "leave-build", dice.choice(_LEFT)))


def _builders(dice: Random) -> list[Event]:
    """One or two, who die or finish; epochs of ours are on their way."""
    scene: list[Event] = []
    for _ in range(dice.choice((1, 1, 2))):
        scene += [*_epoch(dice), ("foreign", "build", "begin"), *_epoch(dice)]
        dies = dice.random() < _DIES
        for _ in range(dice.randrange(_STEPS)):
            scene += [("foreign", "build", "next"), *[("round",)] * dice.choice((0, 0, 1, 3))]
        scene += [("foreign", "build", "die" if dies else "finish"), *_epoch(dice)]
        if dies and dice.random() < 0.5:
            scene += [("wait", str(dice.choice((_SEEN_MS, _HOUR_MS)))), *_epoch(dice)]
    return scene


def _epoch(dice: Random) -> list[Event]:
    """An event and some rounds, in which it may be planned, written and committed."""
    key, day = f"k{dice.randrange(_KEYS)}", f"d{dice.randrange(_DAYS)}"
    fed: list[Event] = [("feed", "up", key, day, str(3_000 + dice.randrange(1_000))), ("hurry",)]
    return [*fed, *[("round",)] * dice.choice((0, 1, 2, 3, 4, 6))]
