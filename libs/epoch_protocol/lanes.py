"""Lanes: the unit of ownership of both stages (ARCHITECTURE.md, "Words")."""

from __future__ import annotations

from collections.abc import Sequence


def lane_of_shard(shard: int, lanes: int) -> int:
    """The assign lane that owns a record index shard; batches carry the shard, topics the lane."""
    return shard % lanes


def shards_of_lane(lane: int, lanes: int, num_shards: int) -> Sequence[int]:
    """All shards that the lane owns, ascending."""
    return range(lane, num_shards, lanes)


def shuffle_lane(topic: str, partition: int) -> str:
    """Name of a shuffle lane: an input topic-partition."""
    return f"{topic}:{partition}"


def parse_shuffle_lane(lane: str) -> tuple[str, int]:
    """(topic, partition) of a shuffle lane; topics cannot hold ':' (Kafka's own rule)."""
    topic, _, partition = lane.rpartition(":")
    return topic, int(partition)


def assign_lane(lane: int) -> str:
    """Name of an assign lane in ledger entries."""
    return str(lane)
