"""Worlds in which Tidemark's services run beside another engine's, and die at each of their steps."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from tests.simulation.world.generate import generate
from tests.simulation.world.script import Event, Script
from tidemark.commit_coordinator.failpoints import SERVICE_FAILPOINTS

# Places that came later, each in the stead of one that was there: so the worlds of known seeds stay as they
# are, but for those that come to such a place.
_OR_BEFORE: Final = {
    "after_service_voided": "before_service_voided",
    "in_take_back": "after_tickets_revoked",
    "after_service_completed": "after_each_rollback",
}
_PLACES: Final = (
    *sorted({each.value for each in SERVICE_FAILPOINTS} - set(_OR_BEFORE.values())),
    "storage.link",
    "storage.rename",
)
_FOREIGN: Final = (
    "compact", "compact", "plan-compaction", "run-compaction", "fail-compaction files",
    "fail-compaction metadata", "rollback-service compaction", "compact-index", "compact-index clean",
    "plan-compact-index", "fail-compact-index", "rollback-service index", "clean commits 1", "clean time 1",
    "clean versions 1", "archive 2", "archive 3", "cluster d0", "overwrite d1", "begin fresh d1", "die",
    "undo", "half", "savepoint", "delete-savepoints", "insert-into", "empty", "rollback",
)  # fmt: skip
_SCENES: Final = 14
_KEYS, _DAYS = 6, 3


def with_services(seed: int) -> Script:
    """The script of a seed with services on, and scenes of theirs in between."""
    script, dice = generate(seed), Random(seed * 7_919 + 1)
    events = list(script.events)
    time = 1_000
    for _ in range(_SCENES):
        at = dice.randrange(len(events) + 1)
        time += 10
        events[at:at] = _scene(dice, time)
    return replace(script.of(events), setup=replace(script.setup, services=True))


def _scene(dice: Random, time: int) -> list[Event]:
    """A few epochs, so that there is something to do, and then what happens to it."""
    scene: list[Event] = []
    for number in range(dice.randint(1, 3)):
        key, day = f"k{dice.randrange(_KEYS)}", f"d{dice.randrange(_DAYS)}"
        scene += [("feed", "up", key, day, str(time + number)), *_rounds(dice.randint(2, 5))]
    roll = dice.random()
    if roll < 0.45:
        verb = dice.choice(("crash", "crash", "freeze"))
        nth, place = dice.choice((1, 1, 1, 2, 3)), dice.choice(_PLACES)
        scene += [(verb, "coordinator", str(nth), _OR_BEFORE.get(place, place) if time % 20 else place)]
        scene += _rounds(dice.randint(4, 10))
        scene += (
            [("replace", "coordinator"), *_rounds(3), ("thaw", "coordinator")] if verb == "freeze" else []
        )
    elif roll < 0.9:
        for _ in range(dice.randint(1, 3)):
            scene += [("foreign", *dice.choice(_FOREIGN).split()), *_rounds(dice.randint(0, 4))]
    else:
        scene += [dice.choice((("replace", "coordinator"), ("kill", "writer"), ("wait", "1500")))]
    return [*scene, *_rounds(dice.randint(1, 4))]


def _rounds(count: int) -> list[Event]:
    return [("round",)] * count
