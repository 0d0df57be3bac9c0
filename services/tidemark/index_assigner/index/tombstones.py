"""Tombstones in RocksDB: the ordering value with which an absent key was deleted.

There is one tombstone per key, and it matters only while the key is absent. It ends at ``expires_ms``, but
not while a file slice still holds the delete. Two tombstones of one key become one by this rule:

* They were made less than ``ttl_ms`` apart, so both held at one time: the greater ordering value is kept.
* They were made further apart: the later one replaces the earlier, whose time was over.

In both cases the later end is kept. Example for the second case, with a ttl of a week: a delete with value
90; ten days later a row with 49 and a delete with 79. A row with 80 then counts. That must be so on every
disk: on one that removed the first tombstone when it ended, and on a new one, for which the topic is read
from its start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from itertools import islice
from typing import Final

import numpy as np
import numpy.typing as npt

from tidemark.hudi_format.errors import TimelineConflictError
from tidemark.hudi_format.model import ShardId
from tidemark.index_assigner.domain.reduce import BoolArray
from tidemark.index_assigner.index.cache_keys import CacheKeys
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
from tidemark.index_assigner.index.slice_values import SliceValues
from tidemark.stream_runtime.clock import Clock

_TOMBSTONES_PER_STEP: Final = 2_000
_SLICES_PER_STEP: Final = 8
_END: Final = TOMBSTONE_PREFIX[:1] + bytes([TOMBSTONE_PREFIX[1] + 1])
_HEAD: Final = len(TOMBSTONE_PREFIX)

TombstoneArray = npt.NDArray[np.void]


class TombstoneStore:
    """Reads and merges tombstones. Keys are entry keys; rows are `TOMBSTONE` with this process's location
    ids.

    ``ttl_ms``: how long each tombstone holds, so that its end also tells when it was made.
    """

    def __init__(self, rocks: RocksTier, stored: StoredLocations, ttl_ms: int) -> None:
        self._rocks, self._stored, self._ttl_ms = rocks, stored, ttl_ms
        self._in_use: dict[ShardId, bool] = {}

    def get(self, keys: list[bytes]) -> tuple[BoolArray, TombstoneArray]:
        """Returns whether each key has a tombstone, and one row per key (location -1 where it has none)."""
        rows = np.zeros(len(keys), TOMBSTONE)
        rows["location"] = -1
        known = np.zeros(len(keys), np.bool_)
        asked = [position for position, key in enumerate(keys) if self._has_any(key[:2])]
        values = self._rocks.get_many([TOMBSTONE_PREFIX + keys[position] for position in asked])
        present, stored = unpack(values, TOMBSTONE)
        at = np.asarray(asked, np.int64)[present]
        rows[at] = stored
        rows["location"][at] = self._stored.to_local(stored["location"])
        known[at] = True
        return known, rows

    def merged(self, keys: list[bytes], rows: TombstoneArray) -> tuple[list[bytes], list[bytes]]:
        """Returns the keys and values to write: new tombstones merged with each other and with the stored
        ones.

        ``keys`` may repeat.
        """
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
        """The first offset of the lane's tombstones partition whose tombstones are not stored here."""
        value = self._rocks.get(POSITION_PREFIX + lane.to_bytes(4, "big"))
        return 0 if value is None else int.from_bytes(value, "big")

    def position_put(self, lane: int, position: int) -> tuple[list[bytes], list[bytes]]:
        """Returns the key and value to write for the lane's position, which never goes back."""
        position = max(position, self.position(lane))
        return [POSITION_PREFIX + lane.to_bytes(4, "big")], [position.to_bytes(8, "big")]

    def _has_any(self, shard: bytes) -> bool:
        """Whether the shard ever had a tombstone. Most streams have few, and each lookup costs a read per
        key.
        """
        number = ShardId(int.from_bytes(shard, "big"))
        if number not in self._in_use:
            first = next(self._rocks.items_from(*shard_range(TOMBSTONE_PREFIX, number)), None)
            self._in_use[number] = first is not None
        return self._in_use[number]

    def _one_of_each(self, keys: list[bytes], rows: TombstoneArray) -> tuple[list[bytes], TombstoneArray]:
        """Merges the rows of each key; returns the distinct keys, and one row for each.

        Rows are merged round by round, because numpy handles a position once per assignment: for the keys
        a, b, a the first round has the rows 0 and 1, the second one row 2, which is merged into a's.
        """
        seen: Counter[bytes] = Counter()
        rounds: list[list[int]] = [[]]
        for at, key in enumerate(keys):
            if seen[key] == len(rounds):
                rounds.append([])
            rounds[seen[key]].append(at)
            seen[key] += 1
        merged, place = rows[rounds[0]], {key: at for at, key in enumerate(seen)}
        for again in rounds[1:]:
            members = [place[keys[position]] for position in again]
            merged[members] = self._one_of(merged[members], rows[again])
        return list(seen), merged

    def _one_of(self, first: TombstoneArray, second: TombstoneArray) -> TombstoneArray:
        """Merges two tombstones per key. Either may be the later one, because a topic may be read again."""
        apart = np.abs(second["expires_ms"] - first["expires_ms"]) >= self._ttl_ms
        is_later = second["expires_ms"] > first["expires_ms"]
        is_greater = second["ordering"] >= first["ordering"]
        stays = np.where(apart, is_later, is_greater)
        kept, other = np.where(stays, second, first), np.where(stays, first, second)
        kept["expires_ms"] = np.maximum(first["expires_ms"], second["expires_ms"])
        kept["location"] = np.where(kept["location"] >= 0, kept["location"], other["location"])
        return kept


class TombstoneSweep:
    """Removes expired tombstones, some after each promotion: goes over all again and again, in steps of
    limited size. A lookup removes the expired tombstone of its key; the sweep is for keys that never come
    back.
    """

    def __init__(
        self,
        rocks: RocksTier,
        stored: StoredLocations,
        tombstones: TombstoneStore,
        slices: SliceValues,
        clock: Clock,
        keys: CacheKeys,
    ) -> None:
        self._rocks, self._stored, self._tombstones = rocks, stored, tombstones
        self._slices, self._clock, self._keys = slices, clock, keys
        self._cursor = TOMBSTONE_PREFIX
        self.removed = 0

    def step(self, shards: Collection[ShardId]) -> None:
        """Checks the next tombstones; removes those of ``shards`` (prefixes of their keys) that expired and
        whose slice has no such delete.
        """
        items = list(islice(self._rocks.items_from(self._cursor, _END), _TOMBSTONES_PER_STEP))
        full = len(items) == _TOMBSTONES_PER_STEP
        self._cursor = items[-1][0] + b"\0" if full else TOMBSTONE_PREFIX
        _, rows = unpack([value for _, value in items], TOMBSTONE)
        mine = np.array(
            [int.from_bytes(key[_HEAD : _HEAD + 2], "big") in shards for key, _ in items], np.bool_
        )
        expired = np.flatnonzero(mine & (rows["expires_ms"] <= self._clock.now_ms()))
        located = self._stored.to_local(rows["location"][expired])
        few = np.unique(located[located >= 0])[:_SLICES_PER_STEP]
        looked_at = np.isin(located, [-1, *few.tolist()])
        expired, located = expired[looked_at], located[looked_at]
        if not expired.size:
            return
        keys = [items[position][0][_HEAD:] for position in expired.tolist()]
        try:
            names = self._keys.record_keys(keys)
            held = self._slices.reach(names, located, rows["ordering"][expired])
        except TimelineConflictError:
            return  # files keep vanishing just now; a later round checks these tombstones again
        gone = [key for key, holds in zip(keys, held.tolist(), strict=True) if not holds]
        self._tombstones.remove(gone)
        self.removed += len(gone)
