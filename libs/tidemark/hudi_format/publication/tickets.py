"""The values of the publication port: terms, tickets, leases, and the answers about them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

import msgspec


@dataclass(frozen=True, slots=True)
class TermId:
    """A coordinator's term: the offset of its claim, within a ledger. Offsets of two ledgers cannot be
    compared. ``ledger`` is "" in locks that an older version of Tidemark made.
    """

    offset: int
    ledger: str = ""

    def is_after(self, other: TermId) -> bool:
        """Whether this is the later term of the same ledger. A term that names no ledger counts as of
        the same.
        """
        same = not (self.ledger and other.ledger) or self.ledger == other.ledger
        return same and self.offset > other.offset


NO_TERM: Final = TermId(-1)
"""Holds the lock for a command that works without a term, and where all terms were ended: no term is before
it.
"""


class Ticket(msgspec.Struct, frozen=True, omit_defaults=True):
    """A prepared file. ``path`` is relative to the table's base, ``size`` in bytes, ``sha256`` of the content
    in hex. Only the implementation reads ``handle``. An empty handle means that the file is visible under its
    name, so nothing is left to publish; ``sha256`` is then empty too.

    ``name_decides``: whatever file has the name counts as this one (a completed file of a timeline).
    """

    path: str
    size: int
    sha256: str = ""
    handle: str = ""
    name_decides: bool = False

    @property
    def is_visible(self) -> bool:
        """Whether the file is there already."""
        return not self.handle


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a task of a service action has finished: the file's ticket, and the note that was left with it."""

    ticket: Ticket
    note: bytes


class Fate(Enum):
    """The final state of a ticket."""

    PUBLISHED = "published"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True)
class Settled:
    """The answer to `Term.close_attempt`: nothing of the attempt will be published any more."""


@dataclass(frozen=True, slots=True)
class NotBefore:
    """The answer to `Term.close_attempt` when the store cannot tell yet whether a file of the attempt will
    still appear: ask again at ``ms`` (Unix epoch). Until then the attempt's instant stays pending, with its
    heartbeat.
    """

    ms: int


@dataclass(frozen=True, slots=True)
class Lease:
    """Proof that a term held the table's lock when it asked for the lease; ``nonce`` is that lock's."""

    nonce: str
