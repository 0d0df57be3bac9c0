"""Floods over HTTP at a process of its own: what they take of its memory, with tokens and without.

No bound here is one of speed: each flood asks or holds as often as it says, however long that takes.
"""

from __future__ import annotations

import socket
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.unit.stream_runtime.rpc_world import READER, until
from tests.unit.stream_runtime.serving_process import serving_process
from tests.unit.stream_runtime.strangers import strangers
from tidemark.config import Address

STRANGERS = 2_000
MEMORY_MAX = 24 << 20
WITH_TOKENS = pytest.mark.parametrize("tokens", [True, False], ids=["tokens", "open"])


def status(address: Address, path: str, token: str | None) -> int:
    """0: closed before an answer came."""
    shown = "" if token is None else f"Authorization: Bearer {token}\r\n"
    asked = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{shown}\r\n"
    with socket.create_connection(address, 60) as connection, suppress(ConnectionError):
        connection.sendall(asked.encode())
        if answer := connection.recv(65_536):
            return int(answer.split()[1])
    return 0


@WITH_TOKENS
@pytest.mark.parametrize("long", [0, 7_000], ids=["begun", "long"])
def test_thousands_of_half_requests_take_bounded_memory(tmp_path: Path, tokens: bool, long: int) -> None:
    """Each has a good token, and a header that has begun."""
    half = f"GET /page HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {READER}\r\n".encode()
    half += b"X-Long: " + b"x" * long
    with serving_process(tmp_path, tokens=tokens) as serving:
        until(lambda: status(serving.http, "/page", READER) == 200)
        before = serving.forget_peak()
        with strangers(serving.http, STRANGERS, half):
            for _ in range(5):
                until(lambda: status(serving.http, "/healthz", None) == 200)
                until(lambda: status(serving.http, "/page", READER) == 200)
        assert serving.peak_bytes() - before < MEMORY_MAX


@WITH_TOKENS
def test_a_flood_of_whole_requests_takes_bounded_memory(tmp_path: Path, tokens: bool) -> None:
    with serving_process(tmp_path, tokens=tokens) as serving:
        for _ in range(200):
            status(serving.http, "/page", READER)
        before = serving.forget_peak()
        with ExitStack() as sockets:
            for number in range(STRANGERS):
                token = READER if number % 2 else "tm_stranger"
                held = sockets.enter_context(socket.create_connection(serving.http, 60))
                with suppress(ConnectionError):
                    held.sendall(f"GET /page HTTP/1.1\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
            until(lambda: status(serving.http, "/page", READER) == 200)
        assert serving.peak_bytes() - before < MEMORY_MAX
