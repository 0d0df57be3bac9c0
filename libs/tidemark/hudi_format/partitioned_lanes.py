"""The lane of a row in a table with a partitioned record index, where (partition path, record key) identifies
a row.

    lane = (|hash(key)| + |hash(partition path)|) mod lanes        hash: Java's String.hashCode

The number of a partition's shards takes no part, because it is unknown while the partition has no file
groups, and may change. Yet the cached groups of an assigner do not multiply with its lanes: a key's shard is
|hash(key)| mod shards, so all keys of a shard have one lane where `lanes` divides that number.

    partition eu: |hash| 3248, 8 shards; 4 lanes       key k1: |hash| 3366, shard 6, lane 6614 mod 4 = 2
                                                       every key of shard 6: lane (6 + 3248) mod 4 = 2

Stored positions in topics belong to lanes, so this function never changes under its name, which is
stored with the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.hudi_format.record_index_hash import java_hash
from tidemark.hudi_format.storage.documents import ROOT

LANE_FUNCTION: Final = "java-hash-sum"
"""Another function takes another name."""
LANE_FUNCTION_PATH: Final = f"{ROOT}/lane-function"
"""Has the name of the function by which rows in the table's topics got their lanes. There is none where the
topics are those of a global index.
"""


def identity_lanes(
    keys: pa.StringArray,
    partition_ids: npt.NDArray[np.int32],
    partitions: Sequence[str],
    lanes: int,
) -> npt.NDArray[np.int32]:
    """The lane of each (`partitions[partition_ids[i]]`, `keys[i]`). Raises ValueError for a null key."""
    if not len(keys):
        return np.empty(0, np.int32)
    of_key, of_path = _magnitudes(keys), _magnitudes(pa.array(partitions, pa.string()))
    lane: npt.NDArray[np.int32] = ((of_key + of_path[partition_ids]) % lanes).astype(np.int32)
    return lane


def _magnitudes(texts: pa.StringArray) -> npt.NDArray[np.int64]:
    magnitudes: npt.NDArray[np.int64] = np.abs(java_hash(texts).astype(np.int64))
    return magnitudes
