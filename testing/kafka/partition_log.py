"""One partition: records and markers by offset, and which of them a reader may see.

Invariants: offsets are dense from `start` to `end` (markers included); a record is OPEN exactly while its
producer's transaction is; the last stable offset is the first OPEN record's, or the end. Records below the
start are kept: a broker that was killed may not know any more that they were deleted (`put_start_back`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from tidemark.stream_runtime.kafka.errors import OffsetOutOfRangeError
from tidemark.stream_runtime.kafka.ports import Headers, Isolation, Message, TopicPartition


class Visibility(Enum):
    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    MARKER = "marker"


@dataclass(slots=True)
class StoredRecord:
    """`producer_id` -1: not part of a transaction."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    producer_id: int
    visibility: Visibility


@dataclass(slots=True)
class PartitionLog:
    topic_partition: TopicPartition
    start: int = 0
    _records: list[StoredRecord] = field(default_factory=list)
    _former_starts: list[int] = field(default_factory=list)
    _open: dict[int, list[int]] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """The high watermark."""
        return len(self._records)

    @property
    def last_stable(self) -> int:
        return min(offsets[0] for offsets in self._open.values()) if self._open else len(self._records)

    def end_for(self, isolation: Isolation) -> int:
        return self.last_stable if isolation is Isolation.READ_COMMITTED else self.end

    def has_open(self, producer_id: int) -> bool:
        """True while the producer has a transaction here whose marker is not written."""
        return producer_id in self._open

    def append(self, record: StoredRecord) -> int:
        offset = self.end
        self._records.append(record)
        if record.visibility is Visibility.OPEN:
            self._open.setdefault(record.producer_id, []).append(offset)
        return offset

    def end_transaction(self, producer_id: int, commit: bool, timestamp_ms: int) -> None:
        """Writes the marker and decides the producer's open records."""
        outcome = Visibility.COMMITTED if commit else Visibility.ABORTED
        for offset in self._open.pop(producer_id, ()):
            self._records[offset].visibility = outcome
        self.append(StoredRecord(None, None, (), timestamp_ms, producer_id, Visibility.MARKER))

    def read(self, position: int, isolation: Isolation, messages_max: int) -> tuple[list[Message], int]:
        """Visible messages from `position` on, and the position after them (past what is never visible).

        Raises OffsetOutOfRangeError; never jumps.
        """
        if not self.start <= position <= len(self._records):
            topic, partition = self.topic_partition
            raise OffsetOutOfRangeError(
                f"{topic}[{partition}] has offsets {self.start} to {self.end}, and {position} was asked for"
            )
        limit = self.end_for(isolation)
        if position >= limit:
            return [], position
        messages: list[Message] = []
        while position < limit and len(messages) < messages_max:
            record = self._records[position]
            if _is_visible(record.visibility, isolation):
                topic, partition = self.topic_partition
                messages.append(
                    Message(
                        topic,
                        partition,
                        position,
                        record.key,
                        record.value,
                        record.headers,
                        record.timestamp_ms,
                    )
                )
            position += 1
        return messages, position

    def delete_below(self, offset: int) -> int:
        """Deletes what is below `offset`; returns the start. Raises OffsetOutOfRangeError beyond the end."""
        if offset > self.end:
            topic, partition = self.topic_partition
            raise OffsetOutOfRangeError(
                f"{topic}[{partition}] ends at {self.end}: cannot delete below {offset}"
            )
        if offset > self.start:
            self._former_starts.append(self.start)
            self.start = offset
        return self.start

    def put_start_back(self, deletions: int) -> None:
        """As after the broker was killed: Kafka notes starts once a minute, so the newest deletions that it
        answered may be forgotten, and their records are there again.
        """
        for _ in range(min(deletions, len(self._former_starts))):
            self.start = self._former_starts.pop()

    def offset_for_time(self, timestamp_ms: int) -> int:
        for offset in range(self.start, self.end):
            record = self._records[offset]
            if record.timestamp_ms >= timestamp_ms and record.visibility is not Visibility.MARKER:
                return offset
        return self.end

    def expire_before(self, timestamp_ms: int) -> None:
        """Time retention: deletes from the start while records are older and decided. Files go: for good."""
        offset = self.start
        while offset < self.last_stable and self._records[offset].timestamp_ms < timestamp_ms:
            offset += 1
        if offset > self.start:
            self.start = offset
            self._former_starts.clear()


def _is_visible(visibility: Visibility, isolation: Isolation) -> bool:
    if visibility is Visibility.MARKER:
        return False
    return isolation is Isolation.READ_UNCOMMITTED or visibility is Visibility.COMMITTED
