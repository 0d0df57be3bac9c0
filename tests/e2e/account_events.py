"""A seeded stream about accounts, and the table that it must become: a dictionary, event by event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.e2e.running_table import RunningTable

REGIONS = ("north", "south", "east", "west")
Event = tuple[str | None, Mapping[str, Any] | bytes | None]


@dataclass
class AccountModel:
    """`rows`: live rows by key; `newest`: the greatest ordering value of each key, live or not.

    An older event changes nothing, a delete leaves its ordering value behind.
    """

    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    broken: int = 0
    newest: dict[str, int] = field(default_factory=dict)

    def apply(self, event: Event) -> None:
        key, value = event
        if isinstance(value, bytes) or key is None:
            self.broken += 1
            return
        if value is None:
            self.rows.pop(key, None)
            return
        if value["at"] < self.newest.get(key, -1):
            return
        self.newest[key] = value["at"]
        if value.get("gone"):
            self.rows.pop(key, None)
        else:
            self.rows[key] = {name: value[name] for name in ("id", "region", "at", "balance")}


class AccountEvents:
    """Makes events and tells the model of each, in the order in which they are sent. Some are older than what
    was sent before.
    """

    def __init__(
        self, seed: int, accounts: int = 400, model: AccountModel | None = None, now: int = 1_000
    ) -> None:
        """`model` and `now` (the newest ordering value): where a former stream ended."""
        self.model = model or AccountModel()
        self._random = Random(seed)
        self._accounts = accounts
        self.late_max = 50
        """How many ordering values an event may lie behind the newest one."""
        self.now = now

    def nothing_late(self) -> None:
        """From here on every event is newer than all before it."""
        self.late_max = 1

    def take(self, count: int) -> list[Event]:
        """The next events: upserts, moves, late ones, deletes of both kinds, a few broken ones."""
        events = [self._next() for _ in range(count)]
        for event in events:
            self.model.apply(event)
        return events

    def _next(self) -> Event:
        self.now += 1
        dice = self._random.random()
        key = f"account-{self._random.randrange(self._accounts)}"
        if dice < 0.01:
            return key, b"{ not json"
        if dice < 0.04:
            return key, None
        late = self._random.randrange(self.late_max) if dice < 0.15 else 0
        value = {
            "id": key,
            "region": self._random.choice(REGIONS),
            "at": self.now - late,
            "balance": self._random.randrange(100_000) / 4,
        }
        return key, {**value, "gone": True} if 0.15 <= dice < 0.2 else value


def check_against_model(running: RunningTable, events: AccountEvents, *, full: bool = False) -> None:
    """hudi-rs reads what the model holds; the index agrees; every broken record is a dead letter. `full`:
    files that were verified before are read once more.
    """
    found = running.rows()
    assert len(found) == len({row["_hoodie_record_key"] for row in found}), "a key is there twice"
    columns = ("id", "region", "at", "balance")
    assert {row["id"]: {name: row[name] for name in columns} for row in found} == events.model.rows
    assert running.cli("verify", *(["--full"] if full else []))["agrees"]
    assert running.cli("dead-letter", "list")["count"] == events.model.broken
