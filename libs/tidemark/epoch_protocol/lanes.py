"""Lanes: the unit of ownership of both stages (ARCHITECTURE.md, "Words")."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

Shards = TypeVar("Shards", int, npt.NDArray[np.int32])


def lane_of_shard(shard: Shards, lanes: int) -> Shards:
    """The assign lane that owns a record index shard, or of each shard of an array; batches carry the shard,
    topics are split by lane.
    """
    return shard % lanes


def shards_of_lane(lane: int, lanes: int, num_shards: int) -> Sequence[int]:
    """All shards that the lane owns, in ascending order."""
    return range(lane, num_shards, lanes)


def shuffle_lane(topic: str, partition: int, incarnation: int = 1) -> str:
    """The name of a shuffle lane, which is an input topic-partition: ``orders:0``.

    A topic that was deleted and created again is another log under the same name; its offsets begin at 0.
    Once an operator accepts it, its lanes are named ``orders@2:0``, later ``orders@3:0``, so a position in
    the former log is never taken for one in the new log. Kafka allows neither ':' nor '@' in a topic name.
    """
    return f"{topic}:{partition}" if incarnation == 1 else f"{topic}@{incarnation}:{partition}"


def parse_shuffle_lane(lane: str) -> tuple[str, int]:
    """(topic, partition) of a shuffle lane, without the incarnation of the topic."""
    log, partition = split_lane(lane)
    return parse_input_log(log)[0], int(partition)


def split_lane(lane: str) -> tuple[str, str]:
    """(log, partition) of a shuffle lane. The log is the topic's name, followed by its incarnation from the
    second one on: ``orders@2``.
    """
    log, _, partition = lane.rpartition(":")
    return log, partition


def parse_input_log(log: str) -> tuple[str, int]:
    """(topic, incarnation) of a log as `split_lane` names it: ``orders@2`` is ("orders", 2)."""
    topic, _, incarnation = log.partition("@")
    return topic, int(incarnation) if incarnation else 1


def assign_lane(lane: int) -> str:
    """The name of an assign lane in ledger entries."""
    return str(lane)
