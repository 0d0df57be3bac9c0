"""Worlds other than the usual one: how the input is partitioned and encoded, what the table is like, what an
operator has to do.

Drawn from a random stream of their own, so that a seed without any of it has the world that it always had,
and one with it the same events, with few more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from types import MappingProxyType
from typing import Final

from tests.simulation.world.script import Event, Setup

_CHANCE: Final = 0.35
_KEYS: Final = 6
QUOTED: Final = frozenset({11, 23, 91, 236, 2000, 2001, 2008, 2013, 2032})
"""Seeds that docs/simulation.md quotes for what their world shows: they keep the usual one."""

_Drawn = tuple[Setup, list[Event]]
_Draw = Callable[[Random, Setup, list[Event]], _Drawn]


def _shard(_: Random, setup: Setup, events: list[Event]) -> _Drawn:
    return replace(setup, partitioning="shard", inputs=setup.lanes, topics=1), events


def _topics(_: Random, setup: Setup, events: list[Event]) -> _Drawn:
    return replace(setup, topics=1 if setup.is_sharded else 2), events


def _partition(dice: Random, setup: Setup, events: list[Event]) -> _Drawn:
    return replace(setup, partition=dice.choice(("none", "two"))), events


def _keys(_: Random, setup: Setup, events: list[Event]) -> _Drawn:
    return replace(setup, keys=2), events


def _format(dice: Random, setup: Setup, events: list[Event]) -> _Drawn:
    kinds = ("avro", "protobuf", "debezium-json", "debezium-avro")
    return replace(setup, format=dice.choice(kinds)), events


def _batches(dice: Random, setup: Setup, events: list[Event]) -> _Drawn:
    return replace(setup, batch_bytes=dice.choice((1, 300, 2_000))), events


def _lost(dice: Random, setup: Setup, events: list[Event]) -> _Drawn:
    """Up to two batches that nobody can read; an operator looks sooner or later, at rest at the latest."""
    for _ in range(dice.choice((1, 1, 2))):
        at = dice.randrange(len(events) + 1)
        rounds = [("round",)] * 5
        watched = [*rounds, ("wait", "2500"), *rounds, ("wait", "1500"), *rounds]
        lost = ("feed", "lost", f"k{dice.randrange(_KEYS)}", str(dice.choice((1, 1, 3))))
        more = dice.choice(([], [], [*watched, ("skip",)]))
        events = [*events[:at], lost, *more, *events[at:]]
    return setup, events


def _ended_tombstones(dice: Random, setup: Setup, events: list[Event]) -> _Drawn:
    """A delete, and much later an event that is older than it, of keys of their own; the other keys' deletes
    end, too. Their old rows have to leave the file slices first: another engine compacts.
    """
    ttl_ms = dice.choice((1, 1_000, 20_000))
    for number in range(dice.choice((1, 2))):
        at, key = dice.randrange(len(events) + 1), f"t{number}"
        rounds = [("hurry",), *[("round",)] * 8]
        scene: list[Event] = [("feed", "up", key, "d0", "100"), *rounds, ("feed", "del", key, "105"), *rounds]
        scene += [("foreign", "compact")] * dice.choice((1, 1, 0))
        scene += [("wait", str(ttl_ms + 500)), *rounds, ("feed", "up", key, "d1", "102"), *rounds]
        events = [*events[:at], *scene, *events[at:]]
    return replace(setup, ordered=True, ttl_ms=ttl_ms), events


def _grown(dice: Random, setup: Setup, events: list[Event]) -> _Drawn:
    at = dice.randrange(len(events) + 1)
    more = range(dice.choice((0, 2)))
    after: list[Event] = [("feed", "up", f"k{n}", f"d{n % 3}", str(90 + n)) for n in more]
    return setup, [*events[:at], ("grow",), *after, *events[at:]]


KINDS: Final[Mapping[str, _Draw]] = MappingProxyType({
    "input partitioned by lane": _shard,
    "several topics": _topics,
    "partition columns": _partition,
    "composite key": _keys,
    "format": _format,
    "small batches": _batches,
    "unreadable batches": _lost,
    "tombstones end": _ended_tombstones,
    "schema grows": _grown,
})  # fmt: skip


def richer(seed: int, setup: Setup, events: list[Event]) -> _Drawn:
    """The world of the seed: for two of three seeds the given one, else with one, two or three of `KINDS`."""
    dice = Random(f"{seed} richer")
    if seed in QUOTED or dice.random() >= _CHANCE:
        return setup, events
    for kind in dice.sample(list(KINDS), dice.choice((1, 2, 3))):
        setup, events = KINDS[kind](dice, setup, events)
    return setup, events
