"""Tombstones in RocksDB: the ordering value at which an absent key was deleted.

A tombstone is the greatest over all records of its key in committed transactions, and is asked only for
absent keys. It ends at `expires_ms`, but not while a file slice still holds the key's old row or delete.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from tidemark.index_assigner.domain.reduce import BoolArray
from tidemark.index_assigner.index.rocks import RocksTier
from tidemark.index_assigner.index.rocks_layout import (
    POSITION_PREFIX,
    TOMBSTONE,
    TOMBSTONE_PREFIX,
    pack,
    shard_range,
    unpack,
)
from tidemark.index_assigner.index.rocks_locations import StoredLocations

TombstoneArray = npt.NDArray[np.void]


class TombstoneStore:
    """See the module. Keys are entry keys; rows are `TOMBSTONE` with this process's location ids."""

    def __init__(self, rocks: RocksTier, stored: StoredLocations) -> None:
        self._rocks, self._stored = rocks, stored
        self._in_use: dict[int, bool] = {}

    def get(self, keys: list[bytes]) -> tuple[BoolArray, TombstoneArray]:
        """(which keys have a tombstone, a row per key)."""
        rows = np.zeros(len(keys), TOMBSTONE)
        rows["location"] = -1
        known = np.zeros(len(keys), np.bool_)
        asked = [each for each, key in enumerate(keys) if self._has_any(key[:2])]
        values = self._rocks.get_many([TOMBSTONE_PREFIX + keys[each] for each in asked])
        present, found = unpack(values, TOMBSTONE)
        at = np.asarray(asked, np.int64)[present]
        rows[at] = found
        rows["location"][at] = self._stored.to_local(found["location"])
        known[at] = True
        return known, rows

    def merged(self, keys: list[bytes], rows: TombstoneArray) -> tuple[list[bytes], list[bytes]]:
        """What to write so that each key keeps the greater tombstone; keys may repeat."""
        newest = self._greatest_of_each(keys, rows)
        distinct = list(newest)
        rows = rows[np.fromiter(newest.values(), np.int64, len(newest))]
        known, stored = self.get(distinct)
        older = known & (stored["ordering"] > rows["ordering"])
        for name in ("ordering", "expires_ms"):
            rows[name] = np.where(older, stored[name], rows[name])
        rows["location"] = np.where(rows["location"] >= 0, rows["location"], stored["location"])
        rows["location"] = self._stored.to_stored(rows["location"])
        for prefix in {key[:2] for key in distinct}:
            self._in_use[int.from_bytes(prefix, "big")] = True
        return [TOMBSTONE_PREFIX + key for key in distinct], pack(rows)

    def remove(self, keys: Iterable[bytes]) -> None:
        """Forgets the tombstones of these keys."""
        self._rocks.write([], [TOMBSTONE_PREFIX + key for key in keys])

    def position(self, lane: int) -> int:
        """First offset of the lane's tombstones partition that is not reflected here."""
        value = self._rocks.get(POSITION_PREFIX + lane.to_bytes(4, "big"))
        return 0 if value is None else int.from_bytes(value, "big")

    def position_put(self, lane: int, position: int) -> tuple[list[bytes], list[bytes]]:
        """Writes the position; it never goes back."""
        position = max(position, self.position(lane))
        return [POSITION_PREFIX + lane.to_bytes(4, "big")], [position.to_bytes(8, "big")]

    def _has_any(self, shard: bytes) -> bool:
        """Whether the shard ever had a tombstone: most streams have few, and asking costs a read a key."""
        number = int.from_bytes(shard, "big")
        if number not in self._in_use:
            found = next(self._rocks.items_from(*shard_range(TOMBSTONE_PREFIX, number)), None)
            self._in_use[number] = found is not None
        return self._in_use[number]

    @staticmethod
    def _greatest_of_each(keys: list[bytes], rows: TombstoneArray) -> dict[bytes, int]:
        order = np.argsort(rows["ordering"], kind="stable").tolist()
        return {keys[each]: each for each in order}
