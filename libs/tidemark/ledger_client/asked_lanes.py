"""Which lane answers for record keys that somebody asks for.

With a global record index the key alone says it. With a partitioned one a key may have a row in each of
several partitions, so whoever asks names the partition, for all keys of a question.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.epoch_protocol.lanes import lane_of_shard
from tidemark.hudi_format.index_definitions import IndexKind
from tidemark.hudi_format.partitioned_lanes import identity_lanes
from tidemark.hudi_format.record_index_hash import record_index_shard

Int32Array = npt.NDArray[np.int32]


@dataclass(frozen=True)
class AskedLanes:
    """``kind``: of the table's record index. ``num_shards``: of a global one."""

    kind: IndexKind
    num_shards: int
    lanes: int

    @property
    def is_partitioned(self) -> bool:
        """Whether a question names a partition."""
        return self.kind is IndexKind.PARTITIONED

    def problem(self, partition: str | None) -> str | None:
        """What is wrong with a question that names this partition, None: that names none. None where nothing
        is.
        """
        if self.is_partitioned and partition is None:
            return (
                "the table's record index is partitioned, and a key may have a row in each of several "
                "partitions: name the partition of the keys (`partition`, `tidemark lookup --partition`)"
            )
        if not self.is_partitioned and partition is not None:
            return "the table's record index is global, and a key has one row: ask without a partition"
        return None

    def shards_and_lanes(self, keys: pa.StringArray, partition: str | None) -> tuple[Int32Array, Int32Array]:
        """The shard and the lane of each key, of a question without a problem. With a partitioned index the
        shards are 0: how many shards a partition has belongs to no question.
        """
        if partition is None:
            shards = record_index_shard(keys, self.num_shards)
            return shards, lane_of_shard(shards, self.lanes)
        zeros = np.zeros(len(keys), np.int32)
        return zeros, identity_lanes(keys, zeros, [partition], self.lanes)
