"""From a seed to a script: every choice is made here, a run makes none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Final

from tests.simulation.world.foreign_scenes import (
    changes_in_attempts_scene,
    foreign_scene,
    has_changes_in_attempts,
    has_left_entries,
    left_entries_scene,
)
from tests.simulation.world.long_scenes import long_scene
from tests.simulation.world.richer import richer
from tests.simulation.world.script import Event, Script, Setup
from tests.simulation.world.with_secondary import has_secondary, with_secondary
from tests.simulation.world.with_stats import keeps_stats, with_stats

_END_FAULTS: Final = ("DUPLICATED_LATE", "DUPLICATED_LATE_UNNOTICED", "LOST_REQUEST", "LOST_ANSWER",
                      "LATE_REQUEST", "SLOW")  # fmt: skip
_TOPICS: Final = ("keyed", "data", "index", "tombstones", "ledger", "epochs", "dead-letter")
_CALLS: Final = (
    ("writer", "ReportWritten"),
    ("writer", "ReportWritten"),
    ("writer", "Begin"),
    ("writer", "NextEpoch"),
    ("assigner-0", "Renew"),
    ("assigner-0", "LeaseFileGroups"),
    ("assigner-1", "Join"),
    ("shuffler-0", "Renew"),
)
_CALL_FAULTS: Final = ("lost", "answer", "late", "twice")
_FOREIGN: Final = ("insert", "insert", "empty", "rollback", "compact", "compact-index", "compact-index",
                   "archive")  # fmt: skip
_KEYS, _DAYS = 6, 3
_LONG_SCENE_EVERY: Final = 4
_FOREIGN_SCENES: Final = (1, 2)
_NULLABLE: Final = 0.4
"""Of tables with stats or a secondary index: they have them of a column that may be null."""
_PLACES: Final = {
    "coordinator": (
        "before_epoch_planned", "after_epoch_planned", "after_requested", "after_inflight",
        "before_commit_decided", "after_commit_decided", "before_metadata_completed", "after_metadata_commit",
        "after_data_commit", "before_epoch_committed", "after_epoch_committed", "after_voided",
        "after_rolled_back", "storage.publish", "storage.publish", "storage.rename", "storage.create",
        "storage.delete", "storage.list", "storage.read", "producer.commit", "producer.flush",
        "producer.init", "storage.make_dir", "delete_records",
    ),
    "assigner": (
        "failpoint", "assign_claim", "assign_entry", "assign_commit", "assign_committed", "rocks.write",
        "storage.list", "storage.read", "range_reader", "producer.flush", "producer.commit",
        "producer.init", "call LeaseFileGroups", "call Renew", "end_offset",
    ),
    "shuffler": (
        "failpoint", "shuffle_claim", "shuffle_entry", "shuffle_commit", "shuffle_committed",
        "producer.flush", "producer.commit", "call Renew",
    ),
    "writer": (
        "storage.publish", "storage.publish", "storage.list", "storage.create", "range_reader",
        "call Report", "answer Report", "call Begin", "answer Begin", "storage.read",
    ),
}  # fmt: skip


class _Author:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.setup = _setup(self.random, seed)
        self.events: list[Event] = []
        self.time = 10
        self._seats = [
            "coordinator",
            *(f"shuffler-{n}" for n in range(self.setup.shufflers)),
            *(f"assigner-{n}" for n in range(self.setup.assigners)),
            "writer",
        ]

    def say(self, *words: object) -> None:
        self.events.append(tuple(str(word) for word in words))

    def seat(self) -> str:
        weights = [4 if name in ("coordinator", "assigner-0") else 3 for name in self._seats]
        return self.random.choices(self._seats, weights)[0]

    def feed(self) -> None:
        """One record of few keys: upserts, moves, both deletes, late events, broken ones."""
        dice = self.random
        key, roll = f"k{dice.randrange(_KEYS)}", dice.random()
        self.time += 1
        at = max(self.time - dice.choice((0, 0, 0, 1, 3, 10)), 0)
        if roll < 0.62:
            self.say("feed", "up", key, f"d{dice.randrange(_DAYS)}", at)
        elif roll < 0.80:
            self.say("feed", "del", key, at)
        elif roll < 0.95:
            self.say("feed", "null", key)
        else:
            self.say("feed", "bad")

    def cut(self, verb: str, seat: str) -> None:
        """At any place from now, near or far, or at one of a kind that matters."""
        dice = self.random
        if dice.random() < 0.3:
            self.say(verb, seat, int(2 ** dice.uniform(0, 8.5)))
            return
        word = dice.choice(_PLACES[seat.partition("-")[0]])
        self.say(verb, seat, dice.choice((1, 1, 1, 2, 3, 5)), word)

    def work(self, rounds: int) -> None:
        """Something to do, and a few rounds in which it is done."""
        for _ in range(self.random.randint(0, 2)):
            self.feed()
        self._steps(rounds)

    def fault(self) -> None:
        """Something goes wrong, now or soon."""
        faults: list[tuple[int, Callable[[], None]]] = [
            (10, lambda: self._cut_and_work("crash")),
            (14, self._freeze),
            (3, self._fail_job),
            (6, self._lost_lane),
            (5, self._tear),
            (5, self._late_report),
            (4, self._half),
            (5, self._foreign_in_epoch),
            (2, lambda: self._cut_and_work("fail-before")),
            (2, lambda: self._cut_and_work("fail-after")),
            (2, lambda: self.say("kill", self.seat())),
            (3, self._two_at_once),
            (5, self._end_fault),
            (2, lambda: self.say("lose-message", self.random.choice(_TOPICS))),
            (2, lambda: self.say("lose-ack", self.random.choice(_TOPICS))),
            (4, self._call_fault),
            (2, lambda: self._say_and_work("speculate")),
            (3, lambda: self._say_and_work("rewind-wish")),
            (3, self._foreign),
            (2, lambda: self.say("wait", self.random.choice((500, 3_500, 12_000)))),
            (2, lambda: self.say("jump", self.random.choice((-5_000, -200, 1_000, 60_000)))),
            (2, self._membership),
            (1, lambda: self.say("lose-disk", f"assigner-{self.random.randrange(self.setup.assigners)}")),
            (1, lambda: self.say("machine-crash", self.random.randrange(4))),
            (1, self._broker),
            (2, lambda: self.say("markers", self.random.choice((0, 50, 400)))),
            (3, self._reader),
        ]
        self.random.choices([f for _, f in faults], [weight for weight, _ in faults])[0]()

    def _fail_job(self) -> None:
        self.say("fail-job")
        self.feed()
        self.work(self.random.randint(2, 4))

    def _say_and_work(self, *words: str) -> None:
        self.say(*words)
        self.work(self.random.randint(1, 3))

    def _cut_and_work(self, verb: str) -> None:
        self.cut(verb, self.seat())
        self.work(self.random.randint(1, 4))

    def _freeze(self) -> None:
        seat = self.random.choice(("coordinator", self.seat()))
        self.cut("freeze", seat)
        self.work(self.random.randint(1, 4))
        if self.random.random() < 0.8:
            if self.random.random() < 0.4:
                self.say("wait", 3_500)
            self.say("replace", seat)
            self.work(self.random.randint(1, 10))
            if self.random.random() < 0.3:
                self.say("foreign", "compact-index", "clean")
                self.say("foreign", "archive")
        if self.random.random() < 0.8:
            self.say("thaw", seat)
            self.say("zombie", seat)

    def _lost_lane(self) -> None:
        """An owner that does not know of its successor: lanes that a new coordinator deals out at once."""
        dice = self.random
        seat = dice.choice([name for name in self._seats if name.startswith(("assigner", "shuffler"))])
        stage = "assign" if seat.startswith("assigner") else "shuffle"
        for _ in range(dice.randint(1, 3)):
            self.feed()
        self.say(
            "freeze", seat, 1, f"{stage}_{dice.choice(('begun', 'begun', 'entry', 'commit', 'committed'))}"
        )
        for _ in range(4):
            self.say("round")
        self.say("kill", "coordinator")
        self.say("replace", seat)
        for _ in range(dice.randint(2, 6)):
            self.say("round")
            if dice.random() < 0.3:
                self.feed()
        self.say("thaw", seat)
        self.say("zombie", seat)
        self.work(dice.randint(0, 3))

    def _tear(self) -> None:
        """A delayed end arrives in the middle of the next transaction of the same producer."""
        dice = self.random
        stage = dice.choice(("assign", "shuffle"))
        seat = "assigner-0" if stage == "assign" else "shuffler-0"
        fault = dice.choice(("DUPLICATED_LATE", "DUPLICATED_LATE_UNNOTICED", "LATE_REQUEST"))
        self.say("end-fault", f"{stage}-0", fault)
        self.feed()
        self.work(2)
        self.feed()
        self.say("freeze", seat, 1, f"{stage}_{dice.choice(('batches', 'entry', 'commit', 'committed'))}")
        self.say("round")
        self.say("round")
        self.say("late-ends")
        self.say("thaw", seat)
        self.work(2)

    def _late_report(self) -> None:
        """The report of an attempt that is void by the time it arrives, or comes twice."""
        dice = self.random
        self.feed()
        self.say("call-fault", "writer", "ReportWritten", dice.choice(("late", "late", "answer", "twice")))
        self.work(dice.randint(2, 3))
        self.say(
            *dice.choice((("foreign", "rollback"), ("foreign", "insert", "d0"), ("fail-job",), ("round",)))
        )
        for _ in range(dice.randint(1, 3)):
            self.say("step", "coordinator")
        self.say("late-calls")
        self.work(2)

    def _half(self) -> None:
        """Another engine dies between its two commits, while a lane is opened; then it is rolled back."""
        dice = self.random
        seat = f"assigner-{dice.randrange(self.setup.assigners)}"
        # With its cache it would read what is new since its stamp alone; its lanes are free after one lease.
        self.say(dice.choice(("lose-disk", "lose-disk", "kill")), seat)
        self.say("wait", 3_500)
        for _ in range(2):
            self.say("step", "coordinator")
        self.say("step", seat)
        self.say("freeze", seat, dice.choice((1, 1, 2)), "metadata/.hoodie/timeline")
        for _ in range(4):
            self.say("step", seat)
        self.say("foreign", "half", f"d{dice.randrange(_DAYS)}")
        self.say("thaw", seat)
        self._steps(dice.randint(0, 2))
        self.say("foreign", "undo")
        for _ in range(_KEYS):
            self.feed()
        self.work(2)

    def _foreign_in_epoch(self) -> None:
        """Another engine acts while an epoch is written."""
        self.feed()
        self._steps(2)
        self.say("step", "coordinator")
        self.say(
            "foreign",
            self.random.choice(("compact", "compact", "compact-index", "insert", "archive", "rollback")),
        )
        self.work(2)

    def _two_at_once(self) -> None:
        seat = self.random.choice(("coordinator", "coordinator", self.seat()))
        self.say("replace", seat)
        for _ in range(self.random.randint(1, 4)):
            self._steps(1)
            self.say("zombie", seat)

    def _end_fault(self) -> None:
        ids = ["coordinator", *(f"shuffle-{n}" for n in range(2)), *(f"assign-{n}" for n in range(2))]
        self.say("end-fault", self.random.choice(ids), self.random.choice(_END_FAULTS))
        self._steps(self.random.randint(1, 3))
        if self.random.random() < 0.7:
            self.say("late-ends")

    def _call_fault(self) -> None:
        seat, method = self.random.choice(_CALLS)
        self.say("call-fault", seat, method, self.random.choice(_CALL_FAULTS))
        self._steps(self.random.randint(1, 5))
        self.say("late-calls")

    def _foreign(self) -> None:
        dice = self.random
        kind = dice.choice(_FOREIGN)
        if kind == "insert":
            self.say("foreign", kind, f"d{dice.randrange(_DAYS)}")
        elif kind == "compact-index":
            self.say("foreign", kind, *dice.choice(([], ["clean"])))
        else:
            self.say("foreign", kind)

    def _membership(self) -> None:
        if self.random.random() < 0.5:
            self.say("leave", self.seat())
        else:
            self.say("step", "assigner-2")

    def _broker(self) -> None:
        self.say("broker", "down")
        self._steps(self.random.randint(1, 3))
        self.say("broker", "up")

    def _reader(self) -> None:
        self.say("reader", "begin")
        self._steps(self.random.randint(1, 6))
        self.say("reader", "end")

    def _steps(self, count: int) -> None:
        for _ in range(count):
            if self.random.random() < 0.55:
                self.say("round")
            else:
                self.say("step", self.seat())


def generate(seed: int) -> Script:
    """The script of the seed; equal seeds give equal scripts."""
    author = _Author(seed)
    dice = author.random
    calm = dice.random() < 0.05
    for _ in range(dice.randint(2, 5)):
        for _ in range(dice.randint(1, 8)):
            author.feed()
        for _ in range(dice.randint(2, 8)):
            if not calm and dice.random() < 0.45:
                author.fault()
            else:
                author._steps(1)
    place = seed % _LONG_SCENE_EVERY
    if place == _LONG_SCENE_EVERY - 1:
        long_scene(author, author.setup.assigners)
    elif place in _FOREIGN_SCENES and has_changes_in_attempts(seed):
        changes_in_attempts_scene(author)
    elif place in _FOREIGN_SCENES:
        foreign_scene(author)
    if has_left_entries(seed, author.setup.type == "mor"):
        left_entries_scene(author, seed)
    setup, events = richer(seed, author.setup, author.events)
    script = Script(setup, tuple(events), seed)
    if not keeps_stats(seed) and not has_secondary(seed):
        return script
    is_nullable = Random(f"nulls of {seed}").random() < _NULLABLE
    script = replace(script, setup=replace(setup, nullable=is_nullable))
    script = with_stats(script) if keeps_stats(seed) else script
    return with_secondary(script) if has_secondary(seed) else script


def _setup(dice: Random, seed: int) -> Setup:
    lanes = dice.choice((1, 2, 2))
    return Setup(
        type=dice.choice(("mor", "mor", "cow")),
        ordered=dice.random() < 0.7,
        shards=dice.choice((lanes, lanes + 1)),
        lanes=lanes,
        inputs=dice.choice((1, 2)),
        shufflers=dice.choice((1, 1, 2)),
        assigners=dice.choice((1, 2, 2)),
        records=dice.choice((3, 20)),
        uncommitted=dice.choice((1_000, 1_000, 6)),
        interval_ms=dice.choice((0, 50, 300)),
        trim=dice.choice((0, 0, 1, 2)),
        tiny_cache=dice.random() < 0.15,
        ids=seed,
    )
