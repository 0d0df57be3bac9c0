"""Worlds whose tables have a record index that is divided by partition: the worlds of the seeds, with
services or without, in which rows lie in more partitions, deletes name theirs or do not, and partitions
appear while somebody dies, comes, leaves or does the same.

What is drawn here is drawn apart, so the rest of such a world is that of its seed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Final

from tests.simulation.world.generate import generate
from tests.simulation.world.script import Event, Script
from tests.simulation.world.serviced import with_services

_WITH_SERVICES: Final = 0.4
_ELSEWHERE: Final = 0.4
_NAMED: Final = 0.85
_SCENES: Final = 5
_TAKEN_BACK: Final = 0.35
_KEYS, _DAYS = 6, 6
_NOT_HERE: Final = (
    ("foreign", "build"), ("feed", "long"), ("index", "create"), ("index", "repair"), ("index", "drop"),
)  # fmt: skip
_BEHIND_THE_DECISION: Final = (
    "after_commit_decided", "before_metadata_completed", "before_metadata_completed",
    "after_metadata_commit", "after_data_commit", "before_epoch_committed", "storage.publish",
    "storage.sync_dir .hoodie/metadata",
)  # fmt: skip
_FILES_ARE_OUT: Final = (
    "before_metadata_completed", "before_metadata_completed", "storage.sync_dir .hoodie/metadata",
)  # fmt: skip
_AFTER_VOID: Final = (
    "after_voided", "after_voided", "storage.delete .hoodie/metadata", "storage.list .hoodie/metadata",
)  # fmt: skip
_BEFORE_IT: Final = (
    "after_epoch_planned", "after_inflight", "before_commit_decided", "after_voided", "after_rolled_back",
    "storage.delete",
)  # fmt: skip
_OF_WRITERS: Final = ("storage.publish", "storage.list", "call Report", "answer Report", "storage.read")
_OF_ASSIGNERS: Final = (
    "assign_claim", "assign_entry", "assign_commit", "assign_committed", "rocks.write", "rocks.get",
    "storage.list", "storage.read", "call LeaseFileGroups",
)  # fmt: skip
_OTHERS: Final = ("compact", "compact-index clean", "compact-index", "archive 1", "clean commits 1", "empty")


def partitioned(seed: int) -> Script:
    """The script of a seed for a table with a partitioned record index."""
    dice = Random(f"partitioned index of {seed}")
    script = with_services(seed) if _has_services(dice) else generate(seed)
    shards, units = script.setup.lanes + dice.choice((0, 0, 1, 2)), dice.choice((0, 0, 1, 2))
    setup = replace(script.setup, index="partitioned", shards=shards, units=units)
    if setup.partition == "none":
        # Such a table is refused.
        setup = replace(setup, partition="day")
    setup = replace(setup, secondary=False)
    author = _Author(dice, script.events)
    author.adds_taken_back(Random(f"taken back of {seed}"))
    return Script(setup, tuple(author.events), seed)


def has_services(seed: int) -> bool:
    """Whether services run in that world, which takes some seconds then."""
    return _has_services(Random(f"partitioned index of {seed}"))


def _has_services(dice: Random) -> bool:
    return dice.random() < _WITH_SERVICES


class _Author:
    def __init__(self, dice: Random, events: tuple[Event, ...]) -> None:
        self._dice, self._last = dice, dict[str, str]()
        self._at, self._fresh = 0, _DAYS
        kept = [each for each in events if each[:2] not in _NOT_HERE]
        self.events = [self._rewritten(*each) for each in kept]
        scenes: tuple[Callable[[], list[Event]], ...] = (
            self._begun_by_both,
            self._coordinator_dies,
            self._coordinator_dies,
            self._half_begun,
            self._others_in_flight,
            self._writer_dies,
            self._assigners_change,
            self._restored,
        )
        for _ in range(dice.randint(2, _SCENES)):
            at = dice.randint(len(self.events) // 4, len(self.events))
            self.events[at:at] = dice.choice(scenes)()

    def adds_taken_back(self, dice: Random) -> None:
        """Some worlds get one more scene, which is drawn apart."""
        if dice.random() < _TAKEN_BACK:
            self._dice = dice
            at = dice.randint(len(self.events) // 2, len(self.events))
            self.events[at:at] = self._taken_back()

    # ------------------------------------------------------------ the events of the seed

    def _rewritten(self, verb: str, *words: str) -> Event:
        """More partitions; most deletes name one, in most cases where the key was written last."""
        dice = self._dice
        if verb == "foreign" and words[0] == "insert" and dice.random() < _ELSEWHERE:
            return (verb, "insert", self._day())
        if verb != "feed" or words[0] not in ("up", "del", "null"):
            return (verb, *words)
        kind, key, *more = words
        if kind == "up":
            day, at = more
            day = self._day() if dice.random() < _ELSEWHERE else day
            self._at, self._last[key] = max(self._at, int(at)), day
            return (verb, kind, key, day, at)
        if dice.random() >= _NAMED:
            return (verb, *words)
        day = self._last.get(key, "d0") if dice.random() < 0.8 else self._day()
        return (verb, "del", key, more[0] if more else str(self._at), day)

    def _day(self) -> str:
        return f"d{self._dice.randrange(_DAYS)}"

    # ------------------------------------------------------------ scenes

    def _new_day(self) -> str:
        """In most cases a partition that nobody has begun."""
        if self._dice.random() < 0.2:
            return self._day()
        self._fresh += 1
        return f"d{self._fresh}"

    def _rounds(self, low: int, high: int) -> list[Event]:
        return [("round",)] * self._dice.randint(low, high)

    def _epoch(self, day: str, *, rounds: tuple[int, int] = (4, 8)) -> list[Event]:
        """Rows of the partition, and perhaps of others."""
        dice = self._dice
        self._at += 1
        days = [day, *(self._day() for _ in range(dice.choice((0, 1, 2))))]
        fed: list[Event] = [("feed", "up", f"k{dice.randrange(_KEYS)}", each, str(self._at)) for each in days]
        return [*fed, ("hurry",), *self._rounds(*rounds)]

    def _by_others(self) -> list[Event]:
        what = self._dice.choice(_OTHERS).split()
        return [("foreign", *what)] if self._dice.random() < 0.4 else []

    def _begun_by_both(self) -> list[Event]:
        """The other engine begins a partition while an epoch of ours that begins it is written."""
        day = self._new_day()
        scene = [*self._epoch(day, rounds=(1, 4)), ("foreign", "insert", day), *self._rounds(3, 8)]
        return [*scene, *self._epoch(day)]

    def _coordinator_dies(self) -> list[Event]:
        """At a place before the decision or behind it; the lock may be taken from the dead one."""
        dice, day = self._dice, self._new_day()
        where = dice.choice(dice.choice((_BEHIND_THE_DECISION, _BEHIND_THE_DECISION, _BEFORE_IT)))
        verb, nth = dice.choice(("crash", "crash", "freeze")), dice.choice((1, 1, 1, 2, 3))
        scene: list[Event] = [(verb, "coordinator", str(nth), *where.split())]
        scene += self._epoch(day, rounds=(3, 5))
        if dice.random() < 0.35:
            scene += [("kill", "coordinator")] if verb == "crash" else []
            scene += [("lose-lock",), *dice.choice(([], [("foreign", "insert", day)], self._by_others()))]
        if verb == "freeze":
            scene += [("replace", "coordinator"), *self._rounds(1, 5), ("thaw", "coordinator")]
        return [*scene, *self._rounds(2, 6), *self._by_others(), *self._epoch(day)]

    def _taken_back(self) -> list[Event]:
        """The files of a partition that an epoch begins are out; then the lock is taken away, and a commit of
        the other engine makes the attempt void. Time passes between the steps of the next coordinator, which
        may die, too, and the other engine begins the same partition as soon as it can.
        """
        dice, day = self._dice, self._new_day()
        where = dice.choice(_FILES_ARE_OUT)
        scene = [("crash", "coordinator", "1", *where.split()), *self._epoch(day, rounds=(4, 7))]
        commit = dice.choice((("empty",), ("insert", self._day()), ("update", f"k{dice.randrange(_KEYS)}")))
        scene += [("kill", "coordinator"), ("lose-lock",), ("foreign", *commit)]
        verb = dice.choice(("", "", "crash", "freeze"))
        if verb:
            scene.append(
                (verb, "coordinator", str(dice.choice((1, 1, 2))), *dice.choice(_AFTER_VOID).split())
            )
        for _ in range(dice.randint(4, 8)):
            scene += [("step", "coordinator"), ("wait", str(dice.choice((10, 250, 400))))]
            scene += [("foreign", "insert", day)] if dice.random() < 0.5 else []
        if verb == "freeze":
            scene += [("replace", "coordinator"), *self._rounds(1, 4), ("thaw", "coordinator")]
        return [*scene, *self._rounds(2, 6), *self._epoch(day)]

    def _half_begun(self) -> list[Event]:
        """The other engine dies while it begins a partition; somebody rolls it back, sooner or later."""
        dice, day = self._dice, self._new_day()
        before = self._epoch(day, rounds=(0, 3)) if dice.random() < 0.5 else []
        what = dice.choice(("half-begun", "half-begun", "half"))
        scene: list[Event] = [*before, ("foreign", what, day), *self._rounds(0, 5)]
        scene += self._epoch(day, rounds=(1, 4)) if dice.random() < 0.6 else []
        return [*scene, ("foreign", "undo"), *self._rounds(1, 5), *self._epoch(day)]

    def _others_in_flight(self) -> list[Event]:
        """A write of the other engine's is in flight into a partition that an epoch of ours begins."""
        dice, day = self._dice, self._new_day()
        scene: list[Event] = [("foreign", "begin", "fresh", day), *self._epoch(day, rounds=(1, 8))]
        end = dice.choice((["finish"], ["finish"], ["die", "undo"], ["rollback"]))
        return [*scene, *(("foreign", each) for each in end), *self._rounds(1, 4), *self._epoch(day)]

    def _writer_dies(self) -> list[Event]:
        """Or its report is lost, late or comes twice, or tasks run twice, or fail."""
        dice, day = self._dice, self._new_day()
        faults: list[Event] = [
            (dice.choice(("crash", "freeze")), "writer", "1", *dice.choice(_OF_WRITERS).split()),
            ("call-fault", "writer", "ReportWritten", dice.choice(("lost", "late", "answer", "twice"))),
            ("speculate",),
            ("fail-job",),
        ]
        fault = dice.choice(faults)
        scene = [fault, *self._epoch(day, rounds=(3, 6)), ("late-calls",)]
        if fault[0] == "freeze":
            scene += [("replace", "writer"), *self._rounds(1, 4), ("thaw", "writer"), ("zombie", "writer")]
        return [*scene, *self._rounds(1, 4), *self._epoch(day)]

    def _assigners_change(self) -> list[Event]:
        """They join, leave, die, freeze, and lose their disks; meanwhile commits of ours and of others."""
        dice = self._dice
        scene: list[Event] = []
        for _ in range(dice.randint(2, 4)):
            seat = f"assigner-{dice.randrange(2)}"
            scene += self._epoch(self._new_day() if dice.random() < 0.5 else self._day(), rounds=(1, 5))
            scene += dice.choice((
                [("leave", seat)], [("kill", seat)], [("lose-disk", seat)], [("step", "assigner-2")],
                [("crash", seat, "1", *dice.choice(_OF_ASSIGNERS).split())],
                [("freeze", seat, "1", *dice.choice(_OF_ASSIGNERS).split()), *self._rounds(1, 3),
                 ("replace", seat), *self._rounds(1, 4), ("thaw", seat), ("zombie", seat)],
                [("foreign", "update", f"k{dice.randrange(_KEYS)}")],
                [("foreign", "delete", f"k{dice.randrange(_KEYS)}")],
                [("foreign", "insert", self._new_day())],
            ))  # fmt: skip
        return [*scene, *self._epoch(self._day())]

    def _restored(self) -> list[Event]:
        """The other engine begins partitions and takes them back."""
        dice, day = self._dice, self._new_day()
        scene: list[Event] = [("foreign", "savepoint")] if dice.random() < 0.5 else []
        scene += [("foreign", "insert", day), *self._rounds(0, 3)]
        scene += self._epoch(day, rounds=(0, 3)) if dice.random() < 0.3 else []
        scene += [("foreign", dice.choice(("restore", "restore", "rollback-own")))]
        return [*scene, *self._rounds(1, 4), *self._epoch(day)]
