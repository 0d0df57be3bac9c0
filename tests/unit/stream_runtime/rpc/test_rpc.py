"""A real gRPC server and channel on loopback; the service is the health protocol's, plus one of raw bytes."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tests.faults.link import Address as LinkAddress
from tests.faults.link import Link
from tests.unit.stream_runtime.rpc_world import until
from tidemark.config import Address
from tidemark.errors import ErrorKind, TidemarkError
from tidemark.stream_runtime.errors import StreamRuntimeError
from tidemark.stream_runtime.rpc.channel import call, open_channel
from tidemark.stream_runtime.rpc.errors import RpcError, StatusError, kind_of_status, status_of
from tidemark.stream_runtime.rpc.interceptors import HandlerInterceptor
from tidemark.stream_runtime.rpc.server import start_server
from tidemark.stream_runtime.security.listening import ListenError, check_listen_address

LOOPBACK = Address("127.0.0.1", 0)


class OtherPackagesError(TidemarkError):
    kind = ErrorKind.CONFLICT


class NotThereError(StatusError):
    status = grpc.StatusCode.NOT_FOUND


def failing_with(kind: ErrorKind) -> StreamRuntimeError:
    error = StreamRuntimeError(f"because {kind.value}")
    error.kind = kind
    return error


def handle(request: bytes, context: grpc.ServicerContext) -> bytes:
    word = request.decode()
    if word in ErrorKind.__members__:
        raise failing_with(ErrorKind[word])
    if word == "status":
        raise NotThereError("no such thing")
    if word == "foreign":
        raise OtherPackagesError("of another package")
    if word == "defect":
        raise KeyError("oops")
    if word == "own":
        context.abort(grpc.StatusCode.NOT_FOUND, "said so itself")
    if word == "slow":
        while context.is_active():
            context.time_remaining()
    return request * 2


def stream(request: bytes, context: grpc.ServicerContext):
    yield b"one"
    raise failing_with(ErrorKind.FENCED)


def register(server: grpc.Server) -> None:
    handlers: dict[str, Any] = {
        "Do": grpc.unary_unary_rpc_method_handler(handle),
        "Watch": grpc.unary_stream_rpc_method_handler(stream),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Echo", handlers),))


@pytest.fixture
def server():
    running = start_server(LOOPBACK, [("test.Echo", register)], message_bytes_max=100_000)
    yield running
    running.stop(0.1)


@pytest.fixture
def channel(server):
    with open_channel(server.address, deadline_s=60.0, message_bytes_max=100_000) as channel:
        yield channel


def test_call_answers(channel):
    assert call(channel.unary_unary("/test.Echo/Do"), b"x") == b"xx"


@pytest.mark.parametrize("kind", list(ErrorKind))
def test_kind_survives_the_wire(channel, kind):
    with pytest.raises(RpcError, match=f"/test.Echo/Do: because {kind.value}") as failed:
        call(channel.unary_unary("/test.Echo/Do"), kind.name.encode())
    assert failed.value.kind is kind


def test_peer_that_is_frozen_is_given_up_after_an_unanswered_ping(server, monkeypatch):
    monkeypatch.setattr("tidemark.stream_runtime.rpc.channel._KEEPALIVE_MS", 500)
    monkeypatch.setattr("tidemark.stream_runtime.rpc.channel._KEEPALIVE_TIMEOUT_MS", 500)
    # A machine that pauses for a second may miss a ping before the peer is frozen: then once more.
    until(lambda: "ping timeout" in said_of_a_frozen_peer(server.address))


def said_of_a_frozen_peer(peer: Address) -> str:
    """What a call says that was made after the peer was frozen; nothing where the peer was lost before."""
    link = Link(LinkAddress(peer.host, peer.port))
    try:
        with open_channel(Address(*link.address), deadline_s=120.0) as channel:
            method: Any = channel.unary_unary("/test.Echo/Do")
            with suppress(RpcError):
                assert call(method, b"x") == b"xx"
                link.black_hole()
                with pytest.raises(RpcError) as failed:
                    call(method, b"x")
                return str(failed.value)
    finally:
        link.close()
    return ""


def test_error_of_another_package_is_mapped_by_its_kind(channel):
    with pytest.raises(RpcError, match="of another package") as failed:
        call(channel.unary_unary("/test.Echo/Do"), b"foreign")
    assert failed.value.kind is ErrorKind.CONFLICT


def test_error_with_a_status_of_its_own_keeps_it(channel):
    with pytest.raises(RpcError, match="no such thing") as failed:
        call(channel.unary_unary("/test.Echo/Do"), b"status")
    assert failed.value.status is grpc.StatusCode.NOT_FOUND


def refuse(method: str) -> list[Any]:
    raise NotThereError(f"{method} is not for you")


class Refusing(HandlerInterceptor):
    """Lets nothing through but the health protocol."""

    def around(self, method, handler, request, context):
        if "Health" in method:
            return handler(request, context)
        raise NotThereError(f"{method} is not for you")

    def around_stream(self, method, handler, request, context):
        yield from refuse(method)


def test_added_interceptor_stands_before_every_handler_and_its_errors_have_their_status():
    running = start_server(LOOPBACK, [("test.Echo", register)], interceptors=[Refusing()])
    try:
        with open_channel(running.address, deadline_s=60.0) as channel:
            with pytest.raises(RpcError, match="/test.Echo/Do is not for you") as failed:
                call(channel.unary_unary("/test.Echo/Do"), b"x")
            assert failed.value.status is grpc.StatusCode.NOT_FOUND
            watch: Any = channel.unary_stream("/test.Echo/Watch")
            with pytest.raises(grpc.RpcError, match="Watch is not for you"):
                next(watch(b"x", timeout=60))
            reflected = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo
            request = reflection_pb2.ServerReflectionRequest(list_services="")
            with pytest.raises(grpc.RpcError, match="ServerReflectionInfo is not for you"):
                next(reflected(iter([request]), timeout=60))
            check = health_pb2_grpc.HealthStub(channel).Check
            assert call(check, health_pb2.HealthCheckRequest()).status == 2
    finally:
        running.stop(0.1)


def test_defect_is_internal_and_names_itself(channel):
    with pytest.raises(RpcError, match="KeyError: 'oops'") as failed:
        call(channel.unary_unary("/test.Echo/Do"), b"defect")
    assert failed.value.status is grpc.StatusCode.INTERNAL


def test_status_set_by_the_handler_stands(channel):
    with pytest.raises(RpcError, match="said so itself") as failed:
        call(channel.unary_unary("/test.Echo/Do"), b"own")
    assert failed.value.status is grpc.StatusCode.NOT_FOUND


def test_stream_ends_with_the_kind(channel):
    answers = channel.unary_stream("/test.Echo/Watch")(b"x", timeout=60)
    assert next(answers) == b"one"
    with pytest.raises(grpc.RpcError) as failed:
        next(answers)
    assert failed.value.code() is grpc.StatusCode.FAILED_PRECONDITION


def test_call_without_deadline_gets_the_default_one(server):
    with open_channel(server.address, deadline_s=0.3) as impatient, pytest.raises(RpcError) as failed:
        call(impatient.unary_unary("/test.Echo/Do"), b"slow")
    assert failed.value.status is grpc.StatusCode.DEADLINE_EXCEEDED
    assert failed.value.kind is ErrorKind.RETRYABLE


def test_message_above_the_limit_is_refused(channel):
    with pytest.raises(RpcError) as failed:
        call(channel.unary_unary("/test.Echo/Do"), b"x" * 60_000)
    assert failed.value.status is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_dead_server_is_retryable(server, channel):
    server.stop(0.0)
    with pytest.raises(RpcError) as failed:
        call(channel.unary_unary("/test.Echo/Do"), b"x", 2.0)
    assert failed.value.kind is ErrorKind.RETRYABLE


def test_health_follows_serving(server, channel):
    stub = health_pb2_grpc.HealthStub(channel)
    seen = []
    for serving in (False, True):
        server.set_serving(serving)
        seen.append(stub.Check(health_pb2.HealthCheckRequest()).status)
    server.set_serving(False, "test.Echo")
    listed = {name: each.status for name, each in stub.List(health_pb2.HealthListRequest()).statuses.items()}
    assert (seen, listed) == ([2, 1], {"": 1, "test.Echo": 2})
    watched = stub.Watch(health_pb2.HealthCheckRequest(service="test.Echo"), timeout=60)
    assert next(watched).status == 2
    watched.cancel()


def test_reflection_lists_the_services(channel):
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    (answer,) = stub.ServerReflectionInfo(iter([request]), timeout=60)
    names = {service.name for service in answer.list_services_response.service}
    assert {"test.Echo", "grpc.health.v1.Health"} <= names


def test_taken_port_is_refused(server):
    with pytest.raises(ListenError, match="another process has the port"):
        start_server(server.address, [])


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "8.8.8.8", "no-such-host.invalid"])
def test_address_beyond_loopback_needs_permission(host):
    with pytest.raises(ListenError, match="allow_remote"):
        check_listen_address(Address(host, 0), allow_remote=False)
    check_listen_address(Address(host, 0), allow_remote=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.8.9.1"])
def test_loopback_needs_none(host):
    check_listen_address(Address(host, 0), allow_remote=False)


def test_mapping_is_one_to_one():
    assert {kind_of_status(status_of(failing_with(kind))) for kind in ErrorKind} == set(ErrorKind)
    assert status_of(KeyError()) is grpc.StatusCode.INTERNAL
