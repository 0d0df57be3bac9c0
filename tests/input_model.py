"""What a table must hold after a stream: a replay by arrival, one key after the other, written for the tests
alone, and streams that make it hard.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True)
class Upsert:
    """The whole row; `keyless`: without a Kafka key."""

    row: Row
    keyless: bool = False


@dataclass(frozen=True)
class Delete:
    """By a null value (`at` None) or by the delete field, then with an ordering value where there is one."""

    key: str
    at: int | None = None
    typed: bool = False


Event = Upsert | Delete


@dataclass
class InputModel:
    """Last writer wins: by `ordering` (ties to the later arrival) if there is one, else by arrival.

    A delete leaves a tombstone with its ordering value, a null-value delete with that of the row it removed.
    """

    key: str = "id"
    ordering: str | None = "ts"
    rows: dict[str, Row] = field(default_factory=dict)
    tombstones: dict[str, int] = field(default_factory=dict)
    received: int = 0

    def apply(self, events: Iterable[Event]) -> None:
        for event in events:
            self.received += 1
            if isinstance(event, Upsert):
                self._upsert(event.row)
            else:
                self._delete(event)

    @property
    def live(self) -> list[Row]:
        return list(self.rows.values())

    def _upsert(self, row: Row) -> None:
        key = row[self.key]
        if self.ordering is not None:
            if row[self.ordering] < self._stored(key, row[self.ordering]):
                return
            self.tombstones.pop(key, None)
        self.rows[key] = row

    def _delete(self, event: Delete) -> None:
        if self.ordering is None:
            self.rows.pop(event.key, None)
            return
        if event.at is not None and event.at < self._stored(event.key, event.at):
            return
        removed = self.rows.pop(event.key, None)
        if event.at is not None:
            self.tombstones[event.key] = event.at
        elif removed is not None:
            self.tombstones[event.key] = removed[self.ordering]

    def _stored(self, key: str, default: int) -> int:
        assert self.ordering is not None
        row = self.rows.get(key)
        return int(row[self.ordering]) if row is not None else self.tombstones.get(key, default)


SCHEMA: Mapping[str, Any] = {
    "type": "record",
    "name": "orders",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "region", "type": "string"},
        {"name": "ts", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "amount", "type": ["null", "double"], "default": None},
    ],
}
DELETE_FIELD = "_deleted"


class RandomStream:
    """Seeded events on few keys: inserts, updates, moves, both kinds of delete, re-inserts, late events.

    Every key gets all kinds of event in any mix, several in one batch. Rows differ in every event.
    """

    def __init__(self, seed: int, keys: int, regions: int = 5) -> None:
        self._random = Random(seed)
        self._keys = keys
        self._regions = regions
        self._ts = 1_000

    def events(self, count: int) -> Iterator[Event]:
        for _ in range(count):
            self._ts += 1
            key = f"key-{self._random.randrange(self._keys)}"
            # Out of order: as late as a whole batch, and at times the very same value again.
            late = self._random.choice((0, 0, 0, 1, self._random.randrange(count)))
            at, kind = self._ts - late, self._random.random()
            if kind < 0.08:
                yield Delete(key)
            elif kind < 0.16:
                yield Delete(key, at, typed=True)
            else:
                yield Upsert(self.row(key, at), keyless=kind > 0.9)

    def row(self, key: str, ts: int) -> Row:
        amount = None if self._random.random() < 0.1 else self._random.randrange(10_000) / 4
        region = f"region-{self._random.randrange(self._regions)}"
        return {"id": key, "region": region, "ts": ts, "name": f"{key}@{ts}/{self._ts}", "amount": amount}


class StayingStream(RandomStream):
    """No key moves: all its rows are in one region, and every delete has fields to name it by. `put` says in
    which region the rows of a key are that comes.
    """

    def __init__(self, seed: int, keys: int, regions: int = 5) -> None:
        super().__init__(seed, keys, regions)
        self._placed: dict[str, str] = {}

    def put(self, key: str, region: str) -> None:
        self._placed[key] = region

    def region_of(self, key: str) -> str:
        return self._placed.get(key) or f"region-{sum(key.encode()) % self._regions}"

    def events(self, count: int) -> Iterator[Event]:
        for event in super().events(count):
            if isinstance(event, Delete) and not event.typed:
                event = Delete(event.key, self._ts, typed=True)
            yield event

    def row(self, key: str, ts: int) -> Row:
        return {**super().row(key, ts), "region": self.region_of(key)}


def messages(
    events: Iterable[Event],
    partitions: int,
    key: str = "id",
    region_of: Callable[[str], str] | None = None,
) -> dict[int, list[tuple[bytes | None, bytes | None]]]:
    """Kafka keys and values per input partition; all events of a record key are in one partition.
    ``region_of``: deletes name the region of their key.
    """
    parts: dict[int, list[tuple[bytes | None, bytes | None]]] = {number: [] for number in range(partitions)}
    for event in events:
        if isinstance(event, Upsert):
            name, document = str(event.row[key]), event.row
        else:
            name, document = event.key, {key: event.key, "ts": event.at, DELETE_FIELD: True}
            if region_of is not None:
                document["region"] = region_of(event.key)
        has_value = isinstance(event, Upsert) or event.typed
        value = json.dumps(document).encode() if has_value else None
        kafka_key = None if isinstance(event, Upsert) and event.keyless else name.encode()
        parts[sum(name.encode()) % partitions].append((kafka_key, value))
    return parts
