"""Parses and prints instants and the names of their files. No other module does that.

Lifecycle (the transition table is `TRANSITIONS`; a savepoint starts at INFLIGHT):

    REQUESTED --> INFLIGHT --> COMPLETED        all three files stay in the timeline folder

File names of timeline layout 2 (FORMAT.md, section 3.1), T = requested time, C = completion time:

    requested   T.<action>.requested
    inflight    T.<action>.inflight     but a COPY_ON_WRITE commit's is T.inflight, without the action
    completed   T_C.<action>            but compaction ends as .commit, clustering as .replacecommit,
                                        log compaction as .deltacommit
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tidemark.hudi_format.errors import InvalidTransitionError, UnsupportedTableError


class Action(Enum):
    """The action of an instant, named by Hudi's word in the names of requested and inflight files."""

    COMMIT = "commit"
    DELTA_COMMIT = "deltacommit"
    COMPACTION = "compaction"
    LOG_COMPACTION = "logcompaction"
    CLEAN = "clean"
    ROLLBACK = "rollback"
    REPLACE_COMMIT = "replacecommit"
    CLUSTERING = "clustering"
    INDEXING = "indexing"
    SAVEPOINT = "savepoint"
    RESTORE = "restore"

    @property
    def completed_word(self) -> str:
        """The word in the completed file's name."""
        return _COMPLETED_WORDS.get(self, self.value)

    @property
    def is_write(self) -> bool:
        """Whether the action writes data files; the first such instant is the start of the active
        timeline.
        """
        return self in _WRITE_ACTIONS


WRITTEN: Final = (Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT)
"""A pending instant of one of these is a failed write once its writer is dead. Pending table services are
plans, which are carried out again (FORMAT.md, section 9.1). A pending replacecommit overwrites or deletes
partitions: a clustering is one only once it is completed.
"""
_COMPLETED_WORDS: Final[Mapping[Action, str]] = {
    Action.COMPACTION: "commit",
    Action.CLUSTERING: "replacecommit",
    Action.LOG_COMPACTION: "deltacommit",
}
_WRITE_ACTIONS: Final = frozenset(
    {
        Action.COMMIT,
        Action.DELTA_COMMIT,
        Action.COMPACTION,
        Action.LOG_COMPACTION,
        Action.REPLACE_COMMIT,
        Action.CLUSTERING,
    }
)


class State(Enum):
    """The state of an instant in its lifecycle."""

    REQUESTED = "requested"
    INFLIGHT = "inflight"
    COMPLETED = "completed"


TRANSITIONS: Final[Mapping[State, frozenset[State]]] = {
    State.REQUESTED: frozenset({State.INFLIGHT}),
    State.INFLIGHT: frozenset({State.COMPLETED}),
    State.COMPLETED: frozenset(),
}
assert TRANSITIONS.keys() == set(State)

_TIME_DIGITS: Final = 17
_PENDING: Final = {
    f".{action.value}.{state.value}": (action, state)
    for action in Action
    for state in (State.REQUESTED, State.INFLIGHT)
} | {".inflight": (Action.COMMIT, State.INFLIGHT)}
_COMPLETED: Final = {f".{action.value}": action for action in Action}
_NAME: Final = re.compile(r"^(?P<requested>\d+)(?:_(?P<completion>\d+))?(?P<words>(?:\.\w+)+)$", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class Instant:
    """One state of one action on the timeline. `completion` (17 digits) is set exactly when it is
    COMPLETED.
    """

    requested: str
    action: Action
    state: State
    completion: str | None = None

    def __post_init__(self) -> None:
        if (self.completion is not None) != (self.state is State.COMPLETED):
            raise InvalidTransitionError(
                f"{self}: a completion time goes with COMPLETED and with nothing else"
            )

    @property
    def is_completed(self) -> bool:
        """Whether the instant took effect."""
        return self.state is State.COMPLETED

    @property
    def file_name(self) -> str:
        """The name of this state's file in the timeline folder."""
        if self.state is State.COMPLETED:
            return f"{self.requested}_{self.completion}.{self.action.completed_word}"
        if self.state is State.INFLIGHT and self.action is Action.COMMIT:
            return f"{self.requested}.inflight"
        return f"{self.requested}.{self.action.value}.{self.state.value}"

    def to(self, target: State, completion: str | None = None) -> Instant:
        """The instant in its next state. COMPLETED requires `completion`, which must be after `requested`.

        Raises `InvalidTransitionError` for a step that the lifecycle does not have.
        """
        if target not in TRANSITIONS[self.state]:
            raise InvalidTransitionError(f"{self.file_name}: no step from {self.state.name} to {target.name}")
        if completion is not None and completion <= self.requested:
            raise InvalidTransitionError(
                f"{self.file_name}: completion time {completion} is not after {self.requested}"
            )
        return Instant(self.requested, self.action, target, completion)


def requested_in(name: str) -> str:
    """The requested time that the name of each file of an instant begins with."""
    return name.partition(".")[0].partition("_")[0]


def parse_file_name(name: str) -> Instant | None:
    """The instant that a file of the timeline folder stands for; None for other files (side and temporary
    ones).

    By its completed file's name alone, a compaction looks like a commit, a clustering like a replacecommit
    and a log compaction like a deltacommit; `load_timeline` tells them apart by the requested file. Raises
    `UnsupportedTableError` for an action that this library does not know, and for a completed file without
    completion time, as tables before version 8 have.
    """
    # Nearly all names have times of 17 digits and one of a few endings; these need no pattern.
    requested, rest = name[:_TIME_DIGITS], name[_TIME_DIGITS:]
    if requested.isdecimal() and requested.isascii():
        if (pending := _PENDING.get(rest)) is not None:
            return Instant(requested, *pending)
        completion, action = rest[1 : _TIME_DIGITS + 1], _COMPLETED.get(rest[_TIME_DIGITS + 1 :])
        if action is not None and rest[0] == "_" and completion.isdecimal() and completion.isascii():
            return Instant(requested, action, State.COMPLETED, completion)
    match = _NAME.match(name)
    if match is None:
        return None
    requested, completion = match["requested"], match["completion"]
    words = match["words"][1:].split(".")
    if completion is not None:
        return (
            Instant(requested, _action(words[0], name), State.COMPLETED, completion)
            if len(words) == 1
            else None
        )
    if words == ["inflight"]:
        return Instant(requested, Action.COMMIT, State.INFLIGHT)
    if len(words) == 2 and words[1] in ("requested", "inflight"):
        return Instant(requested, _action(words[0], name), State(words[1]))
    if len(words) == 1:
        raise UnsupportedTableError(
            f"timeline file {name!r} has no completion time, as in table versions before 8",
            "Upgrade the table to version 9 with Hudi's own upgrade procedure",
        )
    return None


def _action(word: str, name: str) -> Action:
    try:
        return Action(word)
    except ValueError as error:
        raise UnsupportedTableError(
            f"timeline file {name!r} is of the unknown action {word!r}",
            "The table was written by a newer Hudi: use a release of Tidemark that knows it",
        ) from error
