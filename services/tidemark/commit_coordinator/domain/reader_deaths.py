"""How often whoever read a lane died where the lane stands; pure.

A record batch can unpack to more memory than there is, and a record can end the process that decodes it. Who
reads next dies as well, so the count goes with the lane, and not with a process or its disk::

    (nothing) ──reader dies──► 1 at position p ──reader dies, still at p──► 2 at p: suspect
        ▲                          │ reader dies at another position           │
        └──a transaction counts────┴───────────────────────────────────────────┘ (1 at the new position)

The counts outlive the coordinator (`commit_coordinator.calls.reader_death_record`).

Two deaths alone prove nothing: somebody may have killed the process twice, and another lane may be the one to
blame. So a suspect lane does not stop. Its next owner reads it apart, in a process that may die
(`index_assigner.input.careful_lanes`), which finds the record, or finds none.
"""

from __future__ import annotations

from typing import Final, NamedTuple

DEATHS_OF_A_SUSPECT: Final = 2


class DeathsAt(NamedTuple):
    """``position``: the lane's next offset that counts, when its reader died."""

    position: int
    deaths: int


def after_death(known: DeathsAt | None, position: int) -> DeathsAt:
    """The count once more after a reader died with the lane at the position."""
    if known is None or known.position != position:
        return DeathsAt(position, 1)
    return DeathsAt(position, known.deaths + 1)


def is_suspect(known: DeathsAt | None, position: int) -> bool:
    """Whether the lane, at this position, is to be read apart."""
    return known is not None and known.position == position and known.deaths >= DEATHS_OF_A_SUSPECT
