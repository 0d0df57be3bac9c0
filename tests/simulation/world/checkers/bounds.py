"""G7: how much may be shuffled or tagged and not committed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.simulation.world.checkers.topics import Counted, Decisions, keyed_positions


@dataclass(frozen=True)
class Bounds:
    """``entries``: of the index. ``transactions`` and ``tagged_bytes``: of the assign stage. ``shuffled``:
    transactions of the shuffle stage. ``spare``: transactions of a stage that may come on top until all its
    processes have read that they have to rest.
    """

    entries: int
    transactions: int
    tagged_bytes: int
    shuffled: int
    spare: int

    def faults(self, decisions: Decisions, counted: Counted) -> Iterator[str]:
        """What is more than may be."""
        held = [entry for offset, entry in counted.tagged if offset > decisions.through]
        rows = sum(p["records"] for e in held for p in e["produced"] if p["topic"] == "index")
        if rows > self.entries:
            yield f"{rows} index entries are uncommitted, at most {self.entries} may be"
        if len(held) > self.transactions + self.spare:
            yield f"{len(held)} tagged transactions are uncommitted, they rest at {self.transactions}"
        sizes = [entry["bytes"] for entry in held]
        if sum(sizes) > self.tagged_bytes + self.spare * max(sizes, default=0):
            yield f"{sum(sizes)} tagged bytes are uncommitted, they rest at {self.tagged_bytes}"
        covered = keyed_positions(counted, decisions.through)
        open_ = sum(
            any(part["last"] >= covered.get(str(part["partition"]), 0) for part in entry["produced"])
            for _, entry in counted.shuffled
        )
        if open_ > self.shuffled + self.spare:
            yield f"{open_} shuffled transactions are uncommitted, they rest at {self.shuffled}"
