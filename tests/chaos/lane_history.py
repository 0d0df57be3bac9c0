"""Is what a reader saw a whole number of commits? Answered from the input alone, by arithmetic on positions.

All events of a key lie in one input partition, and a key belongs to one lane. The system takes a partition in
order, and a commit covers a prefix of each lane. So what a reader sees of the keys of one (partition, lane)
must be the model after exactly the first n of their events, for *one* n, the same for all keys, and never
less than at the reading before. Half a commit, a doubled or lost record, an old row that came back: there is
no such n.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tests.chaos.events import Arrived
from tests.chaos.identities import parts
from tests.input_model import Event, InputModel, Row, Upsert

_INT: Final = 1 << 32
_SHOWN: Final = 6


class Seen(NamedTuple):
    """The numbers of events of one (partition, lane) that a view may show: from `least` to `most`."""

    least: int
    most: int


class TornViewError(AssertionError):
    """A reader saw what no whole number of commits shows."""


def shard_of(key: str, shards: int) -> int:
    """Hudi's record index hash of ASCII keys: Java's String.hashCode, its absolute value, modulo."""
    number = 0
    for letter in key.encode("ascii"):
        number = (31 * number + letter) % _INT
    signed = number - _INT if number >= _INT // 2 else number
    return abs(signed) % shards


def lane_of(key: str, shards: int, lanes: int) -> int:
    """Of a key by its shard; with a partition by the sum of both hashes."""
    if len(both := parts(key)) == 1:
        return shard_of(key, shards) % lanes
    return sum(shard_of(each, _INT) for each in both) % lanes


@dataclass
class LaneHistory:
    """The model of the keys of one (partition, lane) after each of their events."""

    name: str
    model: InputModel = field(default_factory=InputModel)
    events: int = 0
    floor: int = 0
    _numbers: dict[str, list[int]] = field(default_factory=dict)
    _states: dict[str, list[Row | None]] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        key = str(event.row["id"]) if isinstance(event, Upsert) else event.key
        self.model.apply([event])
        self.events += 1
        now = self.model.rows.get(key)
        numbers, states = self._numbers.setdefault(key, [0]), self._states.setdefault(key, [None])
        if now != states[-1]:
            numbers.append(self.events)
            states.append(now)

    @property
    def known(self) -> Iterable[str]:
        """Every key that had an event."""
        return self._numbers.keys()

    def check(self, rows: Mapping[str, Row]) -> Seen:
        """Raises TornViewError. `rows`: all live rows that the view has of these keys."""
        ranges = {key: self._shown_at(key, rows.get(key)) for key in self._numbers}
        least = max((spans[0].least for spans in ranges.values()), default=self.floor)
        for candidate in sorted({least, *(s.least for spans in ranges.values() for s in spans)}):
            most = self._holds_until(ranges, candidate)
            if candidate >= least and most is not None:
                latest = self._latest(ranges, candidate)
                self.floor = max(self.floor, candidate)
                return Seen(self.floor, latest)
        raise TornViewError(self._explain(ranges))

    def _shown_at(self, key: str, row: Row | None) -> list[Seen]:
        """When the key looked like this, as far as it is not before the last reading."""
        numbers, states = self._numbers[key], self._states[key]
        first = max(bisect_right(numbers, self.floor) - 1, 0)
        spans = []
        for index in range(first, len(numbers)):
            if states[index] == row:
                end = numbers[index + 1] - 1 if index + 1 < len(numbers) else self.events
                spans.append(Seen(max(numbers[index], self.floor), end))
        if not spans:
            ever = row in states
            raise TornViewError(
                f"{self.name}: {key} is shown as {row}, which it "
                + (f"was before event {self.floor} alone: it went back" if ever else "never was")
            )
        return spans

    def _holds_until(self, ranges: Mapping[str, list[Seen]], number: int) -> int | None:
        most = self.events
        for spans in ranges.values():
            span = next((each for each in spans if each.least <= number <= each.most), None)
            if span is None:
                return None
            most = min(most, span.most)
        return most

    def _latest(self, ranges: Mapping[str, list[Seen]], first: int) -> int:
        """The last number that fits; between it and `first` not every one has to."""
        latest = self._holds_until(ranges, first)
        assert latest is not None
        for candidate in sorted({s.least for spans in ranges.values() for s in spans}):
            until = self._holds_until(ranges, candidate) if candidate > latest else None
            latest = until if until is not None else latest
        return latest

    def _explain(self, ranges: Mapping[str, list[Seen]]) -> str:
        behind = sorted(ranges.items(), key=lambda each: each[1][-1].most)[:_SHOWN]
        ahead = sorted(ranges.items(), key=lambda each: -each[1][0].least)[:_SHOWN]
        return (
            f"{self.name}: no number of events gives what is shown. Shown as after at least "
            f"{ {key: spans[0].least for key, spans in ahead} }, and as after at most "
            f"{ {key: spans[-1].most for key, spans in behind} }"
        )


class InputHistory:
    """All lanes of all input partitions. For one thread."""

    def __init__(self, shards: int, lanes: int) -> None:
        self._shards, self._lanes = shards, lanes
        self._of: dict[tuple[int, int], LaneHistory] = {}
        self.broken: set[tuple[int, int]] = set()

    def add(self, arrived: Iterable[Arrived]) -> None:
        for each in arrived:
            if each.event is None:
                self.broken.add((each.partition, each.offset))
                continue
            key = str(each.event.row["id"]) if isinstance(each.event, Upsert) else each.event.key
            place = (each.partition, lane_of(key, self._shards, self._lanes))
            name = f"partition {place[0]}, lane {place[1]}"
            self._of.setdefault(place, LaneHistory(name)).add(each.event)

    @property
    def records(self) -> int:
        """Records that can be decoded."""
        return sum(lane.events for lane in self._of.values())

    def rows(self) -> dict[str, Row]:
        """All live rows after all events."""
        return {key: row for lane in self._of.values() for key, row in lane.model.rows.items()}

    def check(self, rows: Mapping[str, Row]) -> Seen:
        """How many events all lanes together show. Raises TornViewError."""
        known = {key for lane in self._of.values() for key in lane.known}
        if unknown := sorted(rows.keys() - known)[:_SHOWN]:
            raise TornViewError(f"keys that nobody ever sent: {unknown}")
        shown = [lane.check(rows) for lane in self._of.values()]
        return Seen(sum(each.least for each in shown), sum(each.most for each in shown))
