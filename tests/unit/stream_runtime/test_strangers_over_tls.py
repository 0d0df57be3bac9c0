"""Strangers over TLS, on gRPC and HTTP: some never end the handshake, some are silent behind it, and some
never hang up.

The bounds are lower here than a service has them: a handshake is dear, and the rules are the same.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.unit.stream_runtime.rpc.test_rpc_connections import answered
from tests.unit.stream_runtime.rpc_world import LOOPBACK, PREFACE, READER, SERVICE, World, until
from tests.unit.stream_runtime.strangers import strangers, trusting_anybody
from tidemark.stream_runtime import http_server
from tidemark.stream_runtime.http_messages import text_answer
from tidemark.stream_runtime.http_server import HttpServer, start_http_server
from tidemark.stream_runtime.rpc import connections
from tidemark.stream_runtime.rpc.health import is_serving
from tidemark.stream_runtime.service_http import access_guard

KEPT = 40
STRANGERS = 100
HALF_HELLO = b"\x16\x03\x01\x02\x00\x01\x00"
"""The first bytes of a handshake that would have 512."""
HELD = 24
CAME = 72


@pytest.mark.parametrize(
    ("tls", "said"),
    [(False, b""), (False, HALF_HELLO), (True, b""), (True, PREFACE)],
    ids=["no-handshake", "half-a-handshake", "silent", "greeting"],
)
def test_newcomers_are_served_while_strangers_connect_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tls: bool, said: bytes
) -> None:
    monkeypatch.setattr(connections, "KEPT_MAX", KEPT)
    monkeypatch.setattr(connections, "LOOK_EVERY_S", 0.5)
    made = World(tmp_path, tokens=True, tls=True)
    with made.ends:
        until(lambda: answered(made))
        with strangers(made.server.address, STRANGERS, said, tls=tls):
            closed = made.refused["too_slow"]
            # More than once round: none of those who were there first is there any more.
            until(lambda: made.refused["too_slow"] > closed + STRANGERS)
            for _ in range(3):
                until(lambda: answered(made))
                until(lambda: is_serving(made.server.address, 60.0, made.caller(SERVICE)))


class Site:
    """A page for readers, over HTTPS."""

    def __init__(self, world: World) -> None:
        self.too_slow = 0
        self.too_many = 0
        assert world.security.tls is not None
        self.server: HttpServer = start_http_server(
            LOOPBACK,
            {"/page": lambda _: text_answer(200, "seen"), "/healthz": lambda _: text_answer(200, "ok")},
            guard=access_guard(world.security.access, loopback=True),
            tls=world.security.tls.https_context(),
            too_many=self._found_no_room,
            too_slow=self._made_room,
        )

    def _found_no_room(self) -> None:
        self.too_many += 1

    def _made_room(self) -> None:
        self.too_slow += 1

    def connected(self, *, tls: bool = True) -> socket.socket:
        plain = socket.create_connection(self.server.address, 60)
        return trusting_anybody().wrap_socket(plain) if tls else plain

    def status(self, path: str) -> int:
        with self.connected() as connection:
            return status_on(connection, path, READER)


def status_on(connection: socket.socket, path: str, token: str) -> int:
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
    connection.sendall(head.encode())
    return int(connection.recv(65_536).split()[1])


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Nobody is closed for the time that it takes."""
    for limit in ("CONNECTION_S", "HEAD_S"):
        monkeypatch.setattr(http_server, limit, 600.0)
    monkeypatch.setattr(http_server, "CONNECTIONS_MAX", HELD)
    monkeypatch.setattr(http_server, "WORKING_MAX", HELD // 2)
    world = World(tmp_path, tokens=True, tls=True)
    with world.ends:
        made = Site(world)
        world.ends.callback(made.server.close)
        yield made


def no_handshake(site: Site) -> socket.socket:
    return site.connected(tls=False)


def half_a_handshake(site: Site) -> socket.socket:
    connection = site.connected(tls=False)
    connection.sendall(HALF_HELLO)
    return connection


def silent(site: Site) -> socket.socket:
    return site.connected()


def half_a_request(site: Site) -> socket.socket:
    connection = site.connected()
    connection.sendall(b"GET /page HTTP/1.1\r\nHost: localhost\r\n")
    return connection


def refused_and_still_there(site: Site) -> socket.socket:
    """TLS ends by a message of either side: this one never sends its own."""
    connection = site.connected()
    assert status_on(connection, "/page", "nobody") == 401
    return connection


@pytest.mark.parametrize(
    "come", [no_handshake, half_a_handshake, silent, half_a_request, refused_and_still_there]
)
def test_strangers_who_stay_keep_nobody_from_a_page(site: Site, come) -> None:
    with ExitStack() as sockets:
        for number in range(CAME):
            with suppress(ssl.SSLError, ConnectionError):
                sockets.enter_context(come(site))
            if number % 12 == 11:
                assert site.status("/page") == 200
                assert site.status("/healthz") == 200
        assert site.too_slow >= CAME - HELD
        assert site.too_many == 0
