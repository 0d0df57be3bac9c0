"""Which completed instants of the data timeline have been taken into account, by identity.

Order cannot say it: Hudi's writers take completion times from their own clocks, so a commit may become
visible after another one and complete *before* it (docs/adr/0005-seen-by-identity.md). The identity of an
instant is its requested time, completion time and action: the name of its completed timeline file,
`<requested>_<completion>.<action>`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

_TIME_LENGTH: Final = 17
# Of a cache that reflects nothing, and before the first commit.
BEGINNING: Final = "0"
_UNDOES: Final = "rollback"


def requested_of(name: str) -> str:
    """The requested time in an identity."""
    return name[:_TIME_LENGTH]


def completion_of(name: str) -> str:
    """The completion time in an identity."""
    return name[_TIME_LENGTH + 1 : 2 * _TIME_LENGTH + 1]


def action_of(name: str) -> str:
    """The action in an identity, by the word of completed files (a compaction is a ``commit``)."""
    return name.rpartition(".")[2]


def name_of(requested: str, completion: str, action: str) -> str:
    """The identity of a completed instant."""
    return f"{requested}_{completion}.{action}"


class SeenInstants(msgspec.Struct):
    """``names``: identities on the active timeline that need no rewind any more. ``start``: the greatest
    requested time that the timeline was ever seen to start with: what is archived and was requested before
    it, was seen. ``newest``: no instant that was ever seen completed later (rollbacks aside).
    """

    start: str = ""
    names: set[str] = set()
    newest: str = BEGINNING

    def add(self, names: Iterable[str]) -> None:
        """Takes instants into account."""
        fresh = list(names)
        self.names.update(fresh)
        self.newest = max([self.newest, *(completion_of(n) for n in fresh if action_of(n) != _UNDOES)])

    def look(self, start: str, added: Iterable[str], removed: Iterable[str]) -> None:
        """What a `TimelineSeen` says."""
        self.start = max(self.start, start)
        self.names.difference_update(removed)
        self.add(added)


class Known(msgspec.Struct, frozen=True):
    """What a cache of the table must know of the fold, as of one moment.

    ``names`` None: before the first look (the ledger was begun by a version that knew no identities); then
    what completed at or before ``handled`` was seen. ``committed``: instant of our last commit with rows.
    A stamp that was written under a generation below ``stamps_from`` says nothing any more.
    """

    committed: str | None
    names: frozenset[str] | None
    handled: str
    generation: int
    stamps_from: int

    def has_seen(self, name: str) -> bool:
        """Whether the instant of this identity was taken into account."""
        return completion_of(name) <= self.handled if self.names is None else name in self.names


def newest_seen(known: Known, shown: Mapping[str, str]) -> str:
    """The greatest completion time of what is seen and shown; ``shown``: identity -> completion time."""
    seen = (time for name, time in shown.items() if known.has_seen(name) and action_of(name) != _UNDOES)
    return max(seen, default=BEGINNING)
