"""The newest dead letters for the page: why each was refused, where it lies, and how its value begins."""

from __future__ import annotations

from collections import Counter, deque
from typing import Any, Final

from tidemark.commit_coordinator.web.plain_values import cut
from tidemark.epoch_protocol.dead_letter_headers import HEADER_REPLAYED
from tidemark.ledger_client.dead_letters import DeadLetter, dead_letter_messages
from tidemark.ledger_client.topics import TopicNames
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.kafka.ports import Isolation, KafkaClient, Message, TopicPartition

READ_MAX: Final = 1_000
SHOWN_MAX: Final = 40
_PREVIEW_BYTES: Final = 300


def newest_letters(client: KafkaClient, table: str, clock: Clock) -> dict[str, Any]:
    """Newest first; `by_reason` counts those that were looked at, at most `READ_MAX`. Raises KafkaError and
    DeadlineExceededError, as `dead_letter_messages`.
    """
    newest: deque[Message] = deque(maxlen=SHOWN_MAX)
    reasons: Counter[str] = Counter()
    for message in dead_letter_messages(client, table, clock, _first(client, table)):
        if any(name == HEADER_REPLAYED for name, _ in message.headers):
            continue
        reasons[cut(DeadLetter.of(message).reason)] += 1
        newest.append(message)
    return {
        "read": sum(reasons.values()),
        "by_reason": [[reason, count] for reason, count in reasons.most_common(SHOWN_MAX)],
        "newest": [_letter(message) for message in reversed(newest)],
    }


def _first(client: KafkaClient, table: str) -> int:
    """From where the newest `READ_MAX` offsets begin."""
    topic = TopicNames(table).dead_letter
    admin = client.admin()
    try:
        if not admin.partitions(topic):
            return 0
        return max(admin.end_offset(TopicPartition(topic, 0), Isolation.READ_COMMITTED) - READ_MAX, 0)
    finally:
        admin.close()


def _letter(message: Message) -> dict[str, Any]:
    letter = DeadLetter.of(message)
    return {
        "id": letter.id,
        "reason": cut(letter.reason),
        "detail": cut(letter.detail),
        "topic": cut(letter.topic),
        "partition": letter.partition,
        "offset": letter.offset,
        "timestamp_ms": letter.timestamp_ms,
        "key": _preview(message.key),
        "value": _preview(message.value),
    }


def _preview(content: bytes | None) -> str | None:
    """How it begins, as text; what is no text is shown by replacement characters."""
    if content is None:
        return None
    text = content[:_PREVIEW_BYTES].decode("utf-8", "replace")
    return text if len(content) <= _PREVIEW_BYTES else f"{text}… ({len(content)} bytes)"
