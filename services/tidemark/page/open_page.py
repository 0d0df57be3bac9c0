"""Builds and starts the page from a table's configuration and the sources of the process that starts it."""

from __future__ import annotations

from dataclasses import dataclass

from tidemark.config import TableConfigFile
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_config import TableConfig
from tidemark.page.key_story import KeyStories
from tidemark.page.overview import Facts
from tidemark.page.page import PageSources, WebPage
from tidemark.page.sources import AdminCalls, AdminQuestions, Pictures
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.security.listening import check_listen_address
from tidemark.stream_runtime.security.server import ServerSecurity
from tidemark.stream_runtime.service_http import start_guarded_server


@dataclass(frozen=True)
class Shown:
    """What the process that starts the page gives it. ``target_bytes``: the size up to which base files
    grow.
    """

    calls: AdminCalls
    pictures: Pictures
    table: TableConfig
    target_bytes: int


def open_page(
    config: TableConfigFile, storage: Storage, clock: Clock, security: ServerSecurity, shown: Shown
) -> WebPage | None:
    """Starts to serve the page; None when `services.web` is off. Raises ListenError for an address that other
    machines reach and the configuration does not allow.
    """
    services = config.services
    if services.web is None:
        return None
    listen = services.listening(services.web)
    check_listen_address(listen, services.allow_remote, security.config)
    admin = AdminQuestions(shown.calls, config.table.name)
    key_bytes = config.limits.key_bytes
    stories = KeyStories(admin.lookup, storage, shown.table, admin.of_instants, clock, key_bytes)
    sources = PageSources(
        _facts(config, shown.target_bytes), admin.status, admin.epochs, shown.pictures, stories, clock
    )
    # Where callers need a token any host name is accepted: browsers do not send the token to a page of
    # another origin, so DNS rebinding gains nothing.
    hosts = frozenset((services.web.host.lower(), "localhost")) if security.access.is_open else None
    page = WebPage(sources, lambda routes: start_guarded_server(listen, routes, config, security), hosts)
    page.start()
    return page


def _facts(config: TableConfigFile, target_bytes: int) -> Facts:
    table = config.table
    return Facts(
        table=table.name,
        config=config.file.name,
        table_type=table.type.value,
        topics=config.input.topics,
        record_key=table.record_key,
        partition=table.partition,
        sharded=config.input.is_sharded,
        uncommitted_entries_max=config.limits.uncommitted_entries,
        target_bytes=target_bytes,
        index_kind=table.index.kind.value,
    )
