"""Last writer wins, one event after the other: what the table has to hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple


class Row(NamedTuple):
    """A live row; ``number`` is the input record's own, so that rows of equal content are told apart;
    ``note``: a column that another engine added, which our records do not have.
    """

    day: str
    at: int
    number: int
    note: str | None = None


class Change(NamedTuple):
    """One event. ``row`` None: a delete; ``at`` None: by a null value."""

    key: str
    row: Row | None
    at: int | None


class ForeignRow(NamedTuple):
    """What another engine made of the key, None: deleted, after so many events of it were committed; ``by``:
    its instant.
    """

    key: str
    after: int
    row: Row | None
    by: str = ""


@dataclass
class LastWriter:
    """By ordering value where there is one (ties to the later arrival), else by arrival.

    A delete leaves a tombstone with its ordering value, a null-value delete with that of the row that it
    removed.
    """

    ordered: bool
    rows: dict[str, Row] = field(default_factory=dict)
    tombstones: dict[str, int] = field(default_factory=dict)

    def put(self, key: str, row: Row | None) -> None:
        """What another engine made of the key, None: it deleted it, whatever its value. No tombstone
        holds.
        """
        self.tombstones.pop(key, None)
        if row is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = row

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


def replayed(changes: Iterable[Change], foreign: Iterable[ForeignRow], ordered: bool) -> dict[str, Row]:
    """The rows after all events in the input's order, other engines' inserts where they were committed."""
    writer, seen = LastWriter(ordered), Counter[str]()
    waiting: dict[str, list[ForeignRow]] = {}
    for each in foreign:
        waiting.setdefault(each.key, []).append(each)

    def insert(key: str) -> None:
        while (left := waiting.get(key)) and left[0].after <= seen[key]:
            writer.put(key, left.pop(0).row)

    for change in changes:
        insert(change.key)
        writer.apply(change)
        seen[change.key] += 1
    for key in waiting:
        insert(key)
    return writer.rows
