"""Stopped lanes: a lane that nobody reads any further until an operator acts. All other lanes go on.

A lane's owner stops it when the bytes at an offset cannot be read or were deleted; the coordinator stops it
when the topic is not the one that was read before. A stop is no entry of the ledger: the owner reports it to
the coordinator with each renewal of its lease, and a new owner of the lane finds the same cause again.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec

from tidemark.epoch_protocol.entries import Stage


class StopReason(StrEnum):
    """Why a lane is stopped. Readers of `tidemark status --json` and of the metric rely on the values."""

    UNREADABLE = "unreadable"
    """No client can read a record batch that Kafka returns: its compression is broken or unpacks without
    end, or its checksum is wrong.
    """
    DEADLY = "deadly"
    """Processes die while they fetch or decode the record, most likely because it unpacks to more memory than
    there is.
    """
    HANGS = "hangs"
    """Decoding the record never ends: two processes that decoded nothing else had to be ended."""
    DELETED = "deleted"
    """Retention or `kafka-delete-records` deleted records before Tidemark read them."""
    TOPIC_RECREATED = "topic-recreated"
    """The topic was deleted and created again: its offsets name other records than those that were read."""
    TOPIC_MISSING = "topic-missing"
    """The topic does not exist any more."""
    TOPIC_GROWN = "topic-grown"
    """With `input.partitioning: shard`: the topic has more partitions than there are lanes."""

    @property
    def is_of_topic(self) -> bool:
        """Whether the reason stops all lanes of a topic alike, so that it is reported once for the topic."""
        return self in (StopReason.TOPIC_RECREATED, StopReason.TOPIC_MISSING, StopReason.TOPIC_GROWN)


class StoppedLane(msgspec.Struct, frozen=True):
    """A lane that was stopped before ``offset`` of ``partition`` of the input topic ``topic``.

    ``lane`` is the lane's name in its stage (`epoch_protocol.lanes`), ``detail`` a text for people,
    ``since_ms`` the time of the stop in epoch milliseconds.
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
        """One sentence for people: the partition, the offset and the reason."""
        return (
            f"{self.topic}[{self.partition}] is not read any further than offset {self.offset} "
            f"({self.reason.value}): {self.detail}"
        )


class SkipOrder(NamedTuple):
    """An operator's order to move a stopped lane past the record batch at ``offset``, or past all records
    that were deleted from there on.
    """

    id: str
    lane: str
    offset: int


class SkipResult(NamedTuple):
    """The outcome of a `SkipOrder`: the owner's next transaction passes over the offsets ``first`` to
    ``last``, both inclusive. ``failure`` says why it passes over nothing; it is empty otherwise.
    """

    id: str
    first: int
    last: int
    failure: str = ""
