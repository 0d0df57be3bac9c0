"""The completed instants of the data timeline that the coordinator has taken into account, by identity.

An order of completion times cannot tell what is new: Hudi's writers take completion times from their own
clocks, so a commit may become visible after another one and have completed *before* it
(docs/adr/0005-seen-by-identity.md). The identity of an instant is its requested time, completion time and
action, which is the name of its completed timeline file: `<requested>_<completion>.<action>`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

_TIME_LENGTH: Final = 17
# The completion time before the first commit, and the stamp of a cache that reflects nothing yet.
BEGINNING: Final = "0"
_UNDOES: Final = "rollback"


def requested_of(name: str) -> str:
    """The requested time that the identity ``name`` begins with."""
    return name[:_TIME_LENGTH]


def completion_of(name: str) -> str:
    """The completion time in the middle of the identity ``name``."""
    return name[_TIME_LENGTH + 1 : 2 * _TIME_LENGTH + 1]


def action_of(name: str) -> str:
    """The action that ends the identity ``name``, as completed files spell it (a compaction: ``commit``)."""
    return name.rpartition(".")[2]


def name_of(requested: str, completion: str, action: str) -> str:
    """The identity of a completed instant."""
    return f"{requested}_{completion}.{action}"


class SeenInstants(msgspec.Struct):
    """Which completed instants need no rewind any more.

    ``names``: identities of those on the active timeline. ``start``: the greatest requested time that the
    active timeline ever began with; an archived instant that was requested before it has been seen.
    ``newest``: the greatest completion time ever seen, rollbacks aside.
    """

    start: str = ""
    names: set[str] = set()
    newest: str = BEGINNING

    def add(self, names: Iterable[str]) -> None:
        """Adds the identities ``names``, and raises ``newest`` to the greatest of their completion times."""
        fresh = list(names)
        self.names.update(fresh)
        self.newest = max([self.newest, *(completion_of(n) for n in fresh if action_of(n) != _UNDOES)])

    def look(self, start: str, added: Iterable[str], removed: Iterable[str]) -> None:
        """Applies the fields of a `TimelineSeen`: start of the timeline, added and removed identities."""
        self.start = max(self.start, start)
        self.names.difference_update(removed)
        self.add(added)


class Known(msgspec.Struct, frozen=True):
    """The part of the fold's state that a cache of the table depends on, copied at one moment.

    ``names`` is None before the first look at the timeline (an earlier version, which kept no identities,
    began the ledger); every instant that completed at or before ``handled`` counts as seen then.
    ``committed``: the instant of our last commit with rows. A cache must ignore a stamp that was written
    under a generation below ``stamps_from``, and fill itself anew.
    """

    committed: str | None
    names: frozenset[str] | None
    handled: str
    generation: int
    stamps_from: int

    def has_seen(self, name: str) -> bool:
        """Whether the coordinator has taken the instant with this identity into account."""
        return completion_of(name) <= self.handled if self.names is None else name in self.names


def newest_seen(known: Known, shown: Mapping[str, str]) -> str:
    """The greatest completion time among the instants in ``shown`` that were seen, rollbacks aside.

    ``shown`` maps identity to completion time. `BEGINNING` when there is no such instant.
    """
    seen = (time for name, time in shown.items() if known.has_seen(name) and action_of(name) != _UNDOES)
    return max(seen, default=BEGINNING)
