"""Wires the page of a coordinator from its configuration and from what its service already has."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tidemark.commit_coordinator.calls.placement import Placement
from tidemark.commit_coordinator.commit.view import ViewBoard
from tidemark.commit_coordinator.opening.hoodie_section import target_file_bytes
from tidemark.commit_coordinator.status.history import EpochHistory
from tidemark.commit_coordinator.web.key_story import Found, KeyStories
from tidemark.commit_coordinator.web.letters import newest_letters
from tidemark.commit_coordinator.web.overview import Facts
from tidemark.commit_coordinator.web.page import PageSources, WebPage
from tidemark.config import TableConfigFile
from tidemark.config.model import InputPartitioning
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_config import TableConfig
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.kafka.ports import KafkaClient
from tidemark.stream_runtime.security.listening import check_listen_address
from tidemark.stream_runtime.security.server import ServerSecurity
from tidemark.stream_runtime.service_http import start_guarded_server
from tidemark.table_status.status import Status


@dataclass(frozen=True)
class Shown:
    """Of the coordinator's service what the page shows."""

    table: TableConfig
    status: Callable[[], Status]
    board: ViewBoard
    history: EpochHistory
    placement: Placement
    lookup: Callable[[list[str]], Iterable[Found]]


def open_page(
    config: TableConfigFile,
    kafka: KafkaClient,
    storage: Storage,
    clock: Clock,
    security: ServerSecurity,
    shown: Shown,
) -> WebPage | None:
    """Starts to serve the page; None where `services.web` is off. Raises ListenError for an address beyond
    this machine that nobody allowed.
    """
    services = config.services
    if services.web is None:
        return None
    listen = services.listening(services.web)
    check_listen_address(listen, services.allow_remote, security.config)
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
    # Who shows a token is no stranger, whatever name led here: browsers send it to nobody else.
    hosts = frozenset((services.web.host.lower(), "localhost")) if security.access.is_open else None
    page = WebPage(sources, lambda routes: start_guarded_server(listen, routes, config, security), hosts)
    page.start()
    return page


def _facts(config: TableConfigFile) -> Facts:
    table = config.table
    return Facts(
        table=table.name,
        config=config.file.name,
        table_type=table.type.value,
        topics=config.input.topics,
        record_key=table.record_key,
        partition=table.partition,
        sharded=config.input.partitioning is InputPartitioning.SHARD,
        uncommitted_entries_max=config.limits.uncommitted_entries,
        target_bytes=target_file_bytes(config),
    )
