"""Last writer wins, one event after the other: what the table has to hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple


class Row(NamedTuple):
    """A live row; ``day``: its partition path; ``number`` is the input record's own, so that rows of equal
    content are told apart; ``note``: of a column that came later, with another engine or with the user.
    """

    day: str
    at: int
    number: int
    note: str | None = None

    def value(self, column: str) -> int | str | None:
        """Of a column that may be indexed."""
        return {"ts": self.at, "v": self.number, "note": self.note}[column]


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


class State(NamedTuple):
    """What is known of a key: its row, and the greatest ordering value at which the input deleted it, which
    counts as long as it has no row.
    """

    row: Row | None = None
    tombstone: int | None = None


@dataclass
class LastWriter:
    """By ordering value where there is one (ties to the later arrival), else by arrival.

    A delete leaves a tombstone with its ordering value, a null-value delete with that of the row that it
    removed. What another engine inserts and deletes leaves the input's tombstones as they are. Two things are
    open: with ``ends`` a tombstone may have ended; and one below a later row of the input may be forgotten (a
    batch takes the row alone), which shows when another engine deletes that row. So ``others`` has what a
    key may be besides what it is said to be; `settle` tells by the table's row.
    """

    ordered: bool
    ends: bool = False
    rows: dict[str, Row] = field(default_factory=dict)
    tombstones: dict[str, int] = field(default_factory=dict)
    others: dict[str, set[State]] = field(default_factory=dict)
    ended: int = 0

    def begin(self, rows: Mapping[str, Row], gone: Mapping[str, int]) -> None:
        """There are these rows before the first event. ``gone``: ordering values of deletes that may hold,
        or be forgotten.
        """
        self.rows.update(rows)
        for key, at in gone.items():
            self._may_be(key, {self._state(key)._replace(tombstone=at)})

    def put(self, key: str, row: Row | None) -> None:
        """What another engine made of the key, None: it deleted it, whatever its value."""
        may = {each._replace(row=row) for each in self.others.pop(key, ())}
        self._become(key, self._state(key)._replace(row=row))
        self._may_be(key, may)

    def apply(self, change: Change) -> None:
        key = change.key
        said = self._state(key)
        known = [said, *self.others.pop(key, ())]
        self._become(key, self._after(said, change))
        may = {self._after(each, change) for each in known}
        if change.row is not None and any(each.row == change.row for each in may):
            may |= {State(change.row)}
        if self.ends and change.at is not None:
            held = [each for each in known if each.row is None and each.tombstone is not None]
            may |= {self._after(State(), change) for _ in held}
        self._may_be(key, may)

    def settle(self, found: Mapping[str, Row]) -> None:
        """The table has these rows: what a key may be is what agrees with it."""
        for key in sorted(self.others):
            row, may = found.get(key), self.others.pop(key)
            agree = sorted((each for each in may if each.row == row), key=_by_tombstone)
            said = self._state(key)
            if said.row != row and agree:
                self._become(key, agree.pop(0))
                self.ended += self.ends
            self._may_be(key, set(agree))

    def _may_be(self, key: str, states: set[State]) -> None:
        others = states - {self._state(key)}
        if others:
            self.others[key] = others

    def _state(self, key: str) -> State:
        return State(self.rows.get(key), self.tombstones.get(key))

    def _become(self, key: str, state: State) -> None:
        self.rows.pop(key, None)
        self.tombstones.pop(key, None)
        if state.row is not None:
            self.rows[key] = state.row
        if state.tombstone is not None:
            self.tombstones[key] = state.tombstone

    def _after(self, state: State, change: Change) -> State:
        row = change.row
        if not self.ordered:
            return State(row)
        if change.at is None:
            return state if state.row is None else _deleted(state, state.row.at)
        floor = state.row.at if state.row is not None else state.tombstone
        if floor is not None and change.at < floor:
            return state
        return _deleted(state, change.at) if row is None else state._replace(row=row)


def _deleted(state: State, at: int) -> State:
    return State(None, at if state.tombstone is None else max(at, state.tombstone))


def _by_tombstone(state: State) -> tuple[bool, int]:
    return state.tombstone is not None, state.tombstone or 0


def replayed(
    changes: Iterable[Change],
    foreign: Iterable[ForeignRow],
    ordered: bool,
    ends: bool = False,
    found: Mapping[str, Row] = MappingProxyType({}),
    start: Mapping[str, Row] = MappingProxyType({}),
    gone: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, Row]:
    """The rows after all events in the input's order, other engines' inserts where they were committed.

    ``found``: the table's rows: where it may be like this or like that, it is like that. ``start``, ``gone``:
    as `LastWriter.begin`.
    """
    writer, seen = LastWriter(ordered, ends), Counter[str]()
    writer.begin(start, gone)
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
    writer.settle(found)
    return writer.rows


def differences(found: Mapping[str, object], wanted: Mapping[str, object]) -> str:
    """Where these differ by their keys."""
    keys = sorted(k for k in found.keys() | wanted.keys() if found.get(k) != wanted.get(k))
    return "; ".join(f"{k} is {found.get(k)}, has to be {wanted.get(k)}" for k in keys[:6])
