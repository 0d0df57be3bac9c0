"""Callers who hold calls open, or send too much: what they can take, and what goes on beside them.

Every bound here is one of memory, threads or calls, never of speed: a loaded machine takes longer, no more.
"""

from __future__ import annotations

import gzip
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2

from tests.unit.stream_runtime.rpc_world import (
    CHECK,
    COMMIT,
    LOOPBACK,
    PREFACE,
    READER,
    RENEW,
    SERVICE,
    STATUS,
    World,
    until,
)
from tidemark.errors import ErrorKind
from tidemark.stream_runtime.rpc import reading, server
from tidemark.stream_runtime.rpc.errors import RpcError
from tidemark.stream_runtime.rpc.health import is_serving


@pytest.fixture(params=[True, False], ids=["tokens", "open"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, tokens=request.param)
    with made.ends:
        yield made


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, tokens=True)
    with made.ends:
        yield made


def test_half_open_health_calls_keep_nobody_from_anything(world: World) -> None:
    held = world.hold(CHECK, 300)
    answers = [health_pb2.HealthCheckResponse.FromString(each.result(timeout=60)) for each in held]
    assert {answer.status for answer in answers} == {health_pb2.HealthCheckResponse.SERVING}
    for _ in range(20):
        assert world.ask(RENEW, SERVICE) == b"xx"
        assert is_serving(world.server.address, 60.0)
    assert world.refused["too_many"] == world.refused["too_slow"] == 0


def test_half_open_calls_of_readers_leave_the_services_their_threads(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "FIRST_MESSAGE_S", 3.0)
    held = world.hold(STATUS, 200, READER if world.config is not None else None)
    for _ in range(20):
        assert world.ask(RENEW, SERVICE) == b"xx"
        assert is_serving(world.server.address, 60.0)
    until(lambda: all(each.done() for each in held))
    statuses = [each.code() for each in held]
    assert set(statuses) == {grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.CANCELLED}
    # Each one is counted, under what became of it.
    assert world.refused["too_slow"] == statuses.count(grpc.StatusCode.CANCELLED) >= 10
    assert world.refused["too_many"] == statuses.count(grpc.StatusCode.RESOURCE_EXHAUSTED) >= 100
    until(lambda: world_answers(world))


def world_answers(world: World) -> bool:
    try:
        return bool(world.ask(STATUS, READER) == b"xx")
    except RpcError as error:
        if error.kind is not ErrorKind.RETRYABLE:
            raise
        return False


def test_half_open_calls_leave_their_own_service_threads(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those of callers who may call, and of everybody in the open: more than the service has threads."""
    monkeypatch.setattr(reading, "FIRST_MESSAGE_S", 3_600.0)
    token = SERVICE if world.config is not None else None
    [patient] = world.hold(RENEW, 1, token)
    held = world.hold(RENEW, 100, token)
    until(lambda: sum(each.done() for each in held) == 85)
    for _ in range(20):
        assert world.ask(RENEW, SERVICE) == b"xx"
    # 16 wait at most; whose connection has the most of them loses them. One of ours takes a place in between.
    until(lambda: world.refused["too_slow"] == sum(each.done() for each in held))
    left = [each for each in (patient, *held) if not each.done()]
    assert len(left) in (15, 16)
    assert patient in left
    assert {each.code() for each in held if each.done()} == {grpc.StatusCode.CANCELLED}
    world.go_on.set()
    until(lambda: all(each.done() for each in left))


def test_half_open_calls_of_strangers_are_refused_at_once(guarded: World) -> None:
    held = guarded.hold(RENEW, 300)
    until(lambda: all(each.done() for each in held))
    codes = [each.code() for each in held]
    assert set(codes) <= {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert guarded.refused["no_token"] + guarded.refused["too_many"] == 300
    assert guarded.ask(RENEW, SERVICE) == b"xx"


def test_a_request_has_a_largest_size_and_who_exceeds_it_is_told_for_good(world: World) -> None:
    largest = b"x" * (server.REQUEST_BYTES_MAX - 100)
    assert world.ask(RENEW, SERVICE, largest) == b"x" * 16
    with pytest.raises(RpcError, match="message larger than max") as failed:
        world.ask(RENEW, SERVICE, largest + b"x" * 200)
    assert failed.value.kind is ErrorKind.INVALID, "asking again would never end"


def test_a_small_request_that_unpacks_to_a_large_one_is_refused(world: World) -> None:
    body = b"\0" * (60 << 20)
    assert len(gzip.compress(body)) < 100_000
    metadata = [("authorization", f"Bearer {SERVICE}")]
    options = [("grpc.max_send_message_length", -1)]
    with (
        grpc.insecure_channel(
            str(world.server.address), options=options, compression=grpc.Compression.Gzip
        ) as channel,
    ):
        renew: Any = channel.unary_unary(RENEW)
        with pytest.raises(grpc.RpcError) as failed:
            renew(body, metadata=metadata, timeout=60)
    assert failed.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_refusal_for_want_of_room_asks_to_come_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "FIRST_MESSAGE_S", 60.0)
    held = world.hold(STATUS, 20, READER)  # a call that nobody holds is cancelled
    until(lambda: world.refused["too_many"] == 10)
    with pytest.raises(RpcError, match="at most 10 calls of the admin service") as failed:
        world.ask(STATUS, READER)
    assert failed.value.kind is ErrorKind.RETRYABLE
    assert failed.value.info.retry_after_s == 1.0
    world.go_on.set()
    until(lambda: all(each.done() for each in held))
    assert world_answers(world)


def test_what_grpc_turns_away_itself_is_counted_and_to_be_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "CALLS_MAX", 4)
    monkeypatch.setattr(reading, "FIRST_MESSAGE_S", 60.0)
    made = World(tmp_path, tokens=False)
    with made.ends:
        held = made.hold(RENEW, 4)
        until(lambda: len(made.server._server._state.rpc_states) == 4)  # type: ignore[attr-defined]
        with pytest.raises(RpcError, match="limit exceeded") as failed:
            made.ask(RENEW, SERVICE)
        assert failed.value.kind is ErrorKind.RETRYABLE
        until(lambda: made.refused["too_many"] == 1)
        made.go_on.set()
        until(lambda: all(each.done() for each in held))
        assert made.ask(RENEW, SERVICE) == b"xx"


def test_connections_that_say_nothing_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_HANDSHAKE_MS", 500)
    monkeypatch.setattr(server, "_IDLE_MS", 500)
    made = World(tmp_path, tokens=False)
    with made.ends, ExitStack() as sockets:
        silent, greeting = (
            sockets.enter_context(
                socket.create_connection((made.server.address.host, made.server.address.port), 60)
            )
            for _ in range(2)
        )
        greeting.sendall(PREFACE)
        for connection in (silent, greeting):
            while connection.recv(4_096):
                pass


def test_a_connection_has_a_greatest_age_and_its_calls_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that always has a call is never idle: it would stay for ever."""
    monkeypatch.setattr(server, "_AGE_MS", 500)
    peers: list[str] = []
    go_on = threading.Event()

    def answer(request: bytes, context: grpc.ServicerContext) -> bytes:
        peers.append(context.peer())
        if request == b"long":
            go_on.wait(120)
        return request

    def add(running: grpc.Server) -> None:
        handlers: dict[str, Any] = {"Renew": grpc.unary_unary_rpc_method_handler(answer)}
        running.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(COMMIT, handlers),))

    started = server.start_server(LOOPBACK, [(COMMIT, add)])
    with ExitStack() as ends:
        ends.callback(started.stop, 0.1)
        ends.callback(go_on.set)
        channel = ends.enter_context(grpc.insecure_channel(str(started.address)))
        renew: Any = channel.unary_unary(RENEW)
        long = renew.future(b"long", timeout=120)
        until(lambda: len(peers) == 1)
        until(lambda: renew(b"x", timeout=60) == b"x" and peers[-1] != peers[0])
        assert not long.done()
        go_on.set()
        assert long.result(timeout=60) == b"long"


def test_a_request_that_cannot_be_parsed_or_is_missing_is_invalid(world: World) -> None:
    metadata = [("authorization", f"Bearer {READER}")]
    with grpc.insecure_channel(str(world.server.address)) as channel:
        watch: Any = channel.stream_stream("/grpc.health.v1.Health/Watch")
        for requests in ([], [b"\xff\xff"]):
            with pytest.raises(grpc.RpcError) as failed:
                next(watch(iter(requests), metadata=metadata, timeout=60))
            assert failed.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_watchers_and_reflection_hold_no_thread_of_the_services(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "FIRST_MESSAGE_S", 60.0)
    metadata = [("authorization", f"Bearer {READER}")]
    request = health_pb2.HealthCheckRequest().SerializeToString()
    with grpc.insecure_channel(str(world.server.address)) as channel:
        watch_one: Any = channel.unary_stream("/grpc.health.v1.Health/Watch")
        watches = []
        for _ in range(8):
            # One after the other: of those that come at once, some may be cut off to make room.
            watches.append(watch_one(request, metadata=metadata, timeout=60))
            next(watches[-1])
        with pytest.raises(grpc.RpcError) as failed:
            next(watch_one(request, metadata=metadata, timeout=60))
        assert failed.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert world.ask(STATUS, READER) == world.ask(RENEW, SERVICE) == b"xx"
        assert is_serving(world.server.address, 60.0)
        for watch in watches:
            watch.cancel()
