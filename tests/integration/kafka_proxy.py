"""A TCP proxy in front of a broker that can hold one EndTxn request back and cut its client off.

Frames of Kafka's protocol: 4 bytes length, 2 bytes API key, 2 bytes version, 4 bytes correlation id, the
rest.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
from collections.abc import Callable

END_TXN = 26


class KafkaProxy:
    """Listens on `port`; forwards to `upstream` once it is set. Threads are daemons; `close` ends all
    connections.
    """

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.upstream: tuple[str, int] | None = None
        self.held = threading.Event()
        self._hold_next = False
        self._held_request: tuple[socket.socket, bytes] | None = None
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self._start(self._accept)

    def hold_next_end(self) -> None:
        """The next EndTxn is held back and its client's connection closed."""
        with self._lock:
            self._hold_next = True
            self.held.clear()

    def release(self) -> int:
        """Lets the held request reach the broker on its old connection; returns the broker's error code."""
        with self._lock:
            assert self._held_request is not None, "nothing is held"
            upstream, frame = self._held_request
        upstream.sendall(frame)
        answer = _read_frame(upstream)
        assert answer is not None, "the broker closed the connection"
        # After the length: correlation id, throttle time, error code (EndTxn v1, as librdkafka sends it).
        return int(struct.unpack(">h", answer[12:14])[0])

    def close(self) -> None:
        for connection in [self._listener, *self._sockets]:
            connection.close()

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        threading.Thread(target=target, args=arguments, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                assert self.upstream is not None
                upstream = socket.create_connection(self.upstream)
            except OSError:
                return
            self._sockets += [client, upstream]
            self._start(self._requests, client, upstream)
            self._start(self._answers, client, upstream)

    def _requests(self, client: socket.socket, upstream: socket.socket) -> None:
        try:
            while (frame := _read_frame(client)) is not None:
                if self._holds(frame, upstream):
                    client.shutdown(socket.SHUT_RDWR)
                    return
                upstream.sendall(frame)
            upstream.shutdown(socket.SHUT_RDWR)
        except OSError:
            return

    def _holds(self, frame: bytes, upstream: socket.socket) -> bool:
        with self._lock:
            if not self._hold_next or struct.unpack(">h", frame[4:6])[0] != END_TXN:
                return False
            self._hold_next = False
            self._held_request = (upstream, frame)
            self.held.set()
            return True

    def _answers(self, client: socket.socket, upstream: socket.socket) -> None:
        try:
            while not self._is_held(upstream):
                # Wakes up now and then: a held request's connection is read by `release` alone.
                if not select.select([upstream], [], [], 0.05)[0]:
                    continue
                frame = _read_frame(upstream)
                if frame is None:
                    client.shutdown(socket.SHUT_RDWR)
                    return
                client.sendall(frame)
        except (OSError, ValueError):
            return

    def _is_held(self, upstream: socket.socket) -> bool:
        with self._lock:
            return self._held_request is not None and self._held_request[0] is upstream


def _read_frame(connection: socket.socket) -> bytes | None:
    """One whole frame with its length; None at the end of the stream."""
    head = _read_exactly(connection, 4)
    body = None if head is None else _read_exactly(connection, int(struct.unpack(">i", head)[0]))
    return None if head is None or body is None else head + body


def _read_exactly(connection: socket.socket, count: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < count:
        part = connection.recv(count - len(parts))
        if not part:
            return None
        parts += part
    return bytes(parts)
