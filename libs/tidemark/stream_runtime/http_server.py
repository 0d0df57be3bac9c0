"""One small HTTP server a process: answers GET and HEAD by routes that are given to it.

What every service serves on it: `/metrics` (Prometheus) and `/healthz` (`service_routes`); the coordinator
adds its page. Read-only by construction: no other method reaches a route. Each connection carries one request
and is closed. Nothing that a route raises reaches the client: it gets 500, the log the error.

One thread accepts, reads requests and writes answers, for all connections; a route runs on a thread of its
own, at most `WORKING_MAX` at once. So a client that is slow costs a descriptor and no thread:

* A handshake and a request may take `HEAD_S` and `HEAD_BYTES_MAX`, everything together `CONNECTION_S`.
* There are at most `CONNECTIONS_MAX` connections. One more takes the place of that which came first of those
  that wait for their client; when every one is being answered, the new one is closed.
* `QUICK_PATHS`, whose routes only look at a flag, are answered however many others are at work.

Not its job: what a route shows, and who may see it (`guard`).
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
    BadRequestError,
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
"""By path; `/x/*` takes every path that begins so. An exact path comes first, then the longest of these."""
Guard = Callable[[Request], Answer | None]
"""Asked before every route: an answer refuses the request, None lets it pass."""


class HttpServer:
    """A running server; `address` is where it listens (the port is real even when 0 was asked for), `url` the
    same for a browser.
    """

    def __init__(self, serving: _Serving, address: Address, https: bool) -> None:
        self._serving = serving
        self._thread = threading.Thread(target=serving.run, name="http", daemon=True)
        self._thread.start()
        self.address = address
        self.url = f"{'https' if https else 'http'}://{address}"

    def close(self) -> None:
        """Answers nobody any more. Repeatable."""
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
    """Serves `routes` at `listen` until `close`. `tls` gives the context of the next connection; None: in the
    clear. `too_many` is told of each request that finds no room, `too_slow` of each that did not come in time
    or had to make room. Raises AddressTakenError for a port that another process has, and ListenError for an
    address beyond loopback that `security` does not protect and nobody allowed.
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
    """What every service has: its metrics, and 200 or 503 by whether it does its work."""

    def metrics(request: Request) -> Answer:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Answer(encode(registry), content_type)

    def healthz(_: Request) -> Answer:
        return text_answer(200, "serving") if ready() else text_answer(503, "not serving yet")

    return {"/metrics": metrics, "/healthz": healthz}


class _Answering:
    """From a request's head to its answer. Runs on the request's own thread."""

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
            return text_answer(500, "this failed; the service's log says why")


class _Connection:
    """A client's connection, from its handshake on. `waits`: for the client alone. Its request is not there
    yet, or its answer is all sent and it has not hung up (over TLS that is a message of its own).
    """

    def __init__(self, task: asyncio.Task[None]) -> None:
        self.task = task
        self.waits = True


class _Serving:
    """The thread that accepts, reads and writes: an event loop. `stop` may be called by any thread."""

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
        """Until `stop`."""
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    def stop(self) -> None:
        # A loop that is closed has stopped already.
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
        """Ends the connection that came first of those that wait for their client, if any does."""
        first = next((each for each in self._connections.values() if each.waits), None)
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
        """After the handshake, where there is one."""
        reader = asyncio.StreamReader(HEAD_BYTES_MAX, self._loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=self._loop)
        context = None if self._tls is None else self._tls()
        transport, _ = await self._loop.connect_accepted_socket(
            lambda: protocol, connection, ssl=context, ssl_handshake_timeout=HEAD_S if context else None
        )
        # "Drained" shall mean that the kernel has it all. (0 would mean for TLS: never drained.)
        transport.set_write_buffer_limits(high=1, low=0)
        return reader, asyncio.StreamWriter(transport, protocol, reader, self._loop)

    async def _answered(self, writer: asyncio.StreamWriter, head: bytes | None, peer: str) -> None:
        self._connection.waits = False
        if head is None:
            await self._written(writer, text_answer(431, "this request has too many headers"), True)
            return
        try:
            method, request = parsed_request(head, _certificate_names(writer), peer)
        except BadRequestError as error:
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
        """A thread of its own, which nobody waits for when the process ends: storage may hang."""
        answered: asyncio.Future[Answer] = self._loop.create_future()

        def run() -> None:
            answer = work()
            # The loop is closed when the server was stopped meanwhile.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(_set, answered, answer)

        threading.Thread(target=run, name="http-route", daemon=True).start()
        return await answered

    async def _written(self, writer: asyncio.StreamWriter, answer: Answer, with_body: bool) -> None:
        writer.write(encoded_head(answer))
        await writer.drain()
        body = memoryview(answer.body if with_body else b"")
        # In pieces: the transport copies what the client has not taken yet.
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
        """Of the task that runs."""
        current = asyncio.current_task()
        assert current is not None
        return self._connections[current]


async def _head(reader: asyncio.StreamReader) -> bytes | None:
    """Of a request; None: it is longer than `HEAD_BYTES_MAX`."""
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
    found: Any = writer.get_extra_info("peercert") or {}
    alternatives = [value for _, value in found.get("subjectAltName", ())]
    common = [value for part in found.get("subject", ()) for key, value in part if key == "commonName"]
    return (*alternatives, *common)


def _route(routes: Routes, path: str) -> Route | None:
    if path in routes:
        return routes[path]
    prefixes = [known for known in routes if known.endswith("/*") and path.startswith(known[:-1])]
    return routes[max(prefixes, key=len)] if prefixes else None
