"""Rehearses a coordinator's start for `tidemark doctor`: the same checks of topics and records, without
changes.

The checks are the functions of the start itself. They get an `Admin` that changes no topic and a `Storage`
that writes no file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from typing import Any, cast

from tidemark.commit_coordinator.commit.index_shards import check_kind, check_number
from tidemark.commit_coordinator.offline.opened_ledger import opened_ledger
from tidemark.commit_coordinator.opening.ledger_identity import check_identity
from tidemark.commit_coordinator.opening.topics_setup import (
    check_lane_source,
    check_recorded,
    ensure_topics,
    open_inputs,
)
from tidemark.config import TableConfigFile
from tidemark.epoch_protocol.state import FoldState
from tidemark.hudi_format.errors import AlreadyExistsError
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_config import PROPERTIES_PATH
from tidemark.hudi_format.table_services.rebuilding.switching import shards_of_topics
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.kafka.ports import Admin, KafkaClient, TopicSpec


def rehearse_start(config: TableConfigFile, storage: Storage, client: KafkaClient, clock: Clock) -> None:
    """Raises what keeps a coordinator from starting: DivergedError, TopicsChangedError, UnsupportedTableError
    (the index has another kind or number of shards than the topics are made for), …
    """
    with closing(client.admin()) as admin:
        admin.check_broker()
        known = check_ledger(config, storage, client, clock)
        if storage.exists(PROPERTIES_PATH):
            check_kind(storage, known.shards)
        if known.shards and storage.exists(PROPERTIES_PATH):
            of_topics = shards_of_topics(storage, known.shards)
            check_number(of_topics, MetadataTableSnapshot.load(storage).num_shards)
        looking, unwritten = cast(Admin, _Looking(admin)), cast(Storage, _Unwritten(storage))
        open_inputs(config, unwritten, looking)
        check_recorded(unwritten, ensure_topics(config, looking))
        check_lane_source(config, unwritten)


def check_ledger(config: TableConfigFile, storage: Storage, client: KafkaClient, clock: Clock) -> FoldState:
    """Checks that the topics of the table's name belong to the table at this place; returns their state.

    Changes nothing. Raises DivergedError and MovedOrCopiedError as `check_identity`.
    """
    opened = opened_ledger(config, client, storage, clock, "rehearsal")
    with closing(client.admin()) as admin, opened as (reader, log):
        check_identity(config, storage, admin, log, lambda: reader.fold)
        return reader.fold.state


class _Looking:
    """An `Admin` that creates and changes no topic."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    def create_topics(self, specs: Iterable[TopicSpec]) -> None:
        """Creates none of them."""

    def configure_topic(self, topic: str, settings: Mapping[str, str]) -> None:
        """Changes none of them."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._admin, name)


class _Unwritten:
    """A `Storage` that only reads. `create` still raises AlreadyExistsError, which the checks rely on."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def create(self, path: str, content: bytes) -> None:
        """Writes nothing. Raises AlreadyExistsError if the file exists."""
        if self._storage.exists(path):
            raise AlreadyExistsError(path)

    def replace(self, path: str, content: bytes) -> None:
        """Writes nothing."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call: Callable[..., Any] = getattr(self._storage, name)
        return call
