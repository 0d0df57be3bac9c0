"""Floods of requests over HTTP, with tokens and without: how many are at work, and who is answered."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from testing.ids import SeededIds
from tests.unit.stream_runtime.rpc_world import LOOPBACK, until
from tests.unit.stream_runtime.security.secured import secret_file, secured
from tidemark.stream_runtime import http_server
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.http_messages import Answer, Request, text_answer
from tidemark.stream_runtime.security.roles import Role
from tidemark.stream_runtime.security.server import server_security
from tidemark.stream_runtime.security.tokens import new_token, token_line
from tidemark.stream_runtime.service_http import start_guarded_server

READER, STRANGER = (new_token(SeededIds(seed)) for seed in (1, 3))


class Site:
    """A guarded server with a page that is slow until `go_on` is set."""

    def __init__(self, folder: Path) -> None:
        tokens = secret_file(folder / "tokens", token_line(READER, [Role.READ], "anna"))
        config = secured(folder, f"{{tokens: {{file: {tokens}}}}}")
        self._security = server_security(config, SystemClock())
        self.go_on = threading.Event()
        self._lock = threading.Lock()
        self.at_work = 0
        self.most_at_work = 0
        routes = {
            "/slow": self._slow,
            "/page": lambda _: text_answer(200, "seen"),
            "/healthz": lambda _: text_answer(200, "ok"),
        }
        self.server = start_guarded_server(LOOPBACK, routes, config, self._security)

    @property
    def refused(self) -> dict[str, int]:
        return self._security.access.refused.counts()

    def _slow(self, _: Request) -> Answer:
        with self._lock:
            self.at_work += 1
            self.most_at_work = max(self.most_at_work, self.at_work)
        self.go_on.wait(120)
        with self._lock:
            self.at_work -= 1
        return text_answer(200, "late")

    def asked(self, path: str, token: str | None) -> socket.socket:
        """A connection on which this was asked."""
        shown = "" if token is None else f"Authorization: Bearer {token}\r\n"
        connection = socket.create_connection(self.server.address, 60)
        with suppress(ConnectionError):
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{shown}\r\n".encode())
        return connection

    def status(self, path: str, token: str | None) -> int:
        with self.asked(path, token) as connection:
            return status_on(connection)


def status_on(connection: socket.socket) -> int:
    return int(connection.recv(65_536).split()[1])


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(http_server, "CONNECTION_S", 600.0)
    made = Site(tmp_path)
    yield made
    made.go_on.set()
    made.server.close()


def test_a_flood_with_a_good_token_has_so_many_at_work_and_no_more(site: Site) -> None:
    with ExitStack() as sockets:
        working = [sockets.enter_context(site.asked("/slow", READER)) for _ in range(http_server.WORKING_MAX)]
        until(lambda: site.at_work == http_server.WORKING_MAX)
        threads = threading.active_count()
        for number in range(150):
            assert site.status("/slow", READER) == 503
            if number % 30 == 0:
                assert site.status("/healthz", None) == 200
        assert threading.active_count() <= threads + 2
        assert site.most_at_work == http_server.WORKING_MAX
        assert site.refused["too_many"] == 150
        site.go_on.set()
        assert {status_on(each) for each in working} == {200}
    assert site.status("/page", READER) == 200


@pytest.mark.parametrize(
    ("token", "reason"), [(None, "no_token"), (STRANGER, "bad_token")], ids=["no", "bad"]
)
def test_a_flood_without_a_good_token_keeps_nobody_from_a_page(
    site: Site, token: str | None, reason: str
) -> None:
    """Eight at a time ask for the slow page again and again, and never get as far as that."""
    floods, asked = 8, 40
    statuses: list[int] = []

    def flood() -> None:
        for _ in range(asked):
            statuses.append(site.status("/slow", token))

    threads = [threading.Thread(target=flood) for _ in range(floods)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        assert site.status("/page", READER) == 200
        assert site.status("/healthz", None) == 200
    for thread in threads:
        thread.join(120)
    assert statuses == [401] * floods * asked
    assert site.most_at_work == 0
    assert site.refused[reason] == floods * asked


def test_thousands_of_half_requests_with_tokens_keep_nobody_from_a_page(site: Site) -> None:
    """A token on a request that never ends is worth nothing: it makes room as every other one does."""
    half = f"GET /page HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {READER}\r\n"
    with ExitStack() as sockets:
        for number in range(2_000):
            slow = sockets.enter_context(socket.create_connection(site.server.address, 60))
            with suppress(ConnectionError):
                slow.sendall(half.encode())
            if number % 100 == 99:
                assert site.status("/page", READER) == 200
                assert site.status("/healthz", None) == 200
    assert site.refused["too_slow"] >= 2_000 - http_server.CONNECTIONS_MAX
