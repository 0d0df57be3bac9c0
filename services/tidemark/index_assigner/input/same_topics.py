"""Checks that the input topics are still the ones that the table's positions belong to.

Example: a topic is deleted and created again. A reader that goes on at offset 300 would skip the first 300
records of the new topic. Kafka gives each topic an id when it is created (KIP-516) and never uses an id
twice; the coordinator keeps the ids of the input topics with the table. A stage compares the ids *after* it
has read records and before it publishes them: if the id is still the recorded one, what was read before
came from the recorded topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from tidemark.epoch_protocol.input_topics import INPUT_TOPICS_PATH, InputTopics, stale_logs
from tidemark.epoch_protocol.lanes import parse_input_log
from tidemark.hudi_format.errors import FileMissingError
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.storage.documents import read_document
from tidemark.stream_runtime.kafka.ports import Admin

StaleLogs: TypeAlias = Callable[[Admin, Iterable[str]], frozenset[str]]
"""(admin, input logs) -> those whose topic is gone or has another id than recorded. Raises KafkaError."""


def none_stale(_: Admin, __: Iterable[str]) -> frozenset[str]:
    """A `StaleLogs` that finds none, for tests without a record."""
    return frozenset()


def stale_by_record(storage: Storage) -> StaleLogs:
    """A `StaleLogs` that compares with the record in the table's folder.

    The record is read at each call, because an operator's `tidemark input accept-topic` changes it.
    """

    def stale(admin: Admin, logs: Iterable[str]) -> frozenset[str]:
        try:
            record = read_document(storage, INPUT_TOPICS_PATH, InputTopics)
        except FileMissingError:
            return frozenset()
        asked = frozenset(logs)
        states = admin.topic_states(sorted({parse_input_log(log)[0] for log in asked}))
        return stale_logs(record.topics, asked, {name: state.id for name, state in states.items()})

    return stale
