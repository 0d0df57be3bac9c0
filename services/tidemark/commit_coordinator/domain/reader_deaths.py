"""How often the reader of a lane has died at the same position of the lane; pure.

A record batch can unpack to more memory than there is, and a record can crash the process that decodes it.
The next reader dies of it as well, so deaths are counted for the lane, not for a process::

    (nothing) ──reader dies──► 1 at position p ──reader dies, still at p──► 2 at p: suspect
        ▲                          │ reader dies at another position           │
        └──a transaction counts────┴───────────────────────────────────────────┘ (1 at the new position)

The counts outlive the coordinator (`commit_coordinator.calls.reader_death_record`).

Two deaths prove nothing: somebody may have killed the process twice, or another lane of the process was the
cause. So a suspect lane does not stop. Its next owner reads it in a separate process, which may die
(`index_assigner.input.careful_lanes`), and so finds the record that kills it, or that there is none.
"""

from __future__ import annotations

from typing import Final, NamedTuple

DEATHS_OF_A_SUSPECT: Final = 2


class DeathsAt(NamedTuple):
    """``position``: the lane's next offset that counts, when its reader died."""

    position: int
    deaths: int


def after_death(known: DeathsAt | None, position: int) -> DeathsAt:
    """The count after one more reader died while ``position`` was the lane's next offset that counts."""
    if known is None or known.position != position:
        return DeathsAt(position, 1)
    return DeathsAt(position, known.deaths + 1)


def is_suspect(known: DeathsAt | None, position: int) -> bool:
    """Whether the lane has to be read in a separate process at this position."""
    return known is not None and known.position == position and known.deaths >= DEATHS_OF_A_SUSPECT
