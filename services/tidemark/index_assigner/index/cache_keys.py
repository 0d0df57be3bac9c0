"""Keys of the cache for what lies over the entries of a shard: uncommitted entries, tombstones, notes.

In a table with a global index they have the key of the shard's entry (`rocks_layout`). With a partitioned
one a row is identified by its partition path and record key, and its shard may be unknown (the partition has
no file groups yet), or another one tomorrow. So there the key is

    lane (2 bytes, big-endian), partition path, NUL, record key

A partition path has no NUL in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.hudi_format.model import ShardId
from tidemark.hudi_format.partitioned_lanes import identity_lanes
from tidemark.index_assigner.domain.locations import Int32Array
from tidemark.index_assigner.index.rocks_layout import composite_keys

_NUL = "\0"


class CacheKeys(Protocol):
    """Keys of what is noted of the entries in a shard of the cache."""

    def of_shard(self, number: ShardId, keys: pa.StringArray) -> tuple[npt.NDArray[np.bool_], list[bytes]]:
        """Which of these record keys of the shard are this owner's, and the cache keys of those."""

    def prefix_of(self, number: ShardId) -> ShardId:
        """The number with which the cache keys of the shard begin."""

    def record_keys(self, keys: Sequence[bytes]) -> pa.StringArray:
        """The record keys in cache keys."""


class ShardKeys:
    """`CacheKeys` of a global index."""

    def of_shard(self, number: ShardId, keys: pa.StringArray) -> tuple[npt.NDArray[np.bool_], list[bytes]]:
        """All of them."""
        return np.ones(len(keys), np.bool_), composite_keys(keys, np.full(len(keys), number, np.int32))

    def prefix_of(self, number: ShardId) -> ShardId:
        """The shard itself."""
        return number

    def record_keys(self, keys: Sequence[bytes]) -> pa.StringArray:
        """What follows the shard."""
        return pa.array([key[2:].decode() for key in keys], pa.string())


def identity_keys(
    lane: int, keys: pa.StringArray, partition_ids: Int32Array, partitions: Sequence[str]
) -> list[bytes]:
    """The cache keys of (`partitions[partition_ids[i]]`, `keys[i]`), which belong to the lane."""
    # Each distinct path is written once, and Arrow joins them with the keys without a loop in Python.
    used, which = np.unique(partition_ids, return_inverse=True)
    heads = pa.array([partitions[number] + _NUL for number in used.tolist()], pa.string())
    texts = pc.binary_join_element_wise(heads.take(pa.array(which)), keys, "")
    return composite_keys(texts, np.full(len(keys), lane, np.int32))


def lane_of_partition(keys: pa.StringArray, partition_path: str, lanes: int) -> Int32Array:
    """The lane of each key of one partition."""
    return identity_lanes(keys, np.zeros(len(keys), np.int32), [partition_path], lanes)


def record_keys_of_identities(keys: Sequence[bytes]) -> pa.StringArray:
    """The record keys in keys that `identity_keys` made."""
    return pa.array([key[key.index(0, 2) + 1 :].decode() for key in keys], pa.string())
