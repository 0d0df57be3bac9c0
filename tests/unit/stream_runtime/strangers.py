"""Strangers in a process of their own: they hold connections, and connect again when one is closed."""

from __future__ import annotations

import selectors
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tidemark.config import Address
from tidemark.stream_runtime.platform.open_files import allow_open_files


@contextmanager
def strangers(address: Address, connections: int, said: bytes, *, tls: bool = False) -> Iterator[None]:
    """Inside, so many are held; each said `said` and nothing more. ``tls``: within a TLS session."""
    port, count = str(address.port), str(connections)
    command = [sys.executable, "-m", __name__, port, count, said.hex() or "-", str(int(tls))]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"held\n"
            yield
        finally:
            process.kill()


class _Strangers:
    def __init__(self, port: int, said: bytes, tls: bool) -> None:
        self._address = ("127.0.0.1", port)
        self._said = said
        self._tls = trusting_anybody() if tls else None
        self._open = selectors.DefaultSelector()

    def connect(self) -> None:
        connection = self._connected()
        with suppress(OSError):  # closed already: the next look at it says so
            connection.sendall(self._said)
        connection.setblocking(False)
        self._open.register(connection, selectors.EVENT_READ)

    def _connected(self) -> socket.socket:
        while True:
            connection = socket.create_connection(self._address, 60)
            if self._tls is None:
                return connection
            with suppress(OSError):  # closed in the handshake: there are too many already
                return self._tls.wrap_socket(connection)

    def come_again(self) -> None:
        for key, _ in self._open.select():
            connection = key.fileobj
            assert isinstance(connection, socket.socket)
            try:
                answer = connection.recv(65_536)
            except ssl.SSLWantReadError:
                continue  # a message of TLS's own
            except OSError:
                answer = b""
            if not answer:
                self._open.unregister(connection)
                connection.close()
                self.connect()


def trusting_anybody() -> ssl.SSLContext:
    """For HTTP/2 or HTTP/1.1."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


def _main() -> None:
    port, connections, said = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    allow_open_files()
    held = _Strangers(port, bytes.fromhex(said.strip("-")), tls=sys.argv[4] == "1")
    for _ in range(connections):
        held.connect()
    sys.stdout.write("held\n")
    sys.stdout.flush()
    while True:
        held.come_again()
        # Without a pause those above the server's bound, whom it closes at once, take a core for themselves.
        time.sleep(0.01)


if __name__ == "__main__":
    _main()
