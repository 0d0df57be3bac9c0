"""What all rounds of a campaign did together: faults by kind and failpoint, actions of table services by
kind, rounds by their tables. It says which kind of table service never ended although it was due.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from tests.chaos.campaign import Round
from tests.chaos.service_counts import due_services
from tests.chaos.settings import Settings

_WHOLE_S: Final = 600.0
# With a shorter time one long pause behind a full disk would be all of it.
_DUE_S: Final = 300.0


@dataclass
class Tally:
    """`due_s`: how long rounds took, together, in which a kind of table service was due."""

    faults: Counter[str] = field(default_factory=Counter)
    points: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    due_s: dict[str, float] = field(default_factory=dict)
    rounds: Counter[str] = field(default_factory=Counter)
    unprovoked: Counter[str] = field(default_factory=Counter)

    def add(self, world: Round, settings: Settings, took_s: float) -> None:
        """A round that was whole to its end."""
        self.faults += world.counts
        self.points += world.points
        self.rounds[settings.table] += 1
        for role, found in world.exits().items():
            self.unprovoked.update({f"{role} {what}": count for what, count in found.items()})
        if settings.services:
            self.ended += world.ended
            for kind in due_services(settings.table_type, world.dead_writes):
                self.due_s[kind] = self.due_s.get(kind, 0.0) + took_s

    def never_ended(self, took_s: float, patience: float) -> list[str]:
        """Kinds of table services that were due for five minutes, in a campaign of ten, and never ended."""
        if took_s < _WHOLE_S:
            return []
        return sorted(
            kind for kind, s in self.due_s.items() if s >= _DUE_S * patience and not self.ended[kind]
        )

    def lines(self) -> Iterator[str]:
        """For the end of a campaign."""
        yield from (f"  {count} x {table}" for table, count in sorted(self.rounds.items()))
        yield from tally_lines(self.faults, self.points)
        if self.due_s:
            ended = ", ".join(f"{kind} {self.ended[kind]}" for kind in sorted(self.due_s))
            yield f"table services that ended: {ended}"
        yield f"ends that nobody provoked: {dict(self.unprovoked) or 'none'}"


def tally_lines(faults: Mapping[str, int], points: Mapping[str, int]) -> Iterator[str]:
    """Faults by kind, each with its failpoints. `points`: by kind and failpoint."""
    for fault, count in sorted(faults.items()):
        of_fault = {key.partition(" ")[2]: n for key, n in points.items() if key.partition(" ")[0] == fault}
        where = ", ".join(f"{point} {n}" for point, n in sorted(of_fault.items()))
        yield f"  {fault} {count}{': ' + where if where else ''}"
