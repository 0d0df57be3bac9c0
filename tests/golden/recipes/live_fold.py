"""The fold of a table that is served, read beside its services."""

from __future__ import annotations

from pathlib import Path

from tidemark.commit_coordinator.commit.stored_documents import load_document
from tidemark.config import TableConfigFile
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.ledger_client.fold_reader import FoldReader
from tidemark.ledger_client.topics import TopicNames
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.kafka.confluent.client import ConfluentKafkaClient


def fold_reader(config: TableConfigFile) -> FoldReader:
    """Started and caught up."""
    storage = LocalStorage(Path(config.table.path))
    topics = TopicNames(config.table.name)
    reader = FoldReader(
        ConfluentKafkaClient.from_config(config),
        topics.ledger,
        topics.epochs,
        lambda path, sha256: load_document(storage, path, sha256),
        SystemClock(),
    )
    reader.start()
    reader.catch_up()
    return reader


def leftover(reader: FoldReader) -> bool:
    """Whether something was tagged behind an epoch that is decided and not finished."""
    state = reader.fold.state
    if state.planned is None or state.decided is None:
        return False
    return any(each.offset > state.planned.through for each in state.tagged)
