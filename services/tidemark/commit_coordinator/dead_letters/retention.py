"""How many dead letters Kafka keeps, will delete soon, and has deleted, so that an operator is warned in
time.

Kafka deletes them by the topic's settings (`limits.dead_letter_retention`, `limits.dead_letter_bytes`). A
letter is *expiring* in the last fifth of its time, and also once the letters behind it fill four fifths of
the space. Sizes are estimated by the mean of the newest letters before compression, so the real size is less.

Example: with a retention of 10 days letters of 8 days and more are expiring.
"""

from __future__ import annotations

from typing import Final

from tidemark.config import TableConfigFile
from tidemark.ledger_client.dead_letters import LetterRetention
from tidemark.ledger_client.topics import TopicNames
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.kafka.ports import Isolation, KafkaClient, TopicPartition

_EXPIRING_FROM: Final = 0.8
_SAMPLE_OFFSETS: Final = 100
_SAMPLE_BYTES: Final = 4 << 20
_SAMPLE_S: Final = 5.0


def retention_now(client: KafkaClient, config: TableConfigFile, clock: Clock) -> LetterRetention:
    """Asks Kafka how many offsets are kept, expiring and deleted. Raises KafkaError."""
    partition = TopicPartition(TopicNames(config.table.name).dead_letter, 0)
    admin = client.admin()
    try:
        if not admin.partitions(partition.topic):
            return LetterRetention()
        start = admin.start_offset(partition)
        end = admin.end_offset(partition, Isolation.READ_COMMITTED)
        limits = config.limits
        old_ms = clock.now_ms() - int(limits.dead_letter_retention_ms * _EXPIRING_FROM)
        young = min(admin.offsets_for_time([partition], old_ms)[partition], end)
    finally:
        admin.close()
    mean = _mean_bytes(client, partition, start, end)
    fitting = int(limits.dead_letter_bytes * _EXPIRING_FROM / mean) if mean else end - start
    return LetterRetention(end - start, max(young - start, end - start - fitting, 0), start)


def _mean_bytes(client: KafkaClient, partition: TopicPartition, start: int, end: int) -> float:
    """The mean bytes of an offset, by the newest letters; 0 when there are none."""
    first = max(start, end - _SAMPLE_OFFSETS)
    if first >= end:
        return 0.0
    reader = client.partition_reader(Isolation.READ_COMMITTED)
    try:
        reader.assign({partition: first})
        messages = reader.poll(_SAMPLE_OFFSETS, _SAMPLE_S, _SAMPLE_BYTES)
    finally:
        reader.close()
    sizes = sum(
        len(letter.value or b"")
        + len(letter.key or b"")
        + sum(len(name) + len(value or b"") for name, value in letter.headers)
        for letter in messages
    )
    return sizes / (messages[-1].offset + 1 - first) if messages else 0.0


def expiry_warning(letters: LetterRetention | None) -> list[str]:
    """The warning about expiring letters, for `tidemark status`. None: nothing is known yet."""
    if letters is None or not letters.expiring:
        return []
    return [
        f"{letters.expiring} of {letters.kept} offsets of dead letters are deleted next: replay what is "
        "wanted (`tidemark dead-letter replay`), or raise limits.dead_letter_retention or "
        "limits.dead_letter_bytes"
    ]
