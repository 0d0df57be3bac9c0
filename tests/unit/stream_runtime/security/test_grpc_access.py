"""A real gRPC server and real channels: who gets in by TLS, certificate, token; what strangers learn."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from testing.ids import SeededIds
from tests.certificates import Authority
from tests.unit.stream_runtime.security.secured import secret_file, secured
from tidemark.config import Address, TableConfigFile
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.rpc.channel import call, open_channel
from tidemark.stream_runtime.rpc.errors import RpcError
from tidemark.stream_runtime.rpc.health import is_serving
from tidemark.stream_runtime.rpc.server import RpcServer, start_server
from tidemark.stream_runtime.security.client import TOKEN_VARIABLE, ClientSecurity, client_security
from tidemark.stream_runtime.security.local_token import remove_local_token, write_local_token
from tidemark.stream_runtime.security.roles import Role
from tidemark.stream_runtime.security.server import ServerSecurity, server_security
from tidemark.stream_runtime.security.tokens import new_token, token_line

READER, OPERATOR, SERVICE, STRANGER = (new_token(SeededIds(seed)) for seed in (1, 2, 3, 4))
ADMIN, COMMIT = "tidemark.admin.v1.Admin", "tidemark.commit.v1.CommitCoordinator"
STATUS, PAUSE, BEGIN = f"/{ADMIN}/Status", f"/{ADMIN}/Pause", f"/{COMMIT}/Begin"
LOOPBACK = Address("127.0.0.1", 0)
CLOCK = SystemClock()
NOBODY = {"no_token": 0, "bad_token": 0, "role": 0, "host": 0, "too_many": 0, "too_slow": 0}
LINES = [
    token_line(READER, [Role.READ], "grafana"),
    token_line(OPERATOR, [Role.OPERATE], "anna"),
    token_line(SERVICE, [Role.SERVICE], "writer"),
]


class Parsed:
    """Counts the requests that a server took the trouble to read."""

    count = 0

    def __call__(self, content: bytes) -> bytes:
        self.count += 1
        return content


def services(parsed: Parsed) -> list[tuple[str, Callable[[grpc.Server], None]]]:
    return [(ADMIN, register(parsed)), (COMMIT, lambda _: None)]


def register(parsed: Parsed) -> Callable[[grpc.Server], None]:
    def add(server: grpc.Server) -> None:
        for path in (STATUS, PAUSE, BEGIN, f"/{ADMIN}/NotInTheTable"):
            service, method = path[1:].split("/")
            handler: Any = grpc.unary_unary_rpc_method_handler(lambda request, _: request * 2, parsed)
            handlers: Any = grpc.method_handlers_generic_handler(service, {method: handler})
            server.add_generic_rpc_handlers((handlers,))

    return add


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "pki")


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[str], tuple[RpcServer, TableConfigFile, ServerSecurity]]]:
    running: list[RpcServer] = []

    def start(section: str) -> tuple[RpcServer, TableConfigFile, ServerSecurity]:
        config = secured(tmp_path, section)
        security = server_security(config, CLOCK)
        server = start_server(LOOPBACK, services(Parsed()), security=security)
        server.set_serving(True)
        running.append(server)
        return server, config, security

    yield start
    for server in running:
        server.stop(0.1)


def tls_section(authority: Authority, more: str = "") -> str:
    pair = authority.issue("localhost", "127.0.0.1")
    return f"tls: {{certificate: {pair.certificate}, key: {pair.key}, ca: {authority.ca}{more}}}"


def tokens_section(folder: Path, lines: list[str]) -> str:
    return f"tokens: {{file: {secret_file(folder / 'tokens', chr(10).join(lines))}}}"


def ask(server: RpcServer, method: str, security: ClientSecurity, request: bytes = b"x") -> Any:
    with open_channel(server.address, deadline_s=60.0, security=security) as channel:
        return call(channel.unary_unary(method), request)


def refused(server: RpcServer, method: str, security: ClientSecurity) -> RpcError:
    with pytest.raises(RpcError) as failed:
        ask(server, method, security)
    return failed.value


def showing(config: TableConfigFile, token: str) -> ClientSecurity:
    return client_security(config, CLOCK, {TOKEN_VARIABLE: token})


def test_roles_hold_over_tls(serve, authority, tmp_path):
    server, config, security = serve(f"{{{tls_section(authority)}, {tokens_section(tmp_path, LINES)}}}")
    assert ask(server, STATUS, showing(config, READER)) == b"xx"
    assert ask(server, STATUS, showing(config, OPERATOR)) == b"xx"
    assert ask(server, PAUSE, showing(config, OPERATOR)) == b"xx"
    assert ask(server, BEGIN, showing(config, SERVICE)) == b"xx"
    denied = grpc.StatusCode.PERMISSION_DENIED
    assert refused(server, PAUSE, showing(config, READER)).status is denied
    assert refused(server, BEGIN, showing(config, OPERATOR)).status is denied
    error = refused(server, STATUS, showing(config, SERVICE))
    assert error.status is denied
    assert "writer may not call" in error.details
    assert "needs the role read" in error.details
    assert security.access.refused.counts() == NOBODY | {"role": 3}


def test_method_that_is_in_no_table_is_refused_to_everybody(serve, tmp_path):
    server, config, _ = serve(f"{{{tokens_section(tmp_path, LINES)}}}")
    for path in ("/tidemark.admin.v1.Admin/NotInTheTable", "/no.such.Service/Method"):
        assert refused(server, path, showing(config, OPERATOR)).status is grpc.StatusCode.PERMISSION_DENIED


def test_stranger_is_turned_away_before_the_request_is_read_and_the_token_is_shown_nowhere(
    tmp_path, caplog: pytest.LogCaptureFixture
):
    config, parsed = secured(tmp_path, f"{{{tokens_section(tmp_path, LINES)}}}"), Parsed()
    security = server_security(config, CLOCK)
    server = start_server(LOOPBACK, services(parsed), security=security)
    try:
        with caplog.at_level(logging.DEBUG):
            for _ in range(50):
                error = refused(server, STATUS, showing(config, STRANGER))
                assert error.status is grpc.StatusCode.UNAUTHENTICATED
                assert STRANGER not in str(error)
        nothing = refused(server, STATUS, ClientSecurity())
        assert nothing.status is grpc.StatusCode.UNAUTHENTICATED
        assert "TIDEMARK_TOKEN" in nothing.details
        assert parsed.count == 0
        assert ask(server, STATUS, showing(config, READER)) == b"xx"
        assert parsed.count == 1
    finally:
        server.stop(0.1)
    assert security.access.refused.counts() == NOBODY | {"no_token": 1, "bad_token": 50}
    said = [record for record in caplog.records if record.name == "tidemark.security"]
    assert 1 <= len(said) < 50, "a stranger cannot fill the log"
    assert all(STRANGER not in record.getMessage() for record in caplog.records)


def test_health_is_open_and_reflection_is_not(serve, tmp_path):
    server, config, _ = serve(f"{{{tokens_section(tmp_path, LINES)}}}")
    assert is_serving(server.address, 60.0)

    def services(security: ClientSecurity) -> list[str]:
        with open_channel(server.address, security=security) as channel:
            stub = reflection_pb2_grpc.ServerReflectionStub(channel)
            request = reflection_pb2.ServerReflectionRequest(list_services="")
            answers = stub.ServerReflectionInfo(iter([request]), timeout=60)
            return [each.name for each in next(answers).list_services_response.service]

    assert health_pb2.DESCRIPTOR.services_by_name["Health"].full_name in services(showing(config, READER))
    with pytest.raises(grpc.RpcError) as failed:
        services(ClientSecurity())
    assert failed.value.code() is grpc.StatusCode.UNAUTHENTICATED
    with open_channel(server.address, security=showing(config, READER)) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=60)
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        watch.cancel()
    with open_channel(server.address) as channel, pytest.raises(grpc.RpcError) as failed:
        next(health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=60))
    assert failed.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_replaced_tokens_hold_without_a_restart_and_a_broken_file_changes_nothing(serve, tmp_path):
    server, config, _ = serve(f"{{{tokens_section(tmp_path, LINES)}}}")
    assert ask(server, STATUS, showing(config, READER)) == b"xx"
    secret_file(tmp_path / "tokens", "read of nonsense\n")
    assert ask(server, STATUS, showing(config, READER)) == b"xx"
    secret_file(tmp_path / "tokens", token_line(STRANGER, [Role.READ], "new") + "\n")
    assert refused(server, STATUS, showing(config, READER)).status is grpc.StatusCode.UNAUTHENTICATED
    assert ask(server, STATUS, showing(config, STRANGER)) == b"xx"


def test_client_takes_its_replaced_token_file(serve, tmp_path):
    own = secret_file(tmp_path / "own", STRANGER)
    server, config, _ = serve(f"{{{tokens_section(tmp_path, LINES)}, token: {{file: {own}}}}}")
    with open_channel(server.address, security=client_security(config, CLOCK, {})) as channel:
        with pytest.raises(RpcError, match="not known"):
            call(channel.unary_unary(STATUS), b"x")
        secret_file(tmp_path / "own", READER)
        assert call(channel.unary_unary(STATUS), b"x") == b"xx"


def test_token_of_a_run_opens_everything_until_the_run_ends(serve, tmp_path):
    server, config, _ = serve(f"{{{tokens_section(tmp_path, [])}}}")
    write_local_token(config.state.path, SeededIds(9))
    own = client_security(config, CLOCK, {})
    for method in (STATUS, PAUSE, BEGIN):
        assert ask(server, method, own) == b"xx"
    token = own.token() or ""
    remove_local_token(config.state.path)
    assert refused(server, STATUS, showing(config, token)).status is grpc.StatusCode.UNAUTHENTICATED


def test_mutual_tls_lets_in_who_has_a_certificate_of_the_authority(serve, authority, tmp_path):
    server, config, _ = serve(f"{{{tls_section(authority, ', client_auth: require')}}}")
    assert ask(server, BEGIN, client_security(config, CLOCK, {})) == b"xx"
    without = f"{{tls: {{ca: {authority.ca}}}}}"
    (tmp_path / "b").mkdir()
    anonymous = client_security(secured(tmp_path / "b", without), CLOCK, {})
    assert refused(server, STATUS, anonymous).status is grpc.StatusCode.UNAVAILABLE
    foreign = Authority(tmp_path / "foreign", "another authority").issue("localhost")
    section = f"{{tls: {{certificate: {foreign.certificate}, key: {foreign.key}, ca: {authority.ca}}}}}"
    stranger = client_security(secured(tmp_path / "b", section), CLOCK, {})
    assert refused(server, STATUS, stranger).status is grpc.StatusCode.UNAVAILABLE


def test_client_shows_its_replaced_certificate_without_a_restart(serve, authority, tmp_path):
    lines = ["service cert:old.internal old", "operate cert:new.internal new"]
    server, _, _ = serve(
        f"{{{tls_section(authority, ', client_auth: require')}, {tokens_section(tmp_path, lines)}}}"
    )
    folder = tmp_path / "client"
    folder.mkdir()

    def show(name: str) -> None:
        pair = authority.issue(name)
        secret_file(folder / "own.key", pair.key.read_text())
        (folder / "own.crt").write_bytes(pair.certificate.read_bytes())

    show("old.internal")
    section = f"{{tls: {{certificate: {folder}/own.crt, key: {folder}/own.key, ca: {authority.ca}}}}}"
    security = client_security(secured(folder, section), CLOCK, {})
    with open_channel(server.address, security=security) as channel:
        begin: Any = channel.unary_unary(BEGIN)
        pause: Any = channel.unary_unary(PAUSE)
        assert call(begin, b"x") == b"xx"
        show("new.internal")
        assert call(pause, b"x") == b"xx"
        with pytest.raises(RpcError, match="needs the role service"):
            call(begin, b"x")
        (folder / "own.crt").write_text("no certificate")
        assert call(pause, b"x") == b"xx", "what was read before stays in use"


def test_certificate_names_have_roles_where_there_is_a_list(serve, authority, tmp_path):
    lines = ["service cert:assigner.internal assigners"]
    server, _, _ = serve(
        f"{{{tls_section(authority, ', client_auth: require')}, {tokens_section(tmp_path, lines)}}}"
    )

    def client(name: str) -> ClientSecurity:
        pair, folder = authority.issue(name), tmp_path / name
        folder.mkdir()
        section = f"{{tls: {{certificate: {pair.certificate}, key: {pair.key}, ca: {authority.ca}}}}}"
        return client_security(secured(folder, section), CLOCK, {})

    assert ask(server, BEGIN, client("assigner.internal")) == b"xx"
    assert refused(server, BEGIN, client("other.internal")).status is grpc.StatusCode.UNAUTHENTICATED
    (tmp_path / "again").mkdir()
    assert refused(server, PAUSE, client("operator.internal")).status is grpc.StatusCode.UNAUTHENTICATED


def test_server_of_another_name_or_authority_is_not_believed(serve, authority, tmp_path):
    pair = authority.issue("elsewhere.internal")
    server, config, _ = serve(
        f"{{tls: {{certificate: {pair.certificate}, key: {pair.key}, ca: {authority.ca}}}}}"
    )
    assert refused(server, STATUS, client_security(config, CLOCK, {})).status is grpc.StatusCode.UNAVAILABLE
    (tmp_path / "named").mkdir()
    named = secured(tmp_path / "named", f"{{tls: {{ca: {authority.ca}, server_name: elsewhere.internal}}}}")
    assert ask(server, STATUS, client_security(named, CLOCK, {})) == b"xx"
    other = Authority(tmp_path / "other")
    wrong = secured(tmp_path / "named", f"{{tls: {{ca: {other.ca}, server_name: elsewhere.internal}}}}")
    assert refused(server, STATUS, client_security(wrong, CLOCK, {})).status is grpc.StatusCode.UNAVAILABLE


def test_plain_text_does_not_reach_a_server_with_tls(serve, authority, tmp_path):
    server, _, _ = serve(f"{{{tls_section(authority)}, {tokens_section(tmp_path, LINES)}}}")
    assert refused(server, STATUS, ClientSecurity()).status is grpc.StatusCode.UNAVAILABLE


def handshake(address: Address, authority: Authority, newest: ssl.TLSVersion) -> tuple[str | None, bytes]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(authority.ca)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, newest
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection((address.host, address.port), 60) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as connection,
    ):
        return connection.version(), connection.getpeercert(binary_form=True) or b""


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_tls_older_than_1_2_is_refused_and_a_replaced_certificate_is_shown(serve, authority):
    server, _, _ = serve(f"{{{tls_section(authority)}}}")
    with pytest.raises(ssl.SSLError):
        handshake(server.address, authority, ssl.TLSVersion.TLSv1_1)
    version, first = handshake(server.address, authority, ssl.TLSVersion.TLSv1_2)
    assert version == "TLSv1.2"
    version, again = handshake(server.address, authority, ssl.TLSVersion.TLSv1_3)
    assert version == "TLSv1.3"
    assert again == first
    authority.issue("localhost", "127.0.0.1")
    _, renewed = handshake(server.address, authority, ssl.TLSVersion.TLSv1_3)
    assert renewed != first


def test_token_does_not_travel_in_the_clear(tmp_path):
    config = secured(tmp_path, "{}")
    security = showing(config, READER)
    with pytest.raises(Exception, match=r"token is not sent to 192\.0\.2\.1:1 in the clear"):
        open_channel(Address("192.0.2.1", 1), security=security)
    open_channel(Address("127.0.0.1", 1), security=security).close()
    allowed = secured(tmp_path, "{}", "services: {allow_remote: true}")
    open_channel(Address("192.0.2.1", 1), security=showing(allowed, READER)).close()
