"""Worlds other than the usual one: how the input is partitioned and encoded, what the table is like, what an
operator has to do.

Drawn from random streams of their own, so that a seed without any of it has the world that it always had,
and one with it the same events, with few more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from types import MappingProxyType
from typing import Final

from tests.simulation.world.script import Event, Setup
from tidemark.commit_coordinator.failpoints import CoordinatorFailpoint

_CHANCE: Final = 0.35
_CHANCE_HARDER: Final = 1 / 7
_CHANCE_STARTS_BACK: Final = 1 / 8
_CHANCE_SMALL: Final = 0.16
_KEYS: Final = 6
_MORE_KEYS: Final = 8
_ENDS: Final = ("decoded", "decoded", "fetched")
_TOGETHER: Final = ((), (), ("epochs",), ("ledger",), ("epochs", "ledger"), ("data", "index", "keyed"))
"""Topics that one broker leads; (): all of them."""
QUOTED: Final = frozenset({3, 11, 12, 23, 91, 2000, 2001, 2008, 2013, 2032})
"""Seeds that docs/simulation.md quotes for what their usual world shows: they keep it."""

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


def _caches(dice: Random, setup: Setup, events: list[Event]) -> _Drawn:
    """Little memory, small blocks, and more keys than the memory holds. Blocks are read where the record
    index was compacted, by who does not have its entries.
    """
    events = list(events)
    for number in range(dice.choice((6, 12))):
        at = dice.randrange(len(events) + 1)
        events.insert(
            at, ("feed", "up", f"c{dice.randrange(_MORE_KEYS)}", f"d{number % 3}", str(100 + number))
        )
    if dice.random() < 0.6:
        at, seat = dice.randrange(len(events) + 1), f"assigner-{dice.randrange(setup.assigners)}"
        scene: list[Event] = [("foreign", "compact-index"), (dice.choice(("lose-disk", "kill")), seat)]
        events = [*events[:at], *scene, *events[at:]]
    return _with_small_caches(dice, setup), events


def _with_small_caches(dice: Random, setup: Setup) -> Setup:
    cache_bytes, block_bytes = dice.choice((1, 1_500, 3_000)), dice.choice((1, 100, 300))
    return replace(setup, cache_bytes=cache_bytes, block_bytes=block_bytes)


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


def _deadly(dice: Random, setup: Setup, events: list[Event]) -> _Drawn:
    """A record that ends whoever reads it. Two readers die, one after the other, each for as long as a lease;
    one that reads the lane apart finds the record. An operator looks at rest, or sooner.
    """
    lease: list[Event] = [("wait", "3500"), *[("round",)] * 3]
    scene: list[Event] = [
        ("feed", "deadly", f"k{dice.randrange(_KEYS)}", dice.choice("113"), dice.choice(_ENDS))
    ]
    scene += [("feed", "up", f"k{n}", f"d{n % 3}", str(90 + n)) for n in range(dice.choice((0, 2, 4)))]
    for _ in range(dice.choice((0, 2, 2, 3))):
        scene += [*[("round",)] * 3, *dice.choice(([], [], [("kill", "coordinator")])), *lease]
    scene += [("feed", "up", f"k{dice.randrange(_KEYS)}", "d0", "99"), *[("round",)] * 5]
    at = dice.randrange(len(events) + 1)
    return setup, [*events[:at], *scene, *dice.choice(([], [], [("skip",)])), *events[at:]]


def _between_commits(dice: Random, setup: Setup, events: list[Event]) -> _Drawn:
    """A coordinator dies, or sleeps for longer than its successor takes, between an epoch's two commits."""
    where = ("coordinator", "1", CoordinatorFailpoint.AFTER_METADATA_COMMIT.value)
    scene: list[Event] = [("feed", "up", f"k{dice.randrange(_KEYS)}", f"d{dice.randrange(3)}", "95")]
    if dice.random() < 0.5:
        scene += [("hurry",), ("crash", *where), *[("round",)] * 12]
    else:
        scene += [("hurry",), ("freeze", *where), *[("round",)] * 8, ("replace", "coordinator")]
        scene += [*[("round",)] * dice.choice((1, 4, 8)), ("thaw", "coordinator"), ("zombie", "coordinator")]
    at = dice.randrange(len(events) + 1)
    return setup, [*events[:at], *scene, *events[at:]]


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


def _starts_back(dice: Random, setup: Setup, events: list[Event]) -> _Drawn:
    """Brokers that were killed forget deletions, each for the topics that it leads; then somebody starts who
    reads the topics from their start.
    """
    events = list(events)
    readers = ["coordinator", *(f"assigner-{number}" for number in range(setup.assigners))]
    if not setup.is_sharded:
        readers += [f"shuffler-{number}" for number in range(setup.shufflers)]
    for _ in range(dice.choice((1, 2, 3))):
        roles = dice.choice(
            ([], [], ["epochs"], ["ledger"], ["epochs", "ledger"], ["data", "index", "keyed"])
        )
        fed = [("feed", "up", f"k{dice.randrange(_KEYS)}", f"d{n % 3}", str(80 + n)) for n in range(3)]
        work = [step for each in fed for step in (each, ("hurry",), *[("round",)] * 5)]
        restarts = [
            (dice.choice(("kill", "kill", "lose-disk", "replace")), dice.choice(("coordinator", *readers)))
            for _ in range(dice.choice((1, 1, 2)))
        ]
        scene: list[Event] = [*work, ("starts-back", str(dice.choice((1, 2, 99))), *roles), *restarts]
        at = dice.randrange(len(events) // 2, len(events) + 1)
        events = [*events[:at], *scene, *[("round",)] * dice.choice((0, 3)), *events[at:]]
    return replace(setup, trim=setup.trim or dice.choice((1, 1, 2))), events


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


HARDER: Final[Mapping[str, _Draw]] = MappingProxyType({
    "small caches": _caches,
    "deadly records": _deadly,
    "dies between two commits": _between_commits,
})  # fmt: skip


def richer(seed: int, setup: Setup, events: list[Event]) -> _Drawn:
    """The world of the seed: for two of three seeds the given one, else with one, two or three of `KINDS`;
    for one of seven with one or two of `HARDER`; in one of eight brokers forget deletions; and so many have
    small batches, or small caches, that a fifth of all have each.
    """
    if seed in QUOTED:
        return setup, events
    dice = Random(f"{seed} richer")
    if dice.random() < _CHANCE:
        for kind in dice.sample(list(KINDS), dice.choice((1, 2, 3))):
            setup, events = KINDS[kind](dice, setup, events)
    dice = Random(f"{seed} harder")
    if dice.random() < _CHANCE_HARDER:
        for kind in dice.sample(list(HARDER), dice.choice((1, 1, 2))):
            setup, events = HARDER[kind](dice, setup, events)
    dice = Random(f"{seed} starts go back")
    if dice.random() < _CHANCE_STARTS_BACK:
        setup, events = _starts_back(dice, setup, events)
    dice = Random(f"{seed} small")
    if dice.random() < _CHANCE_SMALL and not setup.batch_bytes:
        setup, events = _batches(dice, setup, events)
    if dice.random() < _CHANCE_SMALL and not setup.cache_bytes:
        setup = _with_small_caches(dice, setup)
    return setup, events
