"""Wires the page of a coordinator from its configuration and from what its service already has."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from commit_coordinator.history import EpochHistory
from commit_coordinator.hoodie_section import target_file_bytes
from commit_coordinator.placement import Placement
from commit_coordinator.view import ViewBoard
from commit_coordinator.web.key_story import Found, KeyStories
from commit_coordinator.web.letters import newest_letters
from commit_coordinator.web.overview import Facts
from commit_coordinator.web.page import PageSources, WebPage
from hudi_format.storage.base import Storage
from hudi_format.table_config import TableConfig
from stream_runtime.clock import Clock
from stream_runtime.config import TableConfigFile
from stream_runtime.config.model import InputPartitioning
from stream_runtime.kafka.ports import KafkaClient


@dataclass(frozen=True)
class Shown:
    """Of the coordinator's service what the page shows."""

    table: TableConfig
    status: Callable[[], dict[str, Any]]
    board: ViewBoard
    history: EpochHistory
    placement: Placement
    lookup: Callable[[list[str]], Iterable[Found]]


def open_page(
    config: TableConfigFile, kafka: KafkaClient, storage: Storage, clock: Clock, shown: Shown
) -> WebPage | None:
    """Starts to serve the page; None where `services.web` is off. Raises ListenError for an address beyond
    this machine that nobody allowed.
    """
    at = config.services.web
    if at is None:
        return None
    stories = KeyStories(
        shown.lookup, storage, shown.table, shown.history.of_instants, clock, config.limits.key_bytes
    )
    sources = PageSources(
        facts=_facts(config),
        status=shown.status,
        board=shown.board,
        history=shown.history,
        placement=shown.placement,
        stories=stories,
        letters=lambda: newest_letters(kafka, config.table.name, clock),
        clock=clock,
    )
    page = WebPage(sources, at, config.services)
    page.start()
    return page


def _facts(config: TableConfigFile) -> Facts:
    table, state = config.table, config.state
    return Facts(
        table=table.name,
        config=config.file.name,
        table_type=table.type.value,
        topics=config.input.topics,
        record_key=table.record_key,
        partition=table.partition,
        sharded=config.input.partitioning is InputPartitioning.SHARD,
        memory_bytes=state.memory_bytes,
        disk_bytes=state.disk_bytes,
        uncommitted_entries_max=config.limits.uncommitted_entries,
        target_bytes=target_file_bytes(config),
    )
