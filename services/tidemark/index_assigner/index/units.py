"""Which part of a partitioned record index each shard of the cache is.

A *unit* is what one lane has of one shard of a data partition. Its number is its shard in the cache, where
entries, records and run files are kept by it (`rocks_layout`). Numbers are given out as units are opened;
when all are taken, the unit that was used least lately gives its number up, with what is stored of it.

A partition whose number of shards has changed has other units: keys are in other shards then.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Container
from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.hudi_format.model import ShardId
from tidemark.index_assigner.index.cache_keys import (
    identity_keys,
    lane_of_partition,
    record_keys_of_identities,
)
from tidemark.index_assigner.index.rocks import RocksTier
from tidemark.index_assigner.index.rocks_layout import UNIT_PREFIX, shard_bytes

NUMBERS_MAX: Final = 50_000
_END: Final = UNIT_PREFIX[:1] + bytes([UNIT_PREFIX[1] + 1])


class Unit(NamedTuple):
    """``shards``: how many the partition has."""

    lane: int
    partition_path: str
    shard: ShardId
    shards: int


class Units:
    """The numbers of units, as RocksDB keeps them. For one thread."""

    def __init__(
        self, rocks: RocksTier, forget: Callable[[ShardId], None], numbers_max: int = NUMBERS_MAX
    ) -> None:
        """``forget``: removes what the cache has under a number. Raises CacheCorruptError."""
        self._rocks, self._forget, self._numbers_max = rocks, forget, numbers_max
        self._of: OrderedDict[ShardId, Unit] = OrderedDict()
        for key, value in rocks.items_between(UNIT_PREFIX, _END):
            number = ShardId(int.from_bytes(key[len(UNIT_PREFIX) :], "big"))
            try:
                self._of[number] = msgspec.msgpack.decode(value, type=Unit)
            except msgspec.MsgspecError as error:
                raise rocks.damaged(f"what unit {number} is cannot be read: {error}") from error
        self._numbers = {unit: number for number, unit in self._of.items()}

    def __len__(self) -> int:
        return len(self._of)

    @property
    def at_once(self) -> int:
        """So many numbers can be given out in a row while as many others are open."""
        return self._numbers_max // 2

    def unit(self, number: ShardId) -> Unit:
        """The unit of this number."""
        return self._of[number]

    def known(self, unit: Unit) -> ShardId | None:
        """The number of the unit; None: it has none."""
        return self._numbers.get(unit)

    def number(self, unit: Unit, open_ones: Container[ShardId]) -> ShardId:
        """The number of the unit, which is used now. A new one takes none that is in ``open_ones``, of which
        there must be fewer than numbers.
        """
        known = self._numbers.get(unit)
        if known is not None:
            self._of.move_to_end(known)
            return known
        number = ShardId(len(self._of))
        is_new = number < self._numbers_max
        if not is_new:
            number = self.least_used(open_ones)
            self._forget(number)
        self._rocks.write([([UNIT_PREFIX + shard_bytes(number)], [msgspec.msgpack.encode(unit)])])
        # Only now: where the write fails, the number stays that of its former unit, which has nothing there.
        if not is_new:
            del self._numbers[self._of.pop(number)]
        self._of[number], self._numbers[unit] = unit, number
        return number

    def by_use(self) -> list[ShardId]:
        """All numbers, the one that was used least lately first. Of those that nobody has used since the
        process began the order is that of their numbers, and they come first.
        """
        return list(self._of)

    def least_used(self, open_ones: Container[ShardId]) -> ShardId:
        """The number that was used least lately and is not in ``open_ones``."""
        return next(number for number in self._of if number not in open_ones)


class UnitKeys:
    """`CacheKeys` of a partitioned index."""

    def __init__(self, units: Units, lanes: int) -> None:
        self._units, self._lanes = units, lanes

    def of_shard(self, number: ShardId, keys: pa.StringArray) -> tuple[npt.NDArray[np.bool_], list[bytes]]:
        """Those of the unit's lane: a shard may have keys of other lanes, too."""
        unit = self._units.unit(number)
        mine = lane_of_partition(keys, unit.partition_path, self._lanes) == unit.lane
        names = keys.filter(pa.array(mine))
        zeros = np.zeros(len(names), np.int32)
        return mine, identity_keys(unit.lane, names, zeros, [unit.partition_path])

    def prefix_of(self, number: ShardId) -> ShardId:
        """The lane."""
        return ShardId(self._units.unit(number).lane)

    record_keys = staticmethod(record_keys_of_identities)
