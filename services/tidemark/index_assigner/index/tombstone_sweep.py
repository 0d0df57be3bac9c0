"""Removes expired tombstones from RocksDB, some after each promotion.

A lookup removes the expired tombstone of its key. The sweep is for keys that never come back.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice
from typing import Final

import numpy as np
import pyarrow as pa

from tidemark.hudi_format.errors import TimelineConflictError
from tidemark.hudi_format.model import ShardId
from tidemark.index_assigner.index.rocks import RocksTier
from tidemark.index_assigner.index.rocks_layout import TOMBSTONE, TOMBSTONE_PREFIX, unpack
from tidemark.index_assigner.index.rocks_locations import StoredLocations
from tidemark.index_assigner.index.slice_values import SliceValues
from tidemark.index_assigner.index.tombstones import TombstoneStore
from tidemark.stream_runtime.clock import Clock

_TOMBSTONES_PER_STEP: Final = 2_000
_SLICES_PER_STEP: Final = 8
_END: Final = TOMBSTONE_PREFIX[:1] + bytes([TOMBSTONE_PREFIX[1] + 1])
_HEAD: Final = len(TOMBSTONE_PREFIX)


class TombstoneSweep:
    """Goes over all tombstones again and again, in steps of limited size."""

    def __init__(
        self,
        rocks: RocksTier,
        stored: StoredLocations,
        tombstones: TombstoneStore,
        slices: SliceValues,
        clock: Clock,
    ) -> None:
        self._rocks, self._stored, self._tombstones = rocks, stored, tombstones
        self._slices, self._clock = slices, clock
        self._cursor = TOMBSTONE_PREFIX
        self.removed = 0

    def step(self, shards: Collection[ShardId]) -> None:
        """Checks the next tombstones; removes those of ``shards`` that expired and whose slice has no such
        delete.
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
            names = pa.array([key[2:].decode() for key in keys], pa.string())
            held = self._slices.reach(names, located, rows["ordering"][expired])
        except TimelineConflictError:
            return  # files keep vanishing just now; a later round checks these tombstones again
        gone = [key for key, holds in zip(keys, held.tolist(), strict=True) if not holds]
        self._tombstones.remove(gone)
        self.removed += len(gone)
