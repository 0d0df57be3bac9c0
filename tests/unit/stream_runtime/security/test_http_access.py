"""A real HTTP server: who sees a page, by token, certificate and host, in the clear and with TLS."""

from __future__ import annotations

import base64
import http.client
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from testing.ids import SeededIds
from tests.certificates import Authority
from tests.unit.stream_runtime.security.secured import secret_file, secured
from tidemark.config import Address, TableConfigFile
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.http_messages import text_answer
from tidemark.stream_runtime.http_server import HttpServer
from tidemark.stream_runtime.security.listening import ListenError
from tidemark.stream_runtime.security.roles import Role
from tidemark.stream_runtime.security.server import server_security
from tidemark.stream_runtime.security.tokens import new_token, token_line
from tidemark.stream_runtime.service_http import start_guarded_server

READER, SERVICE, STRANGER = (new_token(SeededIds(seed)) for seed in (1, 2, 3))
LINES = [token_line(READER, [Role.READ], "anna"), token_line(SERVICE, [Role.SERVICE], "writer")]
ROUTES = {"/page": lambda _: text_answer(200, "seen"), "/healthz": lambda _: text_answer(200, "ok")}
HERE, ANYWHERE = Address("127.0.0.1", 0), Address("0.0.0.0", 0)


class Servers:
    def __init__(self) -> None:
        self._running: list[HttpServer] = []

    def start(self, config: TableConfigFile, listen: Address = HERE) -> HttpServer:
        server = start_guarded_server(listen, ROUTES, config, server_security(config, SystemClock()))
        self._running.append(server)
        return server

    def close(self) -> None:
        for server in self._running:
            server.close()


@pytest.fixture
def servers() -> Iterator[Servers]:
    running = Servers()
    yield running
    running.close()


def ask(
    server: HttpServer, path: str = "/page", context: ssl.SSLContext | None = None, **headers: str
) -> tuple[int, str, dict[str, str]]:
    connection: http.client.HTTPConnection
    if context is None:
        connection = http.client.HTTPConnection("127.0.0.1", server.address.port, timeout=60)
    else:
        connection = http.client.HTTPSConnection(
            "localhost", server.address.port, timeout=60, context=context
        )
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), dict(answer.getheaders())
    finally:
        connection.close()


def basic(token: str) -> str:
    return "Basic " + base64.b64encode(f"anybody:{token}".encode()).decode()


def with_tokens(folder: Path, more: str = "") -> TableConfigFile:
    tokens = secret_file(folder / "tokens", "\n".join(LINES))
    return secured(folder, f"{{tokens: {{file: {tokens}}}{more}}}")


@pytest.mark.parametrize("authorization", [f"Bearer {READER}", f"bearer  {READER}", basic(READER)])
def test_token_opens_the_page_as_bearer_and_as_password(servers, tmp_path, authorization):
    status, body, _ = ask(servers.start(with_tokens(tmp_path)), Authorization=authorization)
    assert (status, body) == (200, "seen\n")


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Bearer",
        f"Bearer {STRANGER}",
        basic(STRANGER),
        basic(""),
        "Basic %%%",
        "Basic /w==",
        f"Digest {READER}",
    ],
)
def test_strangers_are_asked_for_a_password(servers, tmp_path, authorization):
    status, body, headers = ask(servers.start(with_tokens(tmp_path)), Authorization=authorization)
    assert status == 401
    assert headers["WWW-Authenticate"].startswith("Basic realm=")
    assert STRANGER not in body


def test_role_that_does_not_read_is_told_so(servers, tmp_path):
    status, body, _ = ask(servers.start(with_tokens(tmp_path)), Authorization=f"Bearer {SERVICE}")
    assert status == 403
    assert "needs the role read" in body


def test_health_is_open(servers, tmp_path):
    assert ask(servers.start(with_tokens(tmp_path)), "/healthz")[0] == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:7413", 200),
        ("127.0.0.1:7413", 200),
        ("[::1]:7413", 200),
        ("LOCALHOST.", 200),
        ("dashboard.localhost", 200),
        ("evil.example:7413", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example:80", 403),
        ("192.0.2.1", 403),
    ],
)
def test_open_page_is_for_its_own_machine_whatever_a_name_points_to(servers, tmp_path, host, status):
    """A web site can have its own name point to 127.0.0.1; the browser then sends that name."""
    server = servers.start(secured(tmp_path, "{}"))
    assert ask(server, Host=host)[0] == status
    assert ask(server, "/healthz", Host=host)[0] == 200


def test_beyond_loopback_it_is_refused_or_https(servers, tmp_path):
    with pytest.raises(ListenError, match="reached from other machines"):
        servers.start(with_tokens(tmp_path), ANYWHERE)
    authority = Authority(tmp_path / "pki")
    pair = authority.issue("localhost", "127.0.0.1")
    tls = f", tls: {{certificate: {pair.certificate}, key: {pair.key}, ca: {authority.ca}}}"
    config = with_tokens(tmp_path, tls)
    server, near = servers.start(config, ANYWHERE), servers.start(config)
    assert server.url == f"https://0.0.0.0:{server.address.port}"
    assert near.url == f"http://127.0.0.1:{near.address.port}"
    assert ask(near, Authorization=f"Bearer {READER}")[:2] == (200, "seen\n")
    context = ssl.create_default_context(cafile=str(authority.ca))
    assert ask(server, context=context, Authorization=f"Bearer {READER}")[:2] == (200, "seen\n")
    assert ask(server, context=context)[0] == 401
    with pytest.raises((http.client.HTTPException, OSError)):
        ask(server, Authorization=f"Bearer {READER}")


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_https_is_1_2_or_newer_and_asks_for_certificates_where_told_so(servers, tmp_path):
    authority = Authority(tmp_path / "pki")
    pair = authority.issue("localhost", "127.0.0.1")
    files = f"certificate: {pair.certificate}, key: {pair.key}, ca: {authority.ca}"
    server = servers.start(secured(tmp_path, f"{{tls: {{{files}, client_auth: require}}}}"), ANYWHERE)
    context = ssl.create_default_context(cafile=str(authority.ca))
    with pytest.raises(OSError):
        ask(server, context=context)
    context.load_cert_chain(pair.certificate, pair.key)
    assert ask(server, context=context)[:2] == (200, "seen\n")
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError):
        ask(server, context=context)
