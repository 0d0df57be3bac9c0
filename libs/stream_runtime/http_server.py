"""One small HTTP server a process: answers GET and HEAD by routes that are given to it.

What every service serves on it: `/metrics` (Prometheus) and `/healthz` (`service_routes`); the coordinator
adds its page. Read-only by construction: no other method reaches a route. Each connection carries one request
and is closed; connections at a time, their duration and the length of a request are bounded. Nothing that a
route raises reaches the client: it gets 500, the log the error.

Not its job: what a route shows, and who may see it (`guard`).
"""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from stream_runtime.config.model import Address
from stream_runtime.config.security_model import SecurityConfig
from stream_runtime.security.listening import ListenError, check_listen_address

CONNECTIONS_MAX: Final = 64
REQUEST_TARGET_CHARS_MAX: Final = 8_192
QUERY_FIELDS_MAX: Final = 32
_SOCKET_TIMEOUT_S: Final = 10.0
# Also for whoever sends a byte every few seconds, and so is never silent for long.
_CONNECTION_S: Final = 30.0
_TEXT: Final = "text/plain; charset=utf-8"
_ALWAYS: Final[Mapping[str, str]] = {
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Connection": "close",
}
_log = logging.getLogger("tidemark.http")


@dataclass(frozen=True)
class Request:
    """`query` holds the first value of each field; `headers` have lower case names. `certificate_names`: who
    asks, as a client certificate that TLS verified says; `peer`: where from, for logs.
    """

    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    certificate_names: tuple[str, ...] = ()
    peer: str = ""


@dataclass(frozen=True)
class Answer:
    """What goes back; `headers` are laid over the server's own."""

    body: bytes = b""
    content_type: str = _TEXT
    status: int = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=dict)


def text_answer(status: int, text: str) -> Answer:
    """One line of plain text."""
    return Answer(f"{text}\n".encode(), status=status)


Route = Callable[[Request], Answer]
Routes = Mapping[str, Route]
"""By path; `/x/*` takes every path that begins so. An exact path comes first, then the longest of these."""
Guard = Callable[[Request], Answer | None]
"""Asked before every route: an answer refuses the request, None lets it pass."""


class HttpServer:
    """A running server; `address` is where it listens (the port is real even when 0 was asked for), `url` the
    same for a browser.
    """

    def __init__(self, server: _Server, address: Address, https: bool) -> None:
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="http", daemon=True)
        self._thread.start()
        self.address = address
        self.url = f"{'https' if https else 'http'}://{address}"

    def close(self) -> None:
        """Answers nobody any more. Repeatable."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5.0)


def start_http_server(
    listen: Address,
    routes: Routes,
    *,
    allow_remote: bool = False,
    guard: Guard | None = None,
    tls: Callable[[], ssl.SSLContext] | None = None,
    security: SecurityConfig | None = None,
    too_many: Callable[[], None] = lambda: None,
) -> HttpServer:
    """Serves `routes` at `listen` until `close`. `tls` gives the context of the next connection; None: in the
    clear. `too_many` is told of each connection beyond `CONNECTIONS_MAX`. Raises ListenError for a port that
    is taken, and for an address beyond loopback that `security` does not protect and nobody allowed.
    """
    check_listen_address(listen, allow_remote, security)
    try:
        server = _Server(listen, routes, guard, tls, too_many)
    except OSError as error:
        raise ListenError(f"cannot serve HTTP on {listen}: {error.strerror or error}") from None
    return HttpServer(server, Address(listen.host, server.server_port), https=tls is not None)


def service_routes(registry: CollectorRegistry, ready: Callable[[], bool]) -> dict[str, Route]:
    """What every service has: its metrics, and 200 or 503 by whether it does its work."""

    def metrics(request: Request) -> Answer:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Answer(encode(registry), content_type)

    def healthz(_: Request) -> Answer:
        return text_answer(200, "serving") if ready() else text_answer(503, "not serving yet")

    return {"/metrics": metrics, "/healthz": healthz}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def __init__(
        self,
        listen: Address,
        routes: Routes,
        guard: Guard | None,
        tls: Callable[[], ssl.SSLContext] | None,
        too_many: Callable[[], None],
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
        self.routes = dict(routes)
        self.guard = guard
        self._tls = tls
        self._too_many = too_many
        self._free = threading.BoundedSemaphore(CONNECTIONS_MAX)
        super().__init__((listen.host, listen.port), _Handler)

    def server_bind(self) -> None:
        """Without the look-up of the host's name that HTTPServer does: it can take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def get_request(self) -> tuple[Any, Any]:
        """The handshake is the connection's own thread's: nobody waits for a client that is slow at it."""
        connection, address = super().get_request()
        if self._tls is not None:
            connection.settimeout(_SOCKET_TIMEOUT_S)
            connection = self._tls().wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, address

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self._too_many()
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Handshake, request and answer, for `_CONNECTION_S` at most."""
        limit = threading.Timer(_CONNECTION_S, _cut, (request,))
        limit.daemon = True
        limit.start()
        try:
            super().finish_request(request, client_address)
        finally:
            limit.cancel()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away, mostly."""
        _log.debug("connection of %s ended", client_address[0], exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _SOCKET_TIMEOUT_S
    server_version = "tidemark"
    sys_version = ""

    def do_GET(self) -> None:
        self._send(self._answer(), with_body=True)

    def do_HEAD(self) -> None:
        self._send(self._answer(), with_body=False)

    def log_message(self, *_: Any) -> None:
        """Nothing: requests may hold keys of records."""

    def _answer(self) -> Answer:
        if len(self.path) > REQUEST_TARGET_CHARS_MAX:
            return text_answer(414, f"at most {REQUEST_TARGET_CHARS_MAX} characters, please")
        try:
            target = urlsplit(self.path)
            fields = parse_qs(target.query, keep_blank_values=True, max_num_fields=QUERY_FIELDS_MAX)
        except ValueError:
            return text_answer(400, "this address cannot be read")
        headers = {name.lower(): value for name, value in self.headers.items()}
        query = {name: values[0] for name, values in fields.items()}
        request = Request(target.path, query, headers, _certificate_names(self.connection), self._peer)
        try:
            refused = self.server.guard(request) if self.server.guard is not None else None
            if refused is not None:
                return refused
            route = _route(self.server.routes, request.path)
            return route(request) if route is not None else text_answer(404, "there is no such page")
        except Exception:
            _log.exception("GET %s failed", target.path)
            return text_answer(500, "this failed; the service's log says why")

    @property
    def _peer(self) -> str:
        return f"{self.client_address[0]}:{self.client_address[1]}"

    def _send(self, answer: Answer, with_body: bool) -> None:
        self.send_response(answer.status)
        fields = {"Content-Type": answer.content_type, "Content-Length": str(len(answer.body)), **_ALWAYS}
        for name, value in {**fields, **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(answer.body)


def _cut(connection: socket.socket) -> None:
    """Wakes the thread that reads from it or writes to it: it finds the end. Not by TLS's own `shutdown`:
    after that the thread would write in the clear.
    """
    with suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


def _certificate_names(connection: Any) -> tuple[str, ...]:
    if not isinstance(connection, ssl.SSLSocket):
        return ()
    found: Any = connection.getpeercert() or {}
    alternatives = [value for _, value in found.get("subjectAltName", ())]
    common = [value for part in found.get("subject", ()) for key, value in part if key == "commonName"]
    return (*alternatives, *common)


def _route(routes: Routes, path: str) -> Route | None:
    if path in routes:
        return routes[path]
    prefixes = [known for known in routes if known.endswith("/*") and path.startswith(known[:-1])]
    return routes[max(prefixes, key=len)] if prefixes else None
