"""A timeline from the names in its folder: which instants there are, and whose files count."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

_NAME: Final = re.compile(r"^(\d{17})(?:_(\d{17}))?\.(\w+)(?:\.(requested|inflight))?$")
_BUILDS: Final = "0" * 14
SAVEPOINT: Final = "savepoint"
# What a pending action of this name is called when it is done.
DONE_AS: Final[Mapping[str, str]] = {
    "compaction": "commit",
    "logcompaction": "deltacommit",
    "clustering": "replacecommit",
}
WRITES: Final = frozenset({
    "commit", "deltacommit", "replacecommit", "compaction", "logcompaction", "clustering",
})  # fmt: skip
"""What writes data files."""


class Instant(NamedTuple):
    """``action``: the word of its requested file where there is one, so that a compaction is told from a
    commit. ``completion`` None: pending. ``inflight``: there is an inflight file, or it is done.
    """

    requested: str
    action: str
    completion: str | None
    inflight: bool = True

    @property
    def word(self) -> str:
        """The action as the completed file's name has it."""
        return DONE_AS.get(self.action, self.action)

    @property
    def builds(self) -> bool:
        """Whether it built an index, or the whole metadata table: such instants are numbers, no times."""
        return self.requested.startswith(_BUILDS)

    @property
    def name(self) -> str:
        """The completed file's name."""
        return f"{self.requested}_{self.completion}.{self.word}"


@lru_cache(maxsize=4096)
def parse_name(name: str) -> tuple[str, str | None, str, str] | None:
    """Requested time, completion time, action and state of a timeline file's name."""
    match = _NAME.match(name)
    if match is None:
        return None
    requested, completion, word, state = match.groups()
    if word == "inflight":
        word, state = "commit", "inflight"
    return requested, completion, word, state or "completed"


@dataclass(frozen=True)
class Timeline:
    """``instants``: by requested time, savepoints apart. ``savepoints``: requested times that are kept.
    ``archived``: requested -> completion time of what went to the history.
    """

    instants: Mapping[str, Instant]
    savepoints: frozenset[str] = frozenset()
    archived: Mapping[str, str] = field(default_factory=dict)

    def completed(self, *actions: str) -> list[Instant]:
        """Completed instants, of the given actions only where some are given, by requested time."""
        found = (each for each in self.instants.values() if each.completion is not None)
        return sorted(each for each in found if not actions or each.action in actions)

    def pending(self, *actions: str) -> list[Instant]:
        """Requested and inflight ones, by requested time."""
        found = (each for each in self.instants.values() if each.completion is None)
        return sorted(each for each in found if not actions or each.action in actions)

    def writes(self) -> list[Instant]:
        """Completed instants that wrote data files, by requested time."""
        return self.completed(*WRITES)

    @cached_property
    def start(self) -> str | None:
        """The first instant that writes, in whatever state: what is older, and not pending, is committed. A
        savepointed one is a start like any other.
        """
        return min((each.requested for each in self.instants.values() if each.action in WRITES), default=None)

    def counts(self, requested: str) -> bool:
        """Whether the files of an instant are committed."""
        instant = self.instants.get(requested)
        if instant is not None:
            return instant.completion is not None
        return self.start is not None and requested < self.start

    def completion(self, requested: str) -> str | None:
        """When a committed instant completed; one that the history does not know either, at its own time."""
        instant = self.instants.get(requested)
        if instant is not None:
            return instant.completion
        return self.archived.get(requested, requested) if self.counts(requested) else None

    @cached_property
    def newest(self) -> str:
        """The greatest time of all on the timeline, "" for an empty one."""
        times = (time for each in self.instants.values() for time in (each.requested, each.completion))
        return max((time for time in times if time is not None), default="")


def parse_timeline(names: Iterable[str], archived: Mapping[str, str] | None = None) -> Timeline:
    """From the names in a timeline folder."""
    instants: dict[str, Instant] = {}
    savepoints: set[str] = set()
    words: dict[str, str] = {}
    for name in names:
        parts = parse_name(name)
        if parts is None:
            continue
        requested, completion, word, state = parts
        if word == SAVEPOINT:
            savepoints |= {requested} if completion is not None else set()
            continue
        if completion is None:
            words[requested] = word
        before = instants.get(requested)
        if before is not None and completion is None:
            completion = before.completion
        inflight = state != "requested" or (before is not None and before.inflight)
        instants[requested] = Instant(requested, word, completion, inflight)
    for requested, word in words.items():
        instants[requested] = instants[requested]._replace(action=word)
    return Timeline(instants, frozenset(savepoints), archived or {})
