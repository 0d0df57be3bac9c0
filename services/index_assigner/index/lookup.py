"""The answer for `tidemark lookup`: one key, the tier that knew it, and what is known."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from epoch_protocol.lanes import lane_of_shard
from hudi_format.record_index_hash import record_index_shard
from index_assigner.domain.locations import Locations
from index_assigner.index.ports import KeyIndex, Tier


@dataclass(frozen=True, slots=True)
class KeyAnswer:
    """What the index knows of one key.

    ``partition_path``/``file_id``: where a present key lives, or where an absent one was deleted from (None:
    not known). ``ordering``: the order-preserving int64 of the row's ordering value, or of an absent key's
    tombstone; None where none is known. ``exact``: that value is the stored one, not a lower bound.
    """

    key: str
    shard: int
    lane: int
    present: bool
    tier: str
    partition_path: str | None
    file_id: str | None
    ordering: int | None
    exact: bool


def look_up_key(index: KeyIndex, locations: Locations, key: str, num_shards: int, lanes: int) -> KeyAnswer:
    """Asks the index as the assign stage does; the key's lane must be open (LaneNotOpenError)."""
    keys = pa.array([key], pa.string())
    shards = record_index_shard(keys, num_shards)
    lane = lane_of_shard(int(shards[0]), lanes)
    answer = index.lookup(lane, keys, shards)
    stored = answer.stored
    present = bool(stored.present[0])
    location = int(stored.location[0] if present else answer.deleted_from[0])
    return KeyAnswer(
        key=key,
        shard=int(shards[0]),
        lane=lane,
        present=present,
        tier=Tier(int(answer.tier[0])).name,
        partition_path=locations.partition_paths[location] if location >= 0 else None,
        file_id=locations.file_ids[location] if location >= 0 else None,
        ordering=int(stored.ordering[0]) if stored.has_ordering[0] else None,
        exact=bool(stored.exact[0]),
    )
