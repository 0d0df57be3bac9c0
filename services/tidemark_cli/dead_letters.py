"""Reads `<table>.dead-letter`. Its headers are described in `index_assigner.shuffle.dead_letters`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from index_assigner.shuffle.dead_letters import (
    HEADER_DETAIL,
    HEADER_OFFSET,
    HEADER_PARTITION,
    HEADER_REASON,
    HEADER_TOPIC,
)
from stream_runtime.clock import Clock
from stream_runtime.kafka.ports import OFFSET_BEGINNING, Isolation, KafkaClient, Message, TopicPartition
from stream_runtime.kafka.topics import TopicNames
from stream_runtime.retry import Deadline

_POLL_MESSAGES: Final = 2_000
_POLL_S: Final = 0.2
_TIMEOUT_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One refused record: why, and where it lies in the input."""

    reason: str
    topic: str
    partition: int
    offset: int
    detail: str

    @classmethod
    def of(cls, message: Message) -> DeadLetter:
        """From a message of the dead-letter topic; headers that are missing read as "?" and -1."""
        headers = {name: value.decode("utf-8", "replace") for name, value in message.headers}
        return cls(
            headers.get(HEADER_REASON, "?"),
            headers.get(HEADER_TOPIC, "?"),
            int(headers.get(HEADER_PARTITION, "-1")),
            int(headers.get(HEADER_OFFSET, "-1")),
            headers.get(HEADER_DETAIL, ""),
        )

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "reason": self.reason,
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "detail": self.detail,
        }


def read_dead_letters(client: KafkaClient, table: str, clock: Clock) -> list[DeadLetter]:
    """All dead letters of a table, oldest first; none while the topic does not exist.

    Raises DeadlineExceededError when an open transaction hides the end, KafkaError.
    """
    topic = TopicNames(table).dead_letter
    admin = client.admin()
    try:
        partitions = [TopicPartition(topic, number) for number in range(admin.partitions(topic) or 0)]
        ends = {each: admin.end_offset(each, Isolation.READ_COMMITTED) for each in partitions}
    finally:
        admin.close()
    letters: list[DeadLetter] = []
    reader = client.partition_reader(Isolation.READ_COMMITTED)
    deadline = Deadline(clock, _TIMEOUT_S)
    try:
        reader.assign(dict.fromkeys(partitions, OFFSET_BEGINNING))
        while any(end > 0 and reader.position(each) < end for each, end in ends.items()):
            deadline.check(f"reading {topic}")
            letters += [DeadLetter.of(message) for message in reader.poll(_POLL_MESSAGES, _POLL_S)]
    finally:
        reader.close()
    return letters
