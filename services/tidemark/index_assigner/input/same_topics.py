"""Whether the input topics are still those that the table's positions are about.

A reader that goes on at offset 300 of a topic that was deleted and made again would skip the new one's first
300 records. Kafka gives each topic an id when it is made (KIP-516), ids never come back, and the coordinator
keeps those of the input topics with the table. So the ids are looked at after records were read and before
they are published: records read before a look that finds the recorded id came from the recorded topic.
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
"""(admin, input logs) -> those that are gone, or not the recorded ones. Raises KafkaError."""


def none_stale(_: Admin, __: Iterable[str]) -> frozenset[str]:
    """Where nothing is recorded."""
    return frozenset()


def stale_by_record(storage: Storage) -> StaleLogs:
    """By the record in the table's folder as it stands at the time of the question: an operator's `tidemark
    input accept-topic` changes it.
    """

    def found(admin: Admin, logs: Iterable[str]) -> frozenset[str]:
        try:
            record = read_document(storage, INPUT_TOPICS_PATH, InputTopics)
        except FileMissingError:
            return frozenset()
        asked = frozenset(logs)
        states = admin.topic_states(sorted({parse_input_log(log)[0] for log in asked}))
        return stale_logs(record.topics, asked, {name: state.id for name, state in states.items()})

    return found
