"""Produces refused records again, into the partitions that they came from.

Records and the note that they were replayed are in one Kafka transaction. So a replay that died can be run
again, and no record is produced twice or left out. Two replays of a table would fence each other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidemark.epoch_protocol.dead_letter_headers import HEADER_REPLAYED, HEADER_REPLAYS
from tidemark.ledger_client.dead_letters import DeadLetter, dead_letter_messages, original_headers
from tidemark.ledger_client.topics import TopicNames
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.kafka.errors import AbortableError, KafkaError
from tidemark.stream_runtime.kafka.ports import (
    Headers,
    KafkaClient,
    Message,
    TopicPartition,
    TransactionalProducer,
)

REPLAYS_MAX: Final = 3
_TRANSACTION_LETTERS: Final = 500
_TRANSACTION_BYTES: Final = 8 << 20


@dataclass
class ReplayPlan:
    """The letters to replay, the oldest first, and the others, each with the reason why it is skipped."""

    letters: list[DeadLetter] = field(default_factory=list)
    skipped: list[tuple[DeadLetter, str]] = field(default_factory=list)


def plan_replay(
    letters: Sequence[DeadLetter],
    input_partitions: Callable[[str], int | None],
    topics: Collection[str],
    again: bool,
    replays_max: int,
) -> ReplayPlan:
    """Plans which letters are replayed.

    ``input_partitions``: the number of partitions of a topic, None if there is no such topic. ``topics``: the
    table's input topics. ``again``: also letters that were replayed already. ``replays_max``: a record that
    was replayed so often is not replayed any more.
    """
    plan = ReplayPlan()
    partitions = {topic: input_partitions(topic) or 0 for topic in topics}
    for letter in letters:
        why = None
        if letter.cut:
            why = f"its {' and '.join(letter.cut)} did not fit into the dead letter"
        elif letter.topic not in partitions:
            why = "its topic is no input topic of the table"
        elif not 0 <= letter.partition < partitions[letter.topic]:
            why = "its partition does not exist any more"
        elif letter.replayed and not again:
            why = "it was replayed already (--again)"
        elif letter.replays >= replays_max:
            why = f"the record was replayed {letter.replays} times already (--max-replays)"
        if why is None:
            plan.letters.append(letter)
        else:
            plan.skipped.append((letter, why))
    return plan


def replay(client: KafkaClient, table: str, clock: Clock, letters: Sequence[DeadLetter]) -> int:
    """Produces the letters' records again, in order; returns how many.

    Raises KafkaError; a record that was not noted as replayed by then was not produced either.
    """
    if not letters:
        return 0
    wanted = {letter.id for letter in letters}
    producer = client.producer(f"{table}-replay")
    done, batch, size = 0, list[Message](), 0
    try:
        producer.init()
        for message in dead_letter_messages(client, table, clock, min(wanted)):
            if message.offset not in wanted:
                continue
            batch.append(message)
            size += len(message.value or b"") + len(message.key or b"")
            if len(batch) >= _TRANSACTION_LETTERS or size >= _TRANSACTION_BYTES:
                done += _produce(producer, table, batch)
                batch, size = [], 0
            if message.offset == max(wanted):
                break
        return done + _produce(producer, table, batch)
    finally:
        producer.close()


def _produce(producer: TransactionalProducer, table: str, messages: Sequence[Message]) -> int:
    if not messages:
        return 0
    producer.begin()
    try:
        for message in messages:
            letter = DeadLetter.of(message)
            headers = _counted(original_headers(message), letter.replays + 1)
            target = TopicPartition(letter.topic, letter.partition)
            producer.produce(target, message.value, message.key, headers)
        note = json.dumps([message.offset for message in messages]).encode()
        noted = ((HEADER_REPLAYED, str(len(messages)).encode()),)
        producer.produce(TopicPartition(TopicNames(table).dead_letter, 0), note, None, noted)
        producer.flush()
        producer.commit()
    except AbortableError:
        _abort(producer)
        raise
    return len(messages)


def _abort(producer: TransactionalProducer) -> None:
    try:
        producer.abort()
    except KafkaError:
        # The next replay's `init` ends the open transaction. The caller raises the first error.
        return


def _counted(headers: Headers, replays: int) -> Headers:
    kept = tuple(header for header in headers if header[0] != HEADER_REPLAYS)
    return (*kept, (HEADER_REPLAYS, str(replays).encode()))
