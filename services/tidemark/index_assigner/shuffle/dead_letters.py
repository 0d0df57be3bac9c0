"""Refused records as messages for ``<table>.dead-letter``.

Key and value are the record's own bytes, cut where both together exceed a limit. A null value stays null. The
headers say why the record was refused and where it came from:

* ``tm-reason``: a `DeadLetterReason` value; ``tm-detail``: text;
* ``tm-topic``, ``tm-partition``, ``tm-offset``, ``tm-timestamp-ms`` (-1: none);
* ``tm-cut-key``, ``tm-cut-value``: the full size in bytes, if it was cut;
* ``tm-header-<name>``: the record's own headers. When they are too large all of them are left out, and
  ``tm-cut-headers`` has their size (-1: the client could not read them).

A record that was not cut can be produced again as it was. A replayed record carries ``tm-replays`` (how
often). The replay is noted in this topic by a message with the header ``tm-replayed``, whose value is the
JSON list of the offsets of the replayed dead letters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tidemark.epoch_protocol.dead_letter_headers import (
    HEADER_CUT_HEADERS,
    HEADER_CUT_KEY,
    HEADER_CUT_VALUE,
    HEADER_DETAIL,
    HEADER_OFFSET,
    HEADER_PARTITION,
    HEADER_REASON,
    HEADER_TIMESTAMP,
    HEADER_TOPIC,
    ORIGINAL_PREFIX,
)
from tidemark.record_formats.refusals import Refusal
from tidemark.stream_runtime.kafka.ledger_transaction import OutgoingMessage
from tidemark.stream_runtime.kafka.ports import Headers, Message, TopicPartition

REASON_STAT: Final = "dead_letters_"
_DETAIL_BYTES_MAX: Final = 1_000
_HEADERS_BYTES_MAX: Final = 64 << 10


def dead_letters(
    messages: Sequence[Message], refused: Sequence[Refusal], topic: str, value_bytes_max: int
) -> list[OutgoingMessage]:
    """Makes one message per refusal. A refusal's position is that of its record in ``messages``."""
    target = TopicPartition(topic, 0)
    return [_dead_letter(messages[r.position], r, target, value_bytes_max) for r in refused]


def reason_of(letter: OutgoingMessage) -> str:
    """Why the record was refused: a value of `DeadLetterReason`."""
    return next((value or b"").decode() for name, value in letter.headers if name == HEADER_REASON)


def by_reason(counts: Mapping[str, int]) -> dict[str, float]:
    """Counts of dead letters by reason, as stats of a stage's report."""
    return {f"{REASON_STAT}{reason}": float(count) for reason, count in counts.items()}


def _dead_letter(message: Message, refusal: Refusal, target: TopicPartition, limit: int) -> OutgoingMessage:
    """``limit``: bytes of key and value together, so that the dead letter always fits into a message.

    A value is cut before a key is: the key keeps at least half of the limit.
    """
    value_size, key_size = len(message.value or b""), len(message.key or b"")
    key_max = max(limit - value_size, limit // 2)
    value_max = limit - min(key_size, key_max)
    headers = [
        (HEADER_REASON, refusal.reason.value.encode()),
        (HEADER_DETAIL, refusal.detail.encode("utf-8", "backslashreplace")[:_DETAIL_BYTES_MAX]),
        (HEADER_TOPIC, message.topic.encode()),
        (HEADER_PARTITION, str(message.partition).encode()),
        (HEADER_OFFSET, str(message.offset).encode()),
        (HEADER_TIMESTAMP, str(message.timestamp_ms).encode()),
    ]
    for name, size, most in ((HEADER_CUT_KEY, key_size, key_max), (HEADER_CUT_VALUE, value_size, value_max)):
        if size > most:
            headers.append((name, str(size).encode()))
    if message.headers_unreadable:
        headers.append((HEADER_CUT_HEADERS, b"-1"))
    headers += _original(message.headers)
    return OutgoingMessage(target, _cut(message.value, value_max), _cut(message.key, key_max), tuple(headers))


def _original(headers: Headers) -> list[tuple[str, bytes]]:
    # A header's value may be null; the Kafka client returns None for it. It is written as an empty value.
    kept = [(ORIGINAL_PREFIX + name, value or b"") for name, value in headers]
    size = sum(len(name) + len(value) for name, value in kept)
    return kept if size <= _HEADERS_BYTES_MAX else [(HEADER_CUT_HEADERS, str(size).encode())]


def _cut(content: bytes | None, limit: int) -> bytes | None:
    return None if content is None else content[:limit]
