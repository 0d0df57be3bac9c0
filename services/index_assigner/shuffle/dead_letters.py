"""Refused records as messages for ``<table>.dead-letter``.

Key and value are the record's own bytes, cut at a limit; the headers say why and where it came from:
``tm-reason`` (a `Reason` value), ``tm-detail``, ``tm-topic``, ``tm-partition``, ``tm-offset``,
``tm-timestamp-ms`` (-1: none), and ``tm-cut-key`` / ``tm-cut-value`` with the full size of what was cut. A
record that was not cut can be produced again as it is; a value that was null stays null.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from index_assigner.shuffle.refusals import Refusal
from stream_runtime.kafka.ledger_transaction import OutgoingMessage
from stream_runtime.kafka.ports import Message, TopicPartition

HEADER_REASON: Final = "tm-reason"
HEADER_DETAIL: Final = "tm-detail"
HEADER_TOPIC: Final = "tm-topic"
HEADER_PARTITION: Final = "tm-partition"
HEADER_OFFSET: Final = "tm-offset"
HEADER_TIMESTAMP: Final = "tm-timestamp-ms"
HEADER_CUT_KEY: Final = "tm-cut-key"
HEADER_CUT_VALUE: Final = "tm-cut-value"
_DETAIL_BYTES_MAX: Final = 1_000


def dead_letters(
    messages: Sequence[Message], refused: Sequence[Refusal], topic: str, value_bytes_max: int
) -> list[OutgoingMessage]:
    """One message per refusal; positions in the refusals are those of ``messages``."""
    target = TopicPartition(topic, 0)
    return [_dead_letter(messages[r.position], r, target, value_bytes_max) for r in refused]


def _dead_letter(message: Message, refusal: Refusal, target: TopicPartition, limit: int) -> OutgoingMessage:
    headers = [
        (HEADER_REASON, refusal.reason.value.encode()),
        (HEADER_DETAIL, refusal.detail.encode("utf-8", "backslashreplace")[:_DETAIL_BYTES_MAX]),
        (HEADER_TOPIC, message.topic.encode()),
        (HEADER_PARTITION, str(message.partition).encode()),
        (HEADER_OFFSET, str(message.offset).encode()),
        (HEADER_TIMESTAMP, str(message.timestamp_ms).encode()),
    ]
    for name, content in ((HEADER_CUT_KEY, message.key), (HEADER_CUT_VALUE, message.value)):
        if content is not None and len(content) > limit:
            headers.append((name, str(len(content)).encode()))
    return OutgoingMessage(target, _cut(message.value, limit), _cut(message.key, limit), tuple(headers))


def _cut(content: bytes | None, limit: int) -> bytes | None:
    return None if content is None else content[:limit]
