"""The ledger and the decisions of a table, for commands that read them without a coordinator of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial

from tidemark.commit_coordinator.commit.decisions_log import DecisionsLog
from tidemark.commit_coordinator.commit.stored_documents import load_document
from tidemark.config import TableConfigFile
from tidemark.hudi_format.storage.base import Storage
from tidemark.ledger_client.fold_reader import FoldReader
from tidemark.ledger_client.topics import TopicNames
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.kafka.ports import KafkaClient


def ledger_reader(config: TableConfigFile, kafka: KafkaClient, storage: Storage, clock: Clock) -> FoldReader:
    """Reads the table's topics; the caller closes it."""
    topics = TopicNames(config.table.name)
    return FoldReader(kafka, topics.ledger, topics.epochs, partial(load_document, storage), clock)


@contextmanager
def opened_ledger(
    config: TableConfigFile, kafka: KafkaClient, storage: Storage, clock: Clock, who: str = "coordinator"
) -> Iterator[tuple[FoldReader, DecisionsLog]]:
    """Both are closed at the end. ``who``: ends the name of the log's transactions (`orders-coordinator`); a
    claim by a command fences the coordinator that has the same one.
    """
    with closing(ledger_reader(config, kafka, storage, clock)) as reader:
        name = f"{config.table.name}-{who}"
        log = DecisionsLog(kafka, TopicNames(config.table.name).epochs, name, reader, clock, lambda _: None)
        with closing(log):
            yield reader, log
