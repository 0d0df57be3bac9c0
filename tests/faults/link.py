"""A TCP link that a test can cut, refuse, slow down and black-hole, one way or both.

    client ──► Link.address ──► upstream

What is black-holed is not lost but late, as with TCP: it arrives after `heal`, also when its client has
given up meanwhile; new connections are accepted and stay silent. What is cut is lost. The upstream may change
at any time: connections stay with the one that they began with, and without one new ones end at once. A
`Conversation` says where one unit of traffic ends and may hold back, change or swallow it; without one,
bytes pass as they come (any protocol). Threads, all daemons;
`close` ends them.

A connection that ends, whichever side ended it, is nothing unusual here. Everything else that goes wrong on
a thread (a conversation that fails, no file descriptor or thread left) is kept in `failures`, and `close`
raises it: a link that stopped working must not look like a Kafka that does not answer.
"""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple, Protocol

_CHUNK_BYTES: Final = 1 << 16
_CONNECT_TIMEOUT_S: Final = 5.0
_JOIN_TIMEOUT_S: Final = 60.0
_RETRY_S: Final = 0.2
_FAILURES_MAX: Final = 20
# What a machine says that has no more of something; every other OSError is an end of a connection.
_USED_UP: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Address(NamedTuple):
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Of host:port."""
        host, _, port = text.strip().rpartition(":")
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Way(Enum):
    TO_SERVER = "to the server"
    TO_CLIENT = "to the client"


class Conversation(Protocol):
    """One connection's traffic, unit by unit. `pass_on` is called on the thread of its way."""

    def read(self, source: socket.socket) -> bytes | None:
        """The next unit; None at the end of the stream."""
        ...

    def pass_on(self, way: Way, unit: bytes) -> bytes | None:
        """What goes on instead of the unit; None: nothing."""
        ...


class _Bytes:
    def read(self, source: socket.socket) -> bytes | None:
        return source.recv(_CHUNK_BYTES) or None

    def pass_on(self, way: Way, unit: bytes) -> bytes | None:
        return unit


class Connection:
    """Both sockets of one client's connection."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self._sockets = {Way.TO_SERVER: server, Way.TO_CLIENT: client}
        self._writing = {way: threading.Lock() for way in Way}
        self._ended: set[Way] = set()
        self._lock = threading.Lock()

    def source(self, way: Way) -> socket.socket:
        return self._sockets[Way.TO_CLIENT if way is Way.TO_SERVER else Way.TO_SERVER]

    def send(self, way: Way, unit: bytes) -> None:
        """Whole units only, from any thread."""
        with self._writing[way]:
            self._sockets[way].sendall(unit)

    def cut(self) -> None:
        """Both sides see the connection end; what is under way is lost."""
        for each in self._sockets.values():
            _shut(each, socket.SHUT_RDWR)

    def end(self, way: Way) -> bool:
        """The source of this way has ended; True when both have, and then the sockets are closed."""
        _shut(self._sockets[way], socket.SHUT_WR)
        with self._lock:
            self._ended.add(way)
            if len(self._ended) < len(Way):
                return False
        for each in self._sockets.values():
            each.close()
        return True


class Link:
    """Listens on a free port of this machine, `address`, for connections to `upstream`."""

    def __init__(
        self,
        upstream: Address | None = None,
        converse: Callable[[Connection], Conversation] = lambda _: _Bytes(),
    ) -> None:
        self.upstream = upstream
        self._converse = converse
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address("127.0.0.1", self._listener.getsockname()[1])
        self._open = {way: threading.Event() for way in Way}
        self._latency_s = dict.fromkeys(Way, 0.0)
        self.failures: list[BaseException] = []
        self._refuses = False
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._connections: set[Connection] = set()
        self._threads: list[threading.Thread] = []
        self.heal()
        self._start(self._accept)

    # ------------------------------------------------------------ what a test does to it

    def cut(self) -> None:
        """Ends every connection there is; new ones are let in."""
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            connection.cut()

    def refuse(self) -> None:
        """Ends every connection, and new ones at once, until `heal`."""
        self._refuses = True
        self.cut()

    def black_hole(self, *ways: Way) -> None:
        """Nothing passes on these ways (both when none is named) until `heal`; connections stay."""
        for way in ways or tuple(Way):
            self._open[way].clear()

    def slow(self, way: Way, seconds: float) -> None:
        """Each unit takes this much longer, until `heal`."""
        self._latency_s[way] = seconds

    def heal(self, *, reset: bool = False) -> None:
        """As new; what was black-holed arrives now, or is lost with its connections, which `reset` ends."""
        if reset:
            self.cut()
        self._refuses = False
        for way in Way:
            self._latency_s[way] = 0.0
            self._open[way].set()

    def close(self) -> None:
        """Ends its threads. Raises what went wrong on them, all of it as one group."""
        self._closed.set()
        _shut(self._listener, socket.SHUT_RDWR)
        self._listener.close()
        for way in Way:
            self._open[way].set()
        self.cut()
        for thread in self._threads:
            thread.join(_JOIN_TIMEOUT_S)
            assert not thread.is_alive(), f"{thread.name} of the link {self.address} does not end"
        if self.failures:
            raise BaseExceptionGroup(f"on threads of the link to {self.upstream}", self.failures)

    # ------------------------------------------------------------ traffic

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads = [each for each in self._threads if each.is_alive()]
        thread.start()
        self._threads.append(thread)

    def _failed(self, error: BaseException) -> None:
        with self._lock:
            if len(self.failures) < _FAILURES_MAX:
                self.failures.append(error)

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError as error:
                if self._closed.is_set():
                    return
                # Never the end of it: a link that accepts no more is a broker that nobody cut off.
                self._failed(error)
                time.sleep(_RETRY_S)
                continue
            try:
                self._serve(client)
            except Exception as error:
                self._failed(error)
                client.close()

    def _serve(self, client: socket.socket) -> None:
        connection = None if self._refuses else self._connect(client)
        if connection is None:
            client.close()
            return
        with self._lock:
            self._connections.add(connection)
        if self._refuses or self._closed.is_set():
            # It came while the link was being cut.
            connection.cut()
        unserved = list(Way)
        try:
            conversation = self._converse(connection)
            while unserved:
                self._start(self._pump, connection, conversation, unserved[-1])
                unserved.pop()
        except Exception:
            connection.cut()
            for way in unserved:
                self._end(connection, way)
            raise

    def _connect(self, client: socket.socket) -> Connection | None:
        if self.upstream is None:
            return None
        try:
            server = socket.create_connection(self.upstream, _CONNECT_TIMEOUT_S)
        except OSError as error:
            if error.errno in _USED_UP:
                raise
            return None
        server.settimeout(None)
        for each in (client, server):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return Connection(client, server)

    def _pump(self, connection: Connection, conversation: Conversation, way: Way) -> None:
        try:
            while (unit := conversation.read(connection.source(way))) is not None:
                passed = conversation.pass_on(way, unit)
                self._wait(way)
                if passed is not None:
                    connection.send(way, passed)
            self._wait(way)
        except Exception as error:
            if not isinstance(error, OSError) or error.errno in _USED_UP:
                self._failed(error)
            connection.cut()
        finally:
            self._end(connection, way)

    def _end(self, connection: Connection, way: Way) -> None:
        if connection.end(way):
            with self._lock:
                self._connections.discard(connection)

    def _wait(self, way: Way) -> None:
        if self._latency_s[way] > 0:
            time.sleep(self._latency_s[way])
        self._open[way].wait()


def _shut(connection: socket.socket, how: int) -> None:
    try:
        connection.shutdown(how)
    except OSError:
        # Ended already.
        return
