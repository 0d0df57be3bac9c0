"""A link of the kill campaign passes, holds back, delivers late, and resets."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from tests.chaos.link import Cut, Link


@pytest.fixture
def link() -> Iterator[Link]:
    """To a server that answers every byte with the next one."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket) -> None:
        while data := connection.recv(1):
            connection.sendall(bytes([data[0] + 1]))
        connection.close()

    def accept() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    link = Link("test")
    link.upstream = server.getsockname()
    yield link
    link.close()
    server.shutdown(socket.SHUT_RDWR)
    server.close()


def connect(link: Link, timeout_s: float = 5.0) -> socket.socket:
    return socket.create_connection(("127.0.0.1", link.port), timeout_s)


def has_ended(connection: socket.socket) -> bool:
    """In order, or by a reset because something was still unread."""
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("cut", [Cut.BOTH_WAYS, Cut.REQUESTS, Cut.ANSWERS])
def test_cut_link_holds_bytes_back_and_delivers_them_after_it_is_healed(link: Link, cut: Cut):
    with connect(link) as client:
        client.sendall(b"a")
        assert client.recv(1) == b"b"
        link.cut(cut)
        client.sendall(b"c")
        client.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.recv(1)
        link.heal(reset=False)
        client.settimeout(5.0)
        assert client.recv(1) == b"d"


def test_reset_ends_connections_and_new_ones_pass(link: Link):
    with connect(link) as client:
        client.sendall(b"a")
        assert client.recv(1) == b"b"
        link.cut(Cut.BOTH_WAYS)
        client.sendall(b"c")
        link.heal(reset=True)
        assert has_ended(client)
    with connect(link) as again:
        again.sendall(b"a")
        assert again.recv(1) == b"b"


def test_refused_link_closes_old_and_new_connections(link: Link):
    with connect(link) as client:
        link.cut(Cut.REFUSED)
        assert has_ended(client)
        with connect(link) as second:
            assert has_ended(second)
