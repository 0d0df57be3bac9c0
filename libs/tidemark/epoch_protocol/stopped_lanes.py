"""A lane that is not read any further until somebody acts, and why. The other lanes go on.

Who stops a lane: its owner, when the bytes at an offset cannot be read or are deleted; the coordinator, when
the topic is not the one that was read before. It is no entry of the ledger: owners tell the coordinator with
each renewal of their lease, and a new owner finds the same cause again.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec

from tidemark.epoch_protocol.entries import Stage


class StopReason(StrEnum):
    """Why; the values are a contract with readers of `tidemark status --json` and of the metric."""

    UNREADABLE = "unreadable"
    """Kafka hands out a record batch that no client can read: broken or endless compression, a wrong
    checksum."""
    DEADLY = "deadly"
    """Who fetches or decodes it dies, most likely since it unpacks to more memory than there is."""
    HANGS = "hangs"
    """Who decodes the record never ends: two processes were ended that decoded nothing else."""
    DELETED = "deleted"
    """Retention, or delete-records, deleted records before they were read."""
    TOPIC_RECREATED = "topic-recreated"
    """The topic was deleted and made again: its offsets mean other records than those that were read."""
    TOPIC_MISSING = "topic-missing"
    """The topic does not exist any more."""
    TOPIC_GROWN = "topic-grown"
    """With `input.partitioning: shard`: the topic has more partitions than there are lanes."""

    @property
    def is_of_topic(self) -> bool:
        """Whether it stops all lanes of a topic alike, so that it is said once."""
        return self in (StopReason.TOPIC_RECREATED, StopReason.TOPIC_MISSING, StopReason.TOPIC_GROWN)


class StoppedLane(msgspec.Struct, frozen=True):
    """``offset``: of the input topic, the next one to be read. ``since_ms``: epoch milliseconds.

    ``lane`` is the stage's name of it (`epoch_protocol.lanes`), ``detail`` is for people.
    """

    stage: Stage
    lane: str
    topic: str
    partition: int
    offset: int
    reason: StopReason
    detail: str
    since_ms: int

    def sentence(self) -> str:
        """For people: what stands where, and why."""
        return (
            f"{self.topic}[{self.partition}] is not read any further than offset {self.offset} "
            f"({self.reason.value}): {self.detail}"
        )


class SkipOrder(NamedTuple):
    """A stopped lane is to move past what it stands at: the record batch at ``offset``, or all that was
    deleted from there on.
    """

    id: str
    lane: str
    offset: int


class SkipResult(NamedTuple):
    """What became of an order: offsets ``first`` to ``last`` are passed over with the owner's next
    transaction. ``failure``: why nothing is; empty otherwise.
    """

    id: str
    first: int
    last: int
    failure: str = ""
