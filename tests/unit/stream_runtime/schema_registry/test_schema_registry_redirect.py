"""The registry that is configured is the only one that is asked, whatever it answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest

from tidemark.config import SchemaRegistryConfig
from tidemark.stream_runtime.schema_registry.confluent import ConfluentSchemaSource
from tidemark.stream_runtime.schema_registry.ports import RegistryUnavailableError


class Registry(BaseHTTPRequestHandler):
    """Sends whoever asks to `elsewhere`; `asked` holds what came, with the credentials."""

    elsewhere: ClassVar[str] = ""
    asked: ClassVar[list[tuple[int, str, str]]] = []

    def do_GET(self) -> None:
        address: Any = self.server.server_address
        port = int(address[1])
        self.asked.append((port, self.path, self.headers.get("Authorization", "")))
        self.send_response(307)
        self.send_header("Location", f"{self.elsewhere}{self.path}")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def servers() -> Iterator[list[ThreadingHTTPServer]]:
    Registry.asked.clear()
    running = [ThreadingHTTPServer(("127.0.0.1", 0), Registry) for _ in range(2)]
    for server in running:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield running
    for server in running:
        server.shutdown()
        server.server_close()


def test_redirect_is_no_answer_and_nobody_else_gets_the_credentials(
    servers: list[ThreadingHTTPServer],
) -> None:
    configured, other = (int(server.server_address[1]) for server in servers)
    Registry.elsewhere = f"http://localhost:{other}"
    settings = {"url": f"http://127.0.0.1:{configured}", "basic.auth.user.info": "me:hush"}
    source = ConfluentSchemaSource(SchemaRegistryConfig(settings, 30_000))
    try:
        with pytest.raises(RegistryUnavailableError) as failed:
            source.fetch(1)
    finally:
        source.close()
    assert {port for port, _, _ in Registry.asked} == {configured}
    assert Registry.asked[0][2].startswith("Basic ")
    assert "hush" not in str(failed.value)
