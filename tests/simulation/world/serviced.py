"""Worlds in which Tidemark's services run beside another engine's, and die at each of their steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Final

from tests.simulation.world.generate import generate
from tests.simulation.world.script import Event, Script
from tidemark.commit_coordinator.failpoints import OF_A_ROLLBACK, SERVICE_FAILPOINTS

# Places that came later, in the stead of one that was there: so the worlds of known seeds stay as they are,
# but for those that come to such a place.
_OR_BEFORE: Final = {
    "after_service_voided": ("before_service_voided",),
    "in_take_back": ("after_tickets_revoked",),
    "after_service_completed": tuple(sorted(OF_A_ROLLBACK)),
}
_PLACES: Final = (
    *sorted({each.value for each in SERVICE_FAILPOINTS}.difference(*_OR_BEFORE.values())),
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
_HALF: Final = {
    "after_commit_decided": "after_metadata_commit",
    "after_service_decided": "after_service_metadata",
}
"""Where a coordinator dies before its successor meets refused storage: behind a decision, and, in every
second scene, between the two commits of what was decided.
"""
_REFUSED: Final = {
    "coordinator": (
        "", "", "storage.publish", "attempt-", "service-", "storage.sync_dir .hoodie/metadata",
        "storage.sync_dir .hoodie/timeline", "storage.sync_dir", "storage.create", "storage.delete",
        "storage.delete_tree", "storage.link", "storage.touch", "storage.rename", "history", "lock-", "lock-",
    ),
    "writer": ("storage.publish", "storage.write_in_pieces", ""),
}  # fmt: skip
"""Words of places at which the storage refuses a call that writes; "": any."""
_MERGES: Final = ("merges_wave", "merges_begun", "merges_reported")
"""Where a writer dies in the stead of a kill, in every second scene."""
_SCENES, _REFUSALS = 14, 8
_KEYS, _DAYS = 6, 3


def with_services(seed: int) -> Script:
    """The script of a seed with services on, and scenes of theirs in between."""
    return _in_between(generate(seed), Random(seed * 7_919 + 1), _SCENES, 1_000, _scene)


def with_refusals(seed: int) -> Script:
    """The same, and scenes in which the storage refuses a call, most of them of an epoch's or a service's
    commit, and another engine goes on with what is there then.
    """
    return _in_between(with_services(seed), Random(f"{seed} refused"), _REFUSALS, 2_000, _refusal)


def _in_between(
    script: Script, dice: Random, count: int, time: int, scene: Callable[[Random, int], list[Event]]
) -> Script:
    """``time``: about the ordering value of what the scenes feed."""
    events = list(script.events)
    for _ in range(count):
        at = dice.randrange(len(events) + 1)
        time += 10
        events[at:at] = scene(dice, time)
    return replace(script.of(events), setup=replace(script.setup, services=True))


def _refusal(dice: Random, time: int) -> list[Event]:
    """Where a word is of a folder that comes in many calls, the nth of them lies anywhere in a commit. In one
    of four the call is one of the successor of a coordinator that died behind a decision, or between the
    commits of both tables.
    """
    scene = _epochs(dice, time)
    seat = dice.choice(("coordinator", "coordinator", "coordinator", "writer"))
    verb, nth = dice.choice(("fail-before", "fail-before", "fail-after")), dice.choice((1, 1, 2, 3, 5, 8))
    if dice.random() < 0.25:
        place = dice.choice(tuple(_HALF))
        place = place if time % 20 else _HALF[place]
        scene += [("crash", "coordinator", "1", place), *_rounds(dice.randint(3, 7))]
        scene += [("step", "coordinator")] * dice.randint(0, 2)
    scene += [(verb, seat, str(nth), *dice.choice(_REFUSED[seat]).split())]
    scene += [("step", seat)] if dice.random() < 0.5 else _rounds(dice.randint(1, 4))
    for _ in range(dice.randint(0, 2)):
        scene += [("foreign", *dice.choice(_FOREIGN).split()), *_rounds(dice.randint(0, 3))]
    return [*scene, *_rounds(dice.randint(1, 6))]


def _scene(dice: Random, time: int) -> list[Event]:
    """A few epochs, and then what happens to what there is to do."""
    scene = _epochs(dice, time)
    roll = dice.random()
    if roll < 0.45:
        verb = dice.choice(("crash", "crash", "freeze"))
        nth, place = dice.choice((1, 1, 1, 2, 3)), dice.choice(_PLACES)
        later = _OR_BEFORE.get(place, (place,))
        place = later[time // 20 % len(later)] if time % 20 else place
        scene += [(verb, "coordinator", str(nth), place)]
        scene += _rounds(dice.randint(4, 10))
        scene += (
            [("replace", "coordinator"), *_rounds(3), ("thaw", "coordinator")] if verb == "freeze" else []
        )
    elif roll < 0.9:
        for _ in range(dice.randint(1, 3)):
            scene += [("foreign", *dice.choice(_FOREIGN).split()), *_rounds(dice.randint(0, 4))]
    else:
        event: Event = dice.choice((("replace", "coordinator"), ("kill", "writer"), ("wait", "1500")))
        if event == ("kill", "writer") and time % 20:
            event = ("crash", "writer", "1", _MERGES[time // 20 % len(_MERGES)])
        scene += [event]
    return [*scene, *_rounds(dice.randint(1, 4))]


def _epochs(dice: Random, time: int) -> list[Event]:
    """A few, so that there is something to do."""
    scene: list[Event] = []
    for number in range(dice.randint(1, 3)):
        key, day = f"k{dice.randrange(_KEYS)}", f"d{dice.randrange(_DAYS)}"
        scene += [("feed", "up", key, day, str(time + number)), *_rounds(dice.randint(2, 5))]
    return scene


def _rounds(count: int) -> list[Event]:
    return [("round",)] * count
