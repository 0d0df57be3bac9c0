"""Last writer wins, one event after the other: what the table has to hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Row(NamedTuple):
    """A live row; ``number`` is the input record's own, so that rows of equal content are told apart."""

    day: str
    at: int
    number: int


class Change(NamedTuple):
    """One event. ``row`` None: a delete; ``at`` None: by a null value."""

    key: str
    row: Row | None
    at: int | None


@dataclass
class LastWriter:
    """By ordering value where there is one (ties to the later arrival), else by arrival.

    A delete leaves a tombstone with its ordering value, a null-value delete with that of the row that it
    removed.
    """

    ordered: bool
    rows: dict[str, Row] = field(default_factory=dict)
    tombstones: dict[str, int] = field(default_factory=dict)

    def apply(self, change: Change) -> None:
        key, row = change.key, change.row
        stored = self.rows.get(key)
        if not self.ordered:
            if row is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = row
            return
        if change.at is None:
            if stored is not None:
                self.tombstones[key] = stored.at
                del self.rows[key]
            return
        floor = stored.at if stored is not None else self.tombstones.get(key)
        if floor is not None and change.at < floor:
            return
        if row is None:
            self.rows.pop(key, None)
            self.tombstones[key] = change.at
        else:
            self.tombstones.pop(key, None)
            self.rows[key] = row
