"""What the port hands out: terms, tickets, and answers about them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import msgspec


@dataclass(frozen=True, slots=True)
class TermId:
    """A coordinator's term: the offset of its claim, within a ledger. Offsets of two ledgers say nothing of
    each other; ``ledger`` is "" in locks of versions that named none.
    """

    offset: int
    ledger: str = ""

    def is_after(self, other: TermId) -> bool:
        """Whether this is the later one of the same ledger, as far as both name it."""
        same = not (self.ledger and other.ledger) or self.ledger == other.ledger
        return same and self.offset > other.offset


class Ticket(msgspec.Struct, frozen=True, omit_defaults=True):
    """A prepared file. ``path`` is relative to the table's base, ``size`` in bytes. ``handle`` is the
    implementation's own; an empty one says that the file is visible under its name, so there is nothing left
    to publish, and ``sha256`` (of the content, in hex) is then left out.

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


class Fate(Enum):
    """What became of a ticket, for good."""

    PUBLISHED = "published"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True)
class Settled:
    """Nothing of the attempt will be published any more."""


@dataclass(frozen=True, slots=True)
class NotBefore:
    """Nobody can tell yet: ask again at ``ms`` (Unix epoch). Until then the attempt's instant stays pending,
    with its heartbeat.
    """

    ms: int


@dataclass(frozen=True, slots=True)
class Lease:
    """The table's lock was held when this was given out; ``nonce`` tells whose it was."""

    nonce: str
