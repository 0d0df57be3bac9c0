"""Reads a sample: the newest records of a topic, or a file of JSON records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tidemark.console.errors import CliError
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.kafka.ports import Isolation, KafkaClient, Message, TopicPartition
from tidemark.stream_runtime.retry import Deadline

_BYTES_MAX: Final = 64 << 20
_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 0.2
_POLL_MESSAGES: Final = 500


def read_topic(client: KafkaClient, topic: str, records: int, clock: Clock) -> list[Message]:
    """Up to `records` of the newest committed records, as many from each partition, ordered by their
    timestamps.

    Raises CliError when the topic is missing, empty or shows no committed record, KafkaError.
    """
    admin = client.admin()
    try:
        partitions = admin.partitions(topic)
        if partitions is None:
            raise CliError(f"there is no topic {topic} (or this user may not see it)")
        ends: dict[TopicPartition, int] = {}
        starts: dict[TopicPartition, int] = {}
        for at in (TopicPartition(topic, number) for number in range(partitions)):
            end, first = admin.end_offset(at, Isolation.READ_COMMITTED), admin.start_offset(at)
            if end > first:
                ends[at], starts[at] = end, max(first, end - max(records // partitions, 1))
    finally:
        admin.close()
    if not ends:
        raise CliError(f"topic {topic} is empty: produce some records, or give them with --sample FILE")
    messages = _read(client, starts, ends, clock)
    if not messages:
        raise CliError(f"topic {topic} shows no committed record: is a transaction open?")
    messages.sort(key=lambda message: (message.timestamp_ms, message.partition, message.offset))
    return messages[-records:]


def _read(
    client: KafkaClient, starts: dict[TopicPartition, int], ends: dict[TopicPartition, int], clock: Clock
) -> list[Message]:
    reader = client.partition_reader(Isolation.READ_COMMITTED)
    deadline = Deadline(clock, _TIMEOUT_S)
    messages: list[Message] = []
    size = 0
    try:
        reader.assign(starts)
        while size < _BYTES_MAX and any(reader.position(at) < end for at, end in ends.items()):
            if deadline.is_over and messages:
                break
            deadline.check(f"reading a sample of {next(iter(ends)).topic}")
            polled = reader.poll(_POLL_MESSAGES, _POLL_S)
            messages += polled
            size += sum(len(message.value or b"") for message in polled)
    finally:
        reader.close()
    return messages


def read_file(path: Path, records: int) -> list[Message]:
    """The first `records` of a file that has one JSON object per line, or one JSON array of objects. Raises
    CliError, OSError.
    """
    if path.stat().st_size > _BYTES_MAX:
        raise CliError(f"{path} is larger than {_BYTES_MAX >> 20} MiB: a thousand records are enough")
    content = path.read_bytes()
    values: Sequence[bytes]
    if content.lstrip().startswith(b"["):
        try:
            values = [json.dumps(value).encode() for value in json.loads(content)]
        except ValueError as error:
            raise CliError(f"{path} is no JSON array: {error}") from None
    else:
        values = [line for line in content.splitlines() if line.strip()]
    if not values:
        raise CliError(f"{path} is empty: it should hold one JSON object per line")
    return [Message(path.name, 0, number, None, value) for number, value in enumerate(values[:records])]
