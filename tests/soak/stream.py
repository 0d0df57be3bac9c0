"""The soak's input: seeded events on a fixed set of keys, and among them malformed records in twenty ways."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Final

from tests.input_model import Delete, Event, InputModel, Upsert, messages
from tests.soak.malformed import WAYS, KeyAndValue

MALFORMED_SHARE: Final = 0.05
_NULL_DELETES: Final = 0.01
_TYPED_DELETES: Final = 0.02
_MOVES: Final = 0.01
_LATE: Final = 0.05
_LATE_MAX: Final = 500
_REGIONS: Final = 8


class SoakStream:
    """`records` makes what comes next and tells `model` and `malformed` (reason -> how many) of it.

    Nothing here grows with time but ordering values: the keys are fixed, and the model holds one row of each.
    """

    def __init__(self, seed: int, keys: int, partitions: int) -> None:
        self.model = InputModel()
        self.malformed: Counter[str] = Counter()
        self.sent = 0
        self._random = Random(seed)
        self._keys = keys
        self._partitions = partitions
        self._ts = 1_000_000
        self._way = 0
        self._region = [number % _REGIONS for number in range(keys)]

    def records(self, count: int) -> Iterator[tuple[int, KeyAndValue]]:
        """Input partition, Kafka key and value of the next `count` records."""
        for _ in range(count):
            self.sent += 1
            event = self._event()
            if self._random.random() < MALFORMED_SHARE:
                reason, spoil = WAYS[self._way]
                self._way = (self._way + 1) % len(WAYS)
                self.malformed[reason] += 1
                row = event.row if isinstance(event, Upsert) else self._row(0, self._ts)
                yield self._random.randrange(self._partitions), spoil(row)
                continue
            self.model.apply([event])
            for partition, found in messages([event], self._partitions).items():
                for record in found:
                    yield partition, record

    def _event(self) -> Event:
        self._ts += 1
        number, dice = self._random.randrange(self._keys), self._random.random()
        late = self._random.randrange(_LATE_MAX) if self._random.random() < _LATE else 0
        if dice < _NULL_DELETES:
            return Delete(_key(number))
        if dice < _NULL_DELETES + _TYPED_DELETES:
            return Delete(_key(number), self._ts - late, typed=True)
        if dice < _NULL_DELETES + _TYPED_DELETES + _MOVES:
            self._region[number] = self._random.randrange(_REGIONS)
        return Upsert(self._row(number, self._ts - late))

    def _row(self, number: int, ts: int) -> dict[str, object]:
        return {
            "id": _key(number),
            "region": f"region-{self._region[number]}",
            "ts": ts,
            "name": f"{self._ts:x}" * 12,
            "amount": self._random.randrange(100_000) / 4,
        }


def _key(number: int) -> str:
    return f"key-{number:07d}"
