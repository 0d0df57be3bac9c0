"""What is on its way within the in-memory cluster: markers, and requests that a fault holds back."""

from __future__ import annotations

from typing import NamedTuple

from tidemark.stream_runtime.kafka.ports import Headers, TopicPartition


class PendingMarker(NamedTuple):
    """The end of a transaction that a partition has not been told yet."""

    due_s: float
    topic_partition: TopicPartition
    producer_id: int
    commit: bool


class LateEnd(NamedTuple):
    """A commit or abort."""

    transactional_id: str
    epoch: int
    commit: bool


class LateMessage(NamedTuple):
    """A message of a transaction. ``known``: a copy, whose sequence number the broker has seen."""

    transactional_id: str
    epoch: int
    topic_partition: TopicPartition
    key: bytes | None
    value: bytes | None
    headers: Headers
    known: bool
