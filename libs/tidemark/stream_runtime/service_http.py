"""The HTTP side of one service process: `/metrics` and `/healthz`, and what else the service gives.

Served where `--http` says, or for the coordinator `services.http`; nowhere when neither is given. A port that
is taken ends the service: who asked for metrics wants to hear that there are none.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tidemark.config.model import Address, TableConfigFile
from tidemark.config.security_model import SecurityConfig
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.http_access import access_guard
from tidemark.stream_runtime.http_server import HttpServer, Route, Routes, service_routes, start_http_server
from tidemark.stream_runtime.metrics import Metrics
from tidemark.stream_runtime.security.listening import ListenError, is_loopback
from tidemark.stream_runtime.security.refused_calls import TOO_MANY, TOO_SLOW
from tidemark.stream_runtime.security.server import ServerSecurity, server_security

_log = logging.getLogger("tidemark.http")


def start_guarded_server(
    listen: Address, routes: Routes, config: TableConfigFile, security: ServerSecurity
) -> HttpServer:
    """Serves HTTP as the configuration's `security:` says: tokens always where there are any, HTTPS where
    `speaks_https` says so. Raises ListenError.
    """
    tls = security.tls if speaks_https(listen, security.config) else None
    return start_http_server(
        listen,
        routes,
        allow_remote=config.services.allow_remote,
        guard=access_guard(security.access, loopback=is_loopback(listen.host)),
        too_many=lambda: security.access.refused.add(TOO_MANY),
        too_slow=lambda: security.access.refused.add(TOO_SLOW),
        tls=None if tls is None else tls.https_context(),
        security=security.config,
    )


def speaks_https(listen: Address, section: SecurityConfig) -> bool:
    """Beyond loopback: on this machine HTTPS protects nothing, and every browser asks back."""
    return section.tls is not None and not is_loopback(listen.host)


@contextmanager
def served(
    http: Address | None,
    config: TableConfigFile,
    metrics: Metrics,
    ready: threading.Event,
    pages: Mapping[str, Route] | None = None,
) -> Iterator[None]:
    """Serves while the block runs; `ready` is what `/healthz` says, `pages` are routes of the service's own.

    Raises ListenError.
    """
    if http is None:
        yield
        return
    routes = {**service_routes(metrics.registry, ready.is_set), **(pages or {})}
    try:
        server = start_guarded_server(
            http, routes, config, server_security(config, SystemClock(), metrics.refused)
        )
    except ListenError as error:
        raise type(error)(f"{error} (--http, services.http)") from None
    _log.info("metrics at %s/metrics", server.url)
    try:
        yield
    finally:
        server.close()
