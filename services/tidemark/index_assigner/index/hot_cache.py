"""The hot cache: committed locations that were used lately, within a limit in bytes.

A dictionary maps keys to slots of arrays. Only present keys are kept. When the limit is exceeded, the
entries used least recently are evicted, an eighth at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import Final

import numpy as np
import numpy.typing as npt

from tidemark.hudi_format.model import ShardId
from tidemark.index_assigner.domain.reduce import Int64Array

HOT: Final = np.dtype(
    [
        ("location", np.int32),
        ("shard", np.int32),
        ("ordering", np.int64),
        ("has_ordering", np.bool_),
        ("exact", np.bool_),
    ]
)
HotArray = npt.NDArray[np.void]
_NONE: Final = -1
_ENTRY_OVERHEAD: Final = 200 + HOT.itemsize


class HotCache:
    """Entry key (`rocks_layout.composite_keys`) -> location and ordering value."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._slots: dict[bytes, int] = {}
        self._rows = np.empty(0, HOT)
        self._used = np.empty(0, np.int64)
        self._key_of = np.empty(0, object)
        self._free: list[int] = []
        self._tick = 0
        self._key_bytes = 0

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def nbytes(self) -> int:
        """Estimated memory held, in bytes; at most the limit after each call."""
        return self._key_bytes + len(self._slots) * _ENTRY_OVERHEAD

    def get(self, keys: list[bytes]) -> tuple[npt.NDArray[np.bool_], HotArray]:
        """Returns whether each key is held, and the entries of the held ones, in their order."""
        slots = self._find(keys)
        held = slots >= 0
        self._tick += 1
        self._used[slots[held]] = self._tick
        return held, self._rows[slots[held]]

    def put(self, keys: list[bytes], rows: HotArray) -> None:
        """Adds or replaces entries. ``keys`` must be unique."""
        self._tick += 1
        slots = self._find(keys)
        new = np.flatnonzero(slots < 0)
        if new.size:
            new_keys = [keys[position] for position in new.tolist()]
            slots[new] = self._take_slots(len(new))
            self._slots.update(zip(new_keys, slots[new].tolist(), strict=True))
            self._key_of[slots[new]] = _objects(new_keys)
            self._key_bytes += sum(map(len, new_keys))
        self._rows[slots] = rows
        self._used[slots] = self._tick
        if self.nbytes > self._bytes_max:
            self._evict()

    def remove(self, keys: Iterable[bytes]) -> None:
        """Forgets these keys; keys that are not held are ignored."""
        slots = [slot for key in keys if (slot := self._slots.pop(key, _NONE)) >= 0]
        self._release(slots)

    def drop_shards(self, shards: Iterable[ShardId]) -> None:
        """Forgets all keys of these shards."""
        numbers = list(shards)
        if not numbers:
            return
        live = np.fromiter(self._slots.values(), np.int64, len(self._slots))
        gone = live[np.isin(self._rows["shard"][live], numbers)]
        self.remove(self._key_of[gone].tolist())

    def _find(self, keys: list[bytes]) -> Int64Array:
        return np.fromiter(map(self._slots.get, keys, repeat(_NONE)), np.int64, len(keys))

    def _take_slots(self, count: int) -> list[int]:
        missing = count - len(self._free)
        if missing > 0:
            size = len(self._rows)
            grown = max(missing, size // 2)
            self._rows = np.concatenate([self._rows, np.empty(grown, HOT)])
            self._used = np.concatenate([self._used, np.zeros(grown, np.int64)])
            self._key_of = np.concatenate([self._key_of, np.empty(grown, object)])
            self._free.extend(range(size, size + grown))
        taken = self._free[-count:]
        del self._free[-count:]
        return taken

    def _evict(self) -> None:
        """Evicts down to about seven eighths of the limit, counting each entry with the average size."""
        live = np.fromiter(self._slots.values(), np.int64, len(self._slots))
        average = self.nbytes / len(live)
        excess = self.nbytes - self._bytes_max * 7 // 8
        count = min(len(live), int(excess / average) + 1)
        # `argpartition` finds the `count` smallest ticks without sorting all: of the ticks [9, 2, 7] with
        # count 2 it puts the positions 1 and 2 first, in any order.
        oldest = live[np.argpartition(self._used[live], count - 1)[:count]]
        self.remove(self._key_of[oldest].tolist())
        if self.nbytes > self._bytes_max:
            self.remove(list(self._slots))

    def _release(self, slots: list[int]) -> None:
        self._key_bytes -= sum(map(len, self._key_of[slots].tolist()))
        self._key_of[slots] = None
        self._free.extend(slots)


def _objects(items: list[bytes]) -> npt.NDArray[np.object_]:
    # `np.array(items)` would make an array of fixed-width bytes, which loses trailing zero bytes of keys.
    out = np.empty(len(items), object)
    out[:] = items
    return out
