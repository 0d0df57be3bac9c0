"""One connection between two parts, as a TCP forwarder that can be cut: both ways, one way, or refused.

A cut keeps bytes back instead of losing them, as TCP does until it gives a connection up: `heal` either lets
them go on their way, late, or resets the connections that lived through the cut. New connections are accepted
during a cut and stay silent; a refused one is closed at once.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from enum import Enum
from typing import Final

_CHUNK: Final = 65_536
_CONNECT_S: Final = 5.0
_LOOPBACK: Final = "127.0.0.1"


class Cut(Enum):
    """What does not pass."""

    NOTHING = "nothing"
    BOTH_WAYS = "both ways"
    REQUESTS = "requests"
    """From the part that connects to the one that listens."""
    ANSWERS = "answers"
    REFUSED = "refused"
    """Connections end, and new ones are closed at once."""


_HELD: Final = {
    Cut.NOTHING: frozenset[str](),
    Cut.BOTH_WAYS: frozenset({"requests", "answers"}),
    Cut.REQUESTS: frozenset({"requests"}),
    Cut.ANSWERS: frozenset({"answers"}),
    Cut.REFUSED: frozenset({"requests", "answers"}),
}


class Link:
    """Listens on `address` from the start and forwards to `upstream`, which may change at any time.

    Connections stay with the upstream that they began with. Thread-safe; its threads are daemons.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.upstream: tuple[str, int] | None = None
        self._listener = socket.create_server((_LOOPBACK, 0), backlog=64)
        self._changed = threading.Condition()
        self._cut = Cut.NOTHING
        self._closed = False
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        threading.Thread(target=self._accept, name=f"link {name}", daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    @property
    def address(self) -> str:
        return f"{_LOOPBACK}:{self.port}"

    def cut(self, cut: Cut) -> None:
        """From now on; what was on its way already may still arrive."""
        with self._changed:
            self._cut = cut
            self._changed.notify_all()
        if cut is Cut.REFUSED:
            self._reset()

    def heal(self, reset: bool) -> None:
        """Everything passes again; with `reset` connections of before are closed first."""
        if reset:
            self._reset()
        with self._changed:
            self._cut = Cut.NOTHING
            self._changed.notify_all()

    def close(self) -> None:
        """Ends all connections and listens no more. Repeatable."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._reset()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._refuses() or self.upstream is None:
                client.close()
                continue
            try:
                server = socket.create_connection(self.upstream, _CONNECT_S)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            pair = (client, server)
            for each in pair:
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._changed:
                self._pairs.add(pair)
            for way, source, sink in (("requests", client, server), ("answers", server, client)):
                arguments = (way, source, sink, pair)
                threading.Thread(target=self._pump, args=arguments, daemon=True).start()
            if self._refuses():
                # It came while the link was being cut.
                self._end(pair)

    def _pump(
        self, way: str, source: socket.socket, sink: socket.socket, pair: tuple[socket.socket, socket.socket]
    ) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK):
                if not self._is_open(way, pair):
                    break
                sink.sendall(data)
            self._is_open(way, pair)
        self._end(pair)

    def _is_open(self, way: str, pair: tuple[socket.socket, socket.socket]) -> bool:
        """Waits while this way is cut; False when the connection was ended meanwhile."""
        with self._changed:
            self._changed.wait_for(
                lambda: way not in _HELD[self._cut] or self._closed or pair not in self._pairs
            )
            return not self._closed and pair in self._pairs

    def _refuses(self) -> bool:
        return self._cut is Cut.REFUSED

    def _reset(self) -> None:
        for pair in list(self._pairs):
            self._end(pair)

    def _end(self, pair: tuple[socket.socket, socket.socket]) -> None:
        with self._changed:
            if pair not in self._pairs:
                return
            self._pairs.discard(pair)
            self._changed.notify_all()
        for each in pair:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
