"""The newest dead letters for the page; reads only the end of the topic."""

from __future__ import annotations

from collections import Counter, deque
from typing import Final

from tidemark.epoch_protocol.dead_letter_headers import HEADER_REPLAYED
from tidemark.ledger_client.dead_letters import DeadLetter, dead_letter_messages
from tidemark.ledger_client.topics import TopicNames
from tidemark.page.sources import NewestLetters, RefusedRecord
from tidemark.record_formats.refusals import Reason
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.kafka.ports import Isolation, KafkaClient, Message, TopicPartition

READ_MAX: Final = 1_000
SHOWN_MAX: Final = 40


def newest_letters(client: KafkaClient, table: str, clock: Clock) -> NewestLetters:
    """Counts the letters in the newest `READ_MAX` offsets by reason, and returns the newest `SHOWN_MAX`.

    Raises KafkaError and DeadlineExceededError as `dead_letter_messages` does.
    """
    newest: deque[Message] = deque(maxlen=SHOWN_MAX)
    reasons: Counter[Reason] = Counter()
    for message in dead_letter_messages(client, table, clock, _first(client, table)):
        if any(name == HEADER_REPLAYED for name, _ in message.headers):
            continue
        reasons[DeadLetter.of(message).reason] += 1
        newest.append(message)
    return NewestLetters([_whole(message) for message in reversed(newest)], reasons)


def _first(client: KafkaClient, table: str) -> int:
    """The offset at which the newest `READ_MAX` offsets begin."""
    topic = TopicNames(table).dead_letter
    admin = client.admin()
    try:
        if not admin.partitions(topic):
            return 0
        return max(admin.end_offset(TopicPartition(topic, 0), Isolation.READ_COMMITTED) - READ_MAX, 0)
    finally:
        admin.close()


def _whole(message: Message) -> RefusedRecord:
    letter = DeadLetter.of(message)
    return RefusedRecord(
        letter.id,
        letter.reason,
        letter.detail,
        letter.topic,
        letter.partition,
        letter.offset,
        letter.timestamp_ms,
        message.key,
        message.value,
    )
