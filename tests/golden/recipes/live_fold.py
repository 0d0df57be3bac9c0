"""The fold of a table that is served, read beside its services."""

from __future__ import annotations

from pathlib import Path

from commit_coordinator.staging import load_document
from hudi_format.storage.local import LocalStorage
from ledger_client.fold_reader import FoldReader
from stream_runtime.clock import SystemClock
from stream_runtime.config import TableConfigFile
from stream_runtime.kafka.confluent.client import ConfluentKafkaClient
from stream_runtime.kafka.topics import TopicNames


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
