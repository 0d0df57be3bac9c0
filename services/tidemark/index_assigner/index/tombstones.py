"""Tombstones in RocksDB: the ordering value at which an absent key was deleted.

A tombstone is the greatest over the records of its key in committed transactions that held when the last of
them was made, and is asked only for absent keys. It ends at `expires_ms`, but not while a file slice still
holds the delete.

What ended stays ended: a row that came after the end may be below the former delete, and be deleted itself.
The later delete's tombstone alone tells of that. Example, with a life of a week: a delete at 90, ten days
later a row at 49, and a delete at 79. A row at 80 counts, on a disk that never saw the first one and on
a new one, for which the topic is read from its start. Of two that held at one time the greater stays, until
the later one ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from tidemark.hudi_format.model import ShardId
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
    """See the module. Keys are entry keys; rows are `TOMBSTONE` with this process's location ids. ``ttl_ms``:
    how long a tombstone holds, so that its end tells when it was made.
    """

    def __init__(self, rocks: RocksTier, stored: StoredLocations, ttl_ms: int) -> None:
        self._rocks, self._stored, self._ttl_ms = rocks, stored, ttl_ms
        self._in_use: dict[ShardId, bool] = {}

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
        """What to write so that each key keeps its tombstone; keys may repeat, in their order."""
        distinct, rows = self._one_of_each(keys, rows)
        known, stored = self.get(distinct)
        rows[known] = self._one_of(stored[known], rows[known])
        rows["location"] = self._stored.to_stored(rows["location"])
        for prefix in {key[:2] for key in distinct}:
            self._in_use[ShardId(int.from_bytes(prefix, "big"))] = True
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
        number = ShardId(int.from_bytes(shard, "big"))
        if number not in self._in_use:
            found = next(self._rocks.items_from(*shard_range(TOMBSTONE_PREFIX, number)), None)
            self._in_use[number] = found is not None
        return self._in_use[number]

    def _one_of_each(self, keys: list[bytes], rows: TombstoneArray) -> tuple[list[bytes], TombstoneArray]:
        """(distinct keys, what the records of each come to)."""
        seen: Counter[bytes] = Counter()
        rounds: list[list[int]] = [[]]
        for at, key in enumerate(keys):
            if seen[key] == len(rounds):
                rounds.append([])
            rounds[seen[key]].append(at)
            seen[key] += 1
        found, place = rows[rounds[0]], {key: at for at, key in enumerate(seen)}
        for again in rounds[1:]:
            members = [place[keys[each]] for each in again]
            found[members] = self._one_of(found[members], rows[again])
        return list(seen), found

    def _one_of(self, first: TombstoneArray, second: TombstoneArray) -> TombstoneArray:
        """Per key what two tombstones come to. Either may be the later one: a topic may be read again."""
        apart = np.abs(second["expires_ms"] - first["expires_ms"]) >= self._ttl_ms
        is_later = second["expires_ms"] > first["expires_ms"]
        is_greater = second["ordering"] >= first["ordering"]
        stays = np.where(apart, is_later, is_greater)
        found, other = np.where(stays, second, first), np.where(stays, first, second)
        found["expires_ms"] = np.maximum(first["expires_ms"], second["expires_ms"])
        found["location"] = np.where(found["location"] >= 0, found["location"], other["location"])
        return found
