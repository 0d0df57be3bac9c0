"""Lanes: the unit of ownership of both stages (ARCHITECTURE.md, "Words")."""

from __future__ import annotations

from collections.abc import Sequence


def lane_of_shard(shard: int, lanes: int) -> int:
    """The assign lane that owns a record index shard; batches carry the shard, topics the lane."""
    return shard % lanes


def shards_of_lane(lane: int, lanes: int, num_shards: int) -> Sequence[int]:
    """All shards that the lane owns, ascending."""
    return range(lane, num_shards, lanes)


def shuffle_lane(topic: str, partition: int, incarnation: int = 1) -> str:
    """Name of a shuffle lane: an input topic-partition, ``orders:0``.

    A topic that was deleted and made again is another log under the same name: its offsets begin at 0. Once
    it is accepted its lanes are ``orders@2:0``, then ``orders@3:0``, …, so a position in the former log is
    never taken for one in the new log. Topic names can hold neither ':' nor '@' (Kafka's own rule).
    """
    return f"{topic}:{partition}" if incarnation == 1 else f"{topic}@{incarnation}:{partition}"


def parse_shuffle_lane(lane: str) -> tuple[str, int]:
    """(topic, partition) of a shuffle lane, whichever incarnation of the topic it reads."""
    log, partition = split_lane(lane)
    return parse_input_log(log)[0], int(partition)


def split_lane(lane: str) -> tuple[str, str]:
    """(log, partition) of a lane; the log is the topic, with its incarnation from the second on:
    ``orders@2``.
    """
    log, _, partition = lane.rpartition(":")
    return log, partition


def parse_input_log(log: str) -> tuple[str, int]:
    """(topic, incarnation) of what `split_lane` calls the log."""
    topic, _, incarnation = log.partition("@")
    return topic, int(incarnation) if incarnation else 1


def assign_lane(lane: int) -> str:
    """Name of an assign lane in ledger entries."""
    return str(lane)
