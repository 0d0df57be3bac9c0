"""What identifies a row: its record key, or, with a partitioned record index, its partition path and key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.epoch_protocol.batches import KEY, PARTITION
from tidemark.hudi_format.index_definitions import IndexKind
from tidemark.hudi_format.partitioned_lanes import identity_lanes
from tidemark.hudi_format.record_index_hash import record_index_shard

# Why a delete is refused, by where it would name its partition.
IN_FIELD: Final = "partition field {} of a delete is null or missing, and the index is partitioned"
IN_KEY: Final = "a delete by its Kafka key names no partition, and the index is partitioned"


@dataclass(frozen=True)
class RowIdentity:
    """``is_partitioned``: the table has partition fields, so that there are several partitions."""

    kind: IndexKind
    is_partitioned: bool
    num_shards: int
    lanes: int

    @property
    def needs_partition(self) -> bool:
        """Whether a delete has to name the partition of its row."""
        return self.kind is IndexKind.PARTITIONED and self.is_partitioned

    def shards(self, rows: pa.RecordBatch) -> npt.NDArray[np.int32]:
        """The number from which each keyed row's lane follows: the shard of its key. With a partitioned index
        it is the lane itself, as each partition has shards of its own, whose number may not be known yet.
        """
        keys = rows.column(KEY)
        if self.kind is IndexKind.GLOBAL:
            return record_index_shard(keys, self.num_shards)
        paths = rows.column(PARTITION)
        return identity_lanes(keys, paths.indices.to_numpy(), paths.dictionary.to_pylist(), self.lanes)
