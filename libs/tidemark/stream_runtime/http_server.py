"""The small HTTP server of a process: answers GET and HEAD by routes that its caller gives.

Every service serves `/metrics` (Prometheus) and `/healthz` (`service_routes`); the coordinator adds its page.
The server is read-only: requests with other methods reach no route. A connection carries one request and is
closed. If a route raises, the client gets status 500 without the error's text, which goes to the log.

One thread accepts connections, reads requests and writes answers. A route runs on a thread of its own, at
most `WORKING_MAX` at once. So a slow client costs an open file and no thread. The limits:

* Handshake and request together may take `HEAD_S`, the request's head `HEAD_BYTES_MAX`, the whole connection
  `CONNECTION_S`.
* There are at most `CONNECTIONS_MAX` connections. For one more, the oldest connection that waits for its
  client is closed. If there is none, because all are being answered, the new one is closed.
* `QUICK_PATHS`, whose routes only read a flag, are answered however many other routes run.

Which callers may see a route is decided by `guard`, not here.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from tidemark.config.model import Address
from tidemark.config.security_model import SecurityConfig
from tidemark.stream_runtime.http_messages import (
    Answer,
    BadHttpRequestError,
    Request,
    encoded_head,
    parsed_request,
    text_answer,
)
from tidemark.stream_runtime.security.listening import AddressTakenError, check_listen_address

CONNECTIONS_MAX: Final = 256
WORKING_MAX: Final = 64
HEAD_BYTES_MAX: Final = 32_768
HEAD_S: Final = 10.0
CONNECTION_S: Final = 30.0
QUICK_PATHS: Final = frozenset({"/healthz"})
_ACCEPT_AGAIN_S: Final = 0.1
_BACKLOG: Final = 256
_PIECE_BYTES: Final = 256 << 10
_log = logging.getLogger("tidemark.http")


Route = Callable[[Request], Answer]
Routes = Mapping[str, Route]
"""Routes by path. The key `/x/*` matches every path that begins with `/x/`. An exact path wins over such a
key, and a longer key over a shorter one.
"""
Guard = Callable[[Request], Answer | None]
"""Called before every route. The answer that it returns refuses the request; None lets it pass."""


class HttpServer:
    """A running server. `address` has the port that it listens on, also when port 0 was asked for; `url` is
    the same for a browser.
    """

    def __init__(self, serving: _Serving, address: Address, https: bool) -> None:
        self._serving = serving
        self._thread = threading.Thread(target=serving.run, name="http", daemon=True)
        self._thread.start()
        self.address = address
        self.url = f"{'https' if https else 'http'}://{address}"

    def close(self) -> None:
        """Stops the server and closes its connections. Repeatable."""
        self._serving.stop()
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
    too_slow: Callable[[], None] = lambda: None,
) -> HttpServer:
    """Serves `routes` at `listen` until `close`.

    `tls` returns the TLS context of the next connection; without it the server speaks plain HTTP. `too_many`
    is called for each request that a limit turned away, `too_slow` for each whose client was too slow or had
    to make room for another connection.

    Raises AddressTakenError if another process has the port, and ListenError for an address beyond loopback
    that `security` does not protect and `allow_remote` does not allow.
    """
    check_listen_address(listen, allow_remote, security)
    try:
        listener = _listening(listen)
    except OSError as error:
        raise AddressTakenError(f"cannot serve HTTP on {listen}: {error.strerror or error}") from None
    answering = _Answering(dict(routes), guard)
    serving = _Serving(listener, answering, tls, too_many, too_slow)
    return HttpServer(serving, Address(listen.host, listener.getsockname()[1]), https=tls is not None)


def service_routes(registry: CollectorRegistry, ready: Callable[[], bool]) -> dict[str, Route]:
    """The routes of every service: `/metrics`, and `/healthz`, which answers 200 if `ready` says that the
    service does its work, else 503.
    """

    def metrics(request: Request) -> Answer:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Answer(encode(registry), content_type)

    def healthz(_: Request) -> Answer:
        return text_answer(200, "serving") if ready() else text_answer(503, "not serving yet")

    return {"/metrics": metrics, "/healthz": healthz}


class _Answering:
    """Finds the route of a request and returns its answer. Runs on the request's own thread."""

    def __init__(self, routes: Routes, guard: Guard | None) -> None:
        self._routes = routes
        self._guard = guard

    def answer(self, request: Request) -> Answer:
        try:
            refused = self._guard(request) if self._guard is not None else None
            if refused is not None:
                return refused
            route = _route(self._routes, request.path)
            return route(request) if route is not None else text_answer(404, "there is no such page")
        except Exception:
            _log.exception("GET %s failed", request.path)
            return text_answer(500, "the request failed: the service's log has the error")


class _Connection:
    """A client's connection, from its handshake on.

    `waits` is True while the server only waits for the client: its request has not come yet, or its answer is
    sent and it has not closed the connection (with TLS it sends a message to do so).
    """

    def __init__(self, task: asyncio.Task[None]) -> None:
        self.task = task
        self.waits = True


class _Serving:
    """The event loop that accepts, reads and writes. `run` blocks until any thread calls `stop`."""

    def __init__(
        self,
        listener: socket.socket,
        answering: _Answering,
        tls: Callable[[], ssl.SSLContext] | None,
        too_many: Callable[[], None],
        too_slow: Callable[[], None],
    ) -> None:
        self._listener = listener
        self._answering = answering
        self._tls = tls
        self._too_many = too_many
        self._too_slow = too_slow
        self._connections: dict[asyncio.Task[None], _Connection] = {}  # in the order in which they came
        self._working = 0
        self._loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()

    def run(self) -> None:
        """Serves until `stop` is called."""
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    def stop(self) -> None:
        # A closed loop raises RuntimeError; it has stopped already.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stopped.set)

    async def _serve(self) -> None:
        accepting = self._loop.create_task(self._accept())
        await self._stopped.wait()
        ending = [accepting, *self._connections]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        self._listener.close()

    async def _accept(self) -> None:
        while True:
            try:
                connection, address = await self._loop.sock_accept(self._listener)
            except OSError as error:
                _log.debug("cannot accept a connection: %s", error)
                await asyncio.sleep(_ACCEPT_AGAIN_S)
                continue
            if len(self._connections) >= CONNECTIONS_MAX and not self._room_made():
                self._too_many()
                connection.close()
                continue
            peer = f"{address[0]}:{address[1]}"
            task = self._loop.create_task(self._served(connection, peer))
            self._connections[task] = _Connection(task)
            task.add_done_callback(self._connections.pop)

    def _room_made(self) -> bool:
        """Ends the oldest of the connections that wait for their client; False if none does."""
        first = next((known for known in self._connections.values() if known.waits), None)
        if first is None:
            return False
        first.waits = False
        first.task.cancel()
        self._too_slow()
        return True

    async def _served(self, connection: socket.socket, peer: str) -> None:
        connection.setblocking(False)
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(CONNECTION_S):
                async with asyncio.timeout(HEAD_S):
                    reader, writer = await self._opened(connection)
                    head = await _head(reader)
                await self._answered(writer, head, peer)
                await self._hung_up(writer)
        except TimeoutError:
            self._too_slow()
        except (OSError, EOFError, ssl.SSLError) as error:
            _log.debug("connection of %s ended: %s", peer, error)
        finally:
            if writer is not None:
                writer.transport.abort()
            connection.close()

    async def _opened(self, connection: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The connection's streams, after the TLS handshake if there is one."""
        reader = asyncio.StreamReader(HEAD_BYTES_MAX, self._loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=self._loop)
        context = None if self._tls is None else self._tls()
        transport, _ = await self._loop.connect_accepted_socket(
            lambda: protocol, connection, ssl=context, ssl_handshake_timeout=HEAD_S if context else None
        )
        # So that drain() returns only when the kernel has all bytes. (With 0, TLS would never be drained.)
        transport.set_write_buffer_limits(high=1, low=0)
        return reader, asyncio.StreamWriter(transport, protocol, reader, self._loop)

    async def _answered(self, writer: asyncio.StreamWriter, head: bytes | None, peer: str) -> None:
        self._connection.waits = False
        if head is None:
            await self._written(writer, text_answer(431, "this request has too many headers"), True)
            return
        try:
            method, request = parsed_request(head, _certificate_names(writer), peer)
        except BadHttpRequestError as error:
            await self._written(writer, error.args[0], with_body=True)
            return
        quick = request.path in QUICK_PATHS
        if not quick and self._working >= WORKING_MAX:
            self._too_many()
            await self._written(writer, text_answer(503, "too many requests at once: try again"), True)
            return
        self._working += not quick
        try:
            answer = await self._on_a_thread(lambda: self._answering.answer(request))
            await self._written(writer, answer, with_body=method == "GET")
        finally:
            self._working -= not quick

    async def _on_a_thread(self, work: Callable[[], Answer]) -> Answer:
        """Runs `work` on a daemon thread: the process can end although a route hangs in its storage."""
        answered: asyncio.Future[Answer] = self._loop.create_future()

        def run() -> None:
            answer = work()
            # Raised by a loop that was closed because the server stopped meanwhile.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(_set, answered, answer)

        threading.Thread(target=run, name="http-route", daemon=True).start()
        return await answered

    async def _written(self, writer: asyncio.StreamWriter, answer: Answer, with_body: bool) -> None:
        writer.write(encoded_head(answer))
        await writer.drain()
        body = memoryview(answer.body if with_body else b"")
        # In pieces, because the transport keeps a copy of all bytes that the client has not taken yet.
        for begin in range(0, len(body), _PIECE_BYTES):
            writer.write(body[begin : begin + _PIECE_BYTES])
            await writer.drain()

    async def _hung_up(self, writer: asyncio.StreamWriter) -> None:
        writer.close()
        self._connection.waits = True
        with suppress(OSError):
            await writer.wait_closed()

    @property
    def _connection(self) -> _Connection:
        """The connection that the current task serves."""
        current = asyncio.current_task()
        assert current is not None
        return self._connections[current]


async def _head(reader: asyncio.StreamReader) -> bytes | None:
    """The head of a request; None if it is longer than `HEAD_BYTES_MAX`."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        return None


def _set(answered: asyncio.Future[Answer], answer: Answer) -> None:
    if not answered.done():
        answered.set_result(answer)


def _listening(listen: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((listen.host, listen.port))
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def _certificate_names(writer: asyncio.StreamWriter) -> tuple[str, ...]:
    certificate: Any = writer.get_extra_info("peercert") or {}
    alternatives = [value for _, value in certificate.get("subjectAltName", ())]
    common = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return (*alternatives, *common)


def _route(routes: Routes, path: str) -> Route | None:
    if path in routes:
        return routes[path]
    prefixes = [known for known in routes if known.endswith("/*") and path.startswith(known[:-1])]
    return routes[max(prefixes, key=len)] if prefixes else None
