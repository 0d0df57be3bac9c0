"""Scenes of many steps, which single faults drawn one by one hardly ever put together.

Every fourth seed ends with one (`generate`). Each leads close to a place where a rule of the protocol is all
that helps, with the details drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final, Protocol

_LEASE_MS: Final = 4_000


class Author(Protocol):
    """Who writes a script down (`generate`)."""

    random: Random

    def say(self, *words: object) -> None: ...
    def feed(self) -> None: ...


def long_scene(author: Author, assigners: int) -> None:
    """One of them."""
    scenes: tuple[Callable[[], None], ...] = (
        lambda: _report_of_a_void_attempt(author),
        lambda: _thaw_after_archival(author),
        lambda: _batches_of_a_former_owner(author, [f"assigner-{n}" for n in range(assigners)]),
        lambda: _file_of_a_void_attempt(author),
    )
    author.random.choice(scenes)()


def _rounds(author: Author, count: int) -> None:
    for _ in range(count):
        author.say("round")


def _committed(author: Author) -> None:
    """Everything so far, in all likelihood."""
    author.feed()
    author.say("hurry")
    _rounds(author, 7)


def _report_of_a_void_attempt(author: Author) -> None:
    """It arrives when the next attempt is being written. In which round it is made depends on all before."""
    for rounds in author.random.sample(range(2, 6), 4):
        _committed(author)
        author.say("call-fault", "writer", "ReportWritten", "late")
        author.feed()
        author.say("hurry")
        _rounds(author, rounds)
        author.say("fail-job")
        author.say("step", "writer")
        for _ in range(2):
            author.say("step", "coordinator")
        author.say("wait", 2_000)
        author.say("step", "coordinator")
        author.say("late-calls")
        _rounds(author, 2)


def _thaw_after_archival(author: Author) -> None:
    """A coordinator wakes up when what it was about has been finished, and archived."""
    _committed(author)
    author.say("freeze", "coordinator", author.random.randint(1, 6), "storage.publish")
    author.feed()
    author.say("hurry")
    _rounds(author, 6)
    author.say("replace", "coordinator")
    _rounds(author, 6)
    _committed(author)
    author.say("foreign", "compact-index", *author.random.choice(([], ["clean"])))
    author.say("foreign", "archive")
    author.say("thaw", "coordinator")
    author.say("zombie", "coordinator")
    _rounds(author, 2)


def _batches_of_a_former_owner(author: Author, seats: list[str]) -> None:
    """They arrive behind its successor's, and both go before the epoch is committed: the next owner has to
    tell from the ledger alone what counts; from an empty disk, sometimes.
    """
    dice = author.random
    _committed(author)
    for _ in range(dice.randint(1, 3)):
        author.feed()
    seat = dice.choice(seats)
    author.say("freeze", seat, 1, f"assign_{dice.choice(('begun', 'begun', 'batches'))}")
    _rounds(author, 4)
    author.say("kill", "coordinator")
    author.say("replace", seat)
    _rounds(author, dice.randint(3, 6))
    if dice.random() < 0.7:
        author.say("freeze", "writer", 1, "storage.publish")
    author.feed()
    _rounds(author, 3)
    author.say("thaw", seat)
    author.say("zombie", seat)
    author.say("round")
    for each in seats:
        author.say(dice.choice(("kill", "lose-disk")), each)
    author.say("wait", _LEASE_MS)
    _rounds(author, 6)
    for _ in range(4):
        author.feed()
    _rounds(author, 4)
    author.say("thaw", "writer")
    _rounds(author, 2)


def _file_of_a_void_attempt(author: Author) -> None:
    """A writer wakes up when its attempt is void, or rolled back by another engine."""
    dice = author.random
    _committed(author)
    author.say("freeze", "writer", dice.randint(1, 3), "storage.publish")
    author.feed()
    author.feed()
    author.say("hurry")
    _rounds(author, 5)
    author.say("replace", "writer")
    for _ in range(dice.randint(1, 2)):
        author.say("step", "writer")
    if dice.random() < 0.5:
        author.say("foreign", "rollback")
    else:
        author.say("fail-job")
        author.say("step", "writer")
    for _ in range(dice.randint(2, 4)):
        author.say("step", "coordinator")
    author.say("thaw", "writer")
    author.say("zombie", "writer")
    _rounds(author, 3)
