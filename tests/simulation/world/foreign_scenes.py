"""What another engine does in a random world: the kinds of it.

Two of four seeds end with some of them, mixed with input and faults (`generate`). Some seeds of
MERGE_ON_READ end with rows in log files whose partition is replaced.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from random import Random
from types import MappingProxyType
from typing import Final, Protocol

from tests.simulation.world.script import Setup

_KEYS, _DAYS = 6, 3
_LEFT_ENTRIES: Final = 0.12
_IN_ATTEMPT: Final = 0.12
_AT_ONCE: Final = 3


class Author(Protocol):
    """Who writes a script down (`generate`)."""

    random: Random
    setup: Setup
    time: int

    def say(self, *words: object) -> None: ...
    def feed(self) -> None: ...
    def work(self, rounds: int) -> None: ...
    def fault(self) -> None: ...


def _key(author: Author) -> str:
    return author.random.choice((*(f"k{n}" for n in range(_KEYS)), "f"))


def _day(author: Author) -> str:
    return f"d{author.random.randrange(_DAYS)}"


def _planned(author: Author) -> None:
    """An attempt is open, in all likelihood, and not written yet."""
    author.feed()
    author.say("hurry")
    author.work(2)
    author.say("step", "coordinator")


def _committed(author: Author) -> None:
    """An epoch of ours is committed, in all likelihood."""
    author.feed()
    author.say("hurry")
    for _ in range(8):
        author.say("round")


def _rows(author: Author) -> None:
    kind = author.random.choice(("insert", "insert-into", "update", "update", "delete", "move"))
    words = {"insert": [_day(author)], "insert-into": [_day(author)], "move": [_key(author), _day(author)]}
    author.say("foreign", kind, *words.get(kind, [_key(author)]))


def _in_flight(author: Author) -> None:
    kind = author.random.choice(("fresh", "fresh", "update", "delete", "move"))
    words = {"fresh": [_day(author)], "move": [_key(author), _day(author)]}
    author.say("foreign", "begin", kind, *words.get(kind, [_key(author)]))
    author.work(author.random.randint(1, 6))
    author.say("foreign", author.random.choice(("finish", "finish", "finish", "die")))
    if author.random.random() < 0.5:
        author.say("foreign", "undo")


def _compaction(author: Author) -> None:
    """Planned, perhaps begun by one who dies, and carried out, each with our work before it."""
    author.say("foreign", "plan-compaction")
    author.work(author.random.randint(1, 6))
    _dead_executor(author, "compaction")
    author.say("foreign", "run-compaction")


def _dead_executor(author: Author, action: str, *words: str) -> None:
    """Some times: somebody began to carry a plan out, and died; perhaps somebody takes back what is left."""
    dice = author.random
    if dice.random() < 0.5:
        return
    author.say("foreign", f"fail-{action}", *words, dice.choice(("files", "files", "metadata")))
    author.work(dice.randint(1, 4))
    author.say("foreign", "undo")
    if dice.random() < 0.5:
        author.say("foreign", "rollback-service", action)
        author.work(dice.randint(0, 3))


def _clean(author: Author) -> None:
    author.say("foreign", author.random.choice(("compact", "update")), _key(author))
    policy = author.random.choice(
        (("commits", 1), ("commits", 2), ("versions", 1), ("versions", 2), ("time", 2))
    )
    if author.random.random() < 0.5:
        author.say("foreign", "plan-clean", *policy)
        _committed(author)
        author.say("foreign", "run-clean")
        return
    author.say("foreign", "clean", *policy)


def _index(author: Author) -> None:
    """Compaction of the metadata table at once, or planned, or begun by one who dies; then archival."""
    dice = author.random
    begun = dice.choice(("", "", "plan-compact-index", "fail-compact-index", "fail-compact-index"))
    if begun:
        author.say("foreign", begun)
        author.work(dice.randint(1, 4))
        if dice.random() < 0.4:
            author.say("foreign", "rollback-service", "index")
            author.work(dice.randint(0, 3))
    author.say("foreign", "compact-index", *dice.choice(([], ["clean"])))
    if author.random.random() < 0.5:
        author.work(1)
        author.say("foreign", "archive", author.random.choice((1, 2)))


def _savepoint(author: Author) -> None:
    author.say("foreign", "savepoint")
    author.work(author.random.randint(1, 4))
    if author.random.random() < 0.7:
        author.say("foreign", "delete-savepoints")


def _clock(author: Author) -> None:
    author.say("foreign", "clock", author.random.choice((0, -150, 150, -700, -5_000, 700, 5_000, 600_000)))
    _rows(author)
    author.work(author.random.randint(0, 4))
    if author.random.random() < 0.7:
        author.say("foreign", "clock", 0)


def _unseen(author: Author) -> None:
    """A commit of its own while an assigner is about to claim lanes: what it knows of the table is older."""
    dice = author.random
    for seat in ("assigner-0", "assigner-1"):
        author.say(dice.choice(("kill", "lose-disk")), seat)
    # Their leases end, and the lanes are dealt out anew.
    author.say("wait", 4_500)
    author.say("round")
    author.say("freeze", "assigner-0", 1, "assign_claim")
    for _ in range(5):
        author.say("round")
    if dice.random() < 0.5:
        author.say("foreign", "clock", dice.choice((-150, -700, -5_000)))
    _rows(author)
    author.say("thaw", "assigner-0")
    author.say("foreign", "clock", 0)
    author.work(dice.randint(1, 4))


def _rollback(author: Author) -> None:
    author.say("foreign", "insert", _day(author))
    author.work(author.random.randint(0, 3))
    author.say("foreign", "rollback-own")


def _replacing(author: Author) -> None:
    if author.random.random() < 0.5:
        _planned(author)
    author.say("foreign", author.random.choice(("overwrite", "drop")), _day(author))


def _clustering(author: Author) -> None:
    author.say("foreign", "plan-clustering", _day(author))
    if author.random.random() < 0.5:
        _committed(author)
    _dead_executor(author, "clustering", _day(author))
    author.say("foreign", "run-clustering")


def _column(author: Author) -> None:
    if author.random.random() < 0.5:
        _planned(author)
    author.say("foreign", "column", _key(author))


def _restore(author: Author) -> None:
    """Of its own commits, those before it among them; then our inserts, updates and deletes go on."""
    dice = author.random
    for _ in range(dice.randint(0, 2)):
        _rows(author)
    author.say("foreign", "restore")
    if dice.random() < 0.8:
        author.say("foreign", "delete-savepoints")
    for _ in range(dice.randint(2, 5)):
        author.feed()
    author.work(dice.randint(1, 5))


KINDS: Final[Mapping[str, Callable[[Author], None]]] = MappingProxyType({
    "rows": _rows,
    "in flight": _in_flight,
    "compaction": _compaction,
    "index": _index,
    "savepoint": _savepoint,
    "clean": _clean,
    "clock": _clock,
    "unseen": _unseen,
    "rollback of its own": _rollback,
    "replacing": _replacing,
    "clustering": _clustering,
    "column": _column,
    "restore": _restore,
})  # fmt: skip


def chosen_kinds() -> list[str]:
    """The kinds that random worlds have: all, or those that `TIDEMARK_FOREIGN` names (by commas)."""
    asked = os.environ.get("TIDEMARK_FOREIGN", "")
    wanted = set(asked.split(",")) if asked else set(KINDS)
    if not wanted <= set(KINDS):
        raise ValueError(f"TIDEMARK_FOREIGN={asked}: the kinds are {', '.join(KINDS)}")
    return [kind for kind in KINDS if kind in wanted]


def foreign_scene(author: Author) -> None:
    """Some of it, beside our work and faults."""
    dice, kinds = author.random, chosen_kinds()
    for _ in range(dice.randint(3, 6)):
        if dice.random() < 0.5:
            _planned(author)
        else:
            author.work(dice.randint(1, 4))
        KINDS[dice.choice(kinds)](author)
        if dice.random() < 0.2:
            author.fault()
    author.work(dice.randint(1, 4))


_CHANGES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType({
    "insert": ("DAY",),
    "insert-into": ("DAY",),
    "update": ("KEY",),
    "delete": ("KEY",),
    "move": ("KEY", "DAY"),
    "clean": ("versions", "1"),
})  # fmt: skip


def has_changes_in_attempts(seed: int) -> bool:
    """Whether the seed has `changes_in_attempts_scene` instead of `foreign_scene`. Drawn from a random stream
    of its own, so that other seeds have the scripts that they had before.
    """
    wanted = Random(f"{seed} changes in attempts").random() < _IN_ATTEMPT
    return wanted and {"rows", "clean"} <= set(chosen_kinds())


def changes_in_attempts_scene(author: Author) -> None:
    """It changes rows, or cleans, between our plan and our writing. What other scenes do of it hardly ever
    meets an attempt, and fewer still one whose keys are there.
    """
    dice = author.random
    for kind in dice.sample(list(_CHANGES), _AT_ONCE):
        key, day = f"k{dice.randrange(_KEYS)}", _day(author)
        _up(author, key, day)
        author.say("hurry")
        for _ in range(6):
            author.say("round")
        if kind == "clean":
            author.say("foreign", "compact")
        _tagged_and_planned(author, key, day)
        author.say("foreign", kind, *({"KEY": key, "DAY": day}.get(word, word) for word in _CHANGES[kind]))
        author.work(dice.randint(1, 4))


def _tagged_and_planned(author: Author, key: str, day: str) -> None:
    """An attempt that nobody writes yet, wherever no fault keeps it from being planned."""
    _up(author, key, day)
    author.say("hurry")
    setup = author.setup
    for stage, count in (("shuffler", setup.shufflers), ("assigner", setup.assigners)):
        for seat in [f"{stage}-{number}" for number in range(count)] * 2:
            author.say("step", seat)
    # Nobody writes as long as the writer takes no step.
    for _ in range(3):
        author.say("wait", 300)
        author.say("step", "coordinator")


def has_left_entries(seed: int, is_log: bool) -> bool:
    """Whether the seed has `left_entries_scene`."""
    wanted = Random(f"{seed} left entries").random() < _LEFT_ENTRIES
    return is_log and wanted and "replacing" in chosen_kinds()


def left_entries_scene(author: Author, seed: int) -> None:
    """The rows of some keys are in log files alone when their partition is replaced: Hudi leaves their index
    entries behind. The keys come again, there or elsewhere, and go.

    Drawn from a random stream of its own, so that other seeds have the scripts that they had before.
    """
    drawn, author.random = author.random, Random(f"{seed} left entries, scene")
    dice, day = author.random, _day(author)
    keys = dice.sample([f"k{n}" for n in range(_KEYS)], _KEYS)
    first = dice.randint(1, 2)
    # All in one partition, so that none has an old version in its base files and lives elsewhere.
    for some in (keys[:first], keys[first:]):
        for key in some:
            _up(author, key, day)
        author.say("hurry")
        for _ in range(8):
            author.say("round")
    if dice.random() < 0.3:
        author.fault()
    if dice.random() < 0.4:
        _planned(author)
    author.say("foreign", dice.choice(("overwrite", "drop", "drop")), day)
    if dice.random() < 0.4:
        _archived(author)
    for _ in range(dice.randint(1, 3)):
        for key in dice.sample(keys[first:], dice.randint(1, 3)):
            _up(author, key, dice.choice((day, _day(author))))
        author.work(dice.randint(1, 8))
        if dice.random() < 0.3:
            author.fault()
        if dice.random() < 0.3:
            _rows(author)
        for key in dice.sample(keys, dice.randint(0, 3)):
            author.say("feed", "null", key)
        author.work(dice.randint(1, 4))
    author.random = drawn


def _up(author: Author, key: str, day: str) -> None:
    author.time += 1
    author.say("feed", "up", key, day, author.time)


def _archived(author: Author) -> None:
    """All commits but the newest, in all likelihood."""
    author.say("foreign", "clean", "versions", 1)
    for words in (("compact-index", "clean"), ("empty",), ("empty",)):
        author.say("foreign", *words)
    author.work(1)
    author.say("foreign", "archive", 1)
    if author.random.random() < 0.5:
        author.say("kill", author.random.choice(("assigner-0", "assigner-1", "coordinator")))
