"""The names of a table's topics, and the settings with which they are created.

A partition count is never changed afterwards. Only tombstones and dead letters are deleted by time; the other
topics lose committed messages by explicit offsets (ARCHITECTURE.md, "Trimming").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidemark.config.model import TableConfigFile
from tidemark.stream_runtime.kafka.ports import TopicPartition, TopicSpec

TOPIC_MARGIN_BYTES: Final = 64 << 10
"""How much a topic's `max.message.bytes` (of a batch after compression) exceeds the producers'
`message.max.bytes` (of a message before compression).
"""
TOMBSTONE_MARGIN_MS: Final = 6 * 3_600_000
"""The topic keeps tombstones this much longer than they hold, so that a process that restarts within that
time finds all that still hold.
"""
_DATA_PARTITIONS_MAX: Final = 16
SEGMENT_BYTES: Final = 64 << 20
"""Kafka deletes whole segments: its default of 1 GiB would keep that much per partition beyond what
counts.
"""
_SEGMENT_MS: Final = 86_400_000


_REPLICAS_FOR_TWO_IN_SYNC: Final = 3


@dataclass(frozen=True, slots=True)
class TopicNames:
    """The names of one table's topics. Users' scripts rely on `<table>.<role>`."""

    table: str

    @property
    def keyed(self) -> str:
        return f"{self.table}.keyed"

    @property
    def data(self) -> str:
        return f"{self.table}.data"

    @property
    def index(self) -> str:
        return f"{self.table}.index"

    @property
    def tombstones(self) -> str:
        return f"{self.table}.tombstones"

    @property
    def ledger(self) -> str:
        return f"{self.table}.ledger"

    @property
    def epochs(self) -> str:
        """The topic of the coordinator's decisions."""
        return f"{self.table}.epochs"

    @property
    def dead_letter(self) -> str:
        return f"{self.table}.dead-letter"

    @property
    def ledger_partition(self) -> TopicPartition:
        return TopicPartition(self.ledger, 0)

    @property
    def epochs_partition(self) -> TopicPartition:
        return TopicPartition(self.epochs, 0)


def topic_specs(
    config: TableConfigFile, replication: int = -1, segment_bytes: int = 1 << 30
) -> list[TopicSpec]:
    """Tidemark's own topics of a table, with the broker's default replication factor.

    `replication`: that default; when it is 3 or more, a message counts as written once two replicas have it.
    -1: not known, so the broker's own `min.insync.replicas` holds. `segment_bytes`: the broker's default. No
    segment is larger, nor larger than `SEGMENT_BYTES` (or one message, where that is more).

    `keyed`, `index` and `tombstones` have one partition per lane. `data` has as many, but at most 16, because
    a transaction's cost grows with the partitions that it touches. Ledger and decisions have one.
    """
    names = TopicNames(config.table.name)
    lanes = config.table.index.lanes
    tombstones_ms = config.table.index.tombstone_ttl_ms + TOMBSTONE_MARGIN_MS
    partitions = {
        names.keyed: lanes,
        names.data: min(lanes, _DATA_PARTITIONS_MAX),
        names.index: lanes,
        names.tombstones: lanes,
        names.ledger: 1,
        names.epochs: 1,
        names.dead_letter: 1,
    }
    settings = {
        name: _settings(
            config.limits.message_bytes,
            tombstones_ms if name == names.tombstones else -1,
            replication,
            segment_bytes,
        )
        for name in partitions
    }
    settings[names.dead_letter] |= dead_letter_settings(config)
    return [TopicSpec(name, count, config=settings[name]) for name, count in partitions.items()]


def dead_letter_settings(config: TableConfigFile) -> dict[str, str]:
    """The topic settings that limit how long, and up to what size, dead letters are kept.

    Kafka deletes whole segments, so these are small: the topic exceeds the limits by at most one segment or
    one day.
    """
    limits = config.limits
    message_max = limits.message_bytes + TOPIC_MARGIN_BYTES
    return {
        "retention.ms": str(limits.dead_letter_retention_ms),
        "retention.bytes": str(max(limits.dead_letter_bytes - SEGMENT_BYTES, message_max)),
        "segment.bytes": str(max(SEGMENT_BYTES, message_max)),
        "segment.ms": str(min(_SEGMENT_MS, limits.dead_letter_retention_ms)),
    }


def input_topic_specs(config: TableConfigFile) -> list[TopicSpec]:
    """The input topics that `tidemark run` creates where they do not exist, with the broker's retention."""
    return [TopicSpec(topic, config.input.partitions) for topic in config.input.topics]


def _settings(message_bytes: int, retention_ms: int, replication: int, segment_bytes: int) -> dict[str, str]:
    message_max = message_bytes + TOPIC_MARGIN_BYTES
    settings = {
        "cleanup.policy": "delete",
        "retention.ms": str(retention_ms),
        "retention.bytes": "-1",
        "max.message.bytes": str(message_max),
        # Kafka deletes whole segments: trimmed records stay until their segment is full, on each partition.
        "segment.bytes": str(min(segment_bytes, max(SEGMENT_BYTES, message_max))),
        # Tidemark compresses where that pays; the broker must not compress again.
        "compression.type": "producer",
        # Deletion and lookup by time need the time of arrival, not the time that a producer states.
        "message.timestamp.type": "LogAppendTime",
    }
    if replication >= _REPLICAS_FOR_TWO_IN_SYNC:
        # An acknowledged message survives the loss of one broker, and writes go on while one broker is away.
        settings["min.insync.replicas"] = "2"
    return settings
