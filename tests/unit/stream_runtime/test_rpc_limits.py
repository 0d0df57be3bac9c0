"""Callers who hold calls open, send much, or connect often: what they can take, and what goes on beside them.

Every bound here is one of memory, threads or calls, never of speed: a loaded machine takes longer, no more.
"""

from __future__ import annotations

import gzip
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2

from stream_runtime.clock import SystemClock
from stream_runtime.config import Address
from stream_runtime.errors import ErrorKind
from stream_runtime.ids import SeededIds
from stream_runtime.rpc import reading, server
from stream_runtime.rpc.call_groups import CallGroup, CallGroups
from stream_runtime.rpc.channel import call, open_channel
from stream_runtime.rpc.errors import RpcError
from stream_runtime.rpc.health import is_serving
from stream_runtime.rpc.server import RpcServer, start_server
from stream_runtime.security.client import IN_THE_CLEAR, TOKEN_VARIABLE, client_security
from stream_runtime.security.roles import Role
from stream_runtime.security.server import ServerSecurity, open_security, server_security
from stream_runtime.security.tokens import new_token, token_line
from tests.unit.stream_runtime.security.secured import secret_file, secured

ADMIN, COMMIT = "tidemark.admin.v1.Admin", "tidemark.commit.v1.CommitCoordinator"
STATUS, RENEW, CHECK = f"/{ADMIN}/Status", f"/{COMMIT}/Renew", "/grpc.health.v1.Health/Check"
LOOPBACK = Address("127.0.0.1", 0)
READER, SERVICE = (new_token(SeededIds(seed)) for seed in (1, 2))
CLOCK = SystemClock()


def adding(service: str, method: str) -> Callable[[grpc.Server], None]:
    def add(running: grpc.Server) -> None:
        handler: Any = grpc.unary_unary_rpc_method_handler(lambda request, _: request[:8] * 2)
        running.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))

    return add


class World:
    """A server with the two services, its callers, and who holds calls open."""

    def __init__(self, folder: Path, *, tokens: bool) -> None:
        self.ends = ExitStack()
        self.security: ServerSecurity = open_security()
        self.config: Any = None
        if tokens:
            lines = [token_line(READER, [Role.READ], "one"), token_line(SERVICE, [Role.SERVICE], "two")]
            section = f"{{tokens: {{file: {secret_file(folder / 'tokens', chr(10).join(lines))}}}}}"
            self.config = secured(folder, section)
            self.security = server_security(self.config, CLOCK)
        group = CallGroup("calls of the admin service", frozenset({STATUS}), 10)
        too_many = self.security.access.refused
        self.server: RpcServer = start_server(
            LOOPBACK,
            [(ADMIN, adding(ADMIN, "Status")), (COMMIT, adding(COMMIT, "Renew"))],
            security=self.security,
            interceptors=[CallGroups([group], lambda: too_many.add("too_many"))],
        )
        self.server.set_serving(True)
        self.ends.callback(self.server.stop, 0.1)
        self.go_on = threading.Event()
        self.ends.callback(self.go_on.set)

    @property
    def refused(self) -> dict[str, int]:
        return self.security.access.refused.counts()

    def ask(self, method: str, token: str, content: bytes = b"x", seconds: float = 60.0) -> Any:
        security = IN_THE_CLEAR
        if self.config is not None:
            security = client_security(self.config, CLOCK, {TOKEN_VARIABLE: token})
        with open_channel(self.server.address, security=security) as channel:
            return call(channel.unary_unary(method), content, seconds)

    def hold(self, method: str, calls: int, token: str | None = None) -> list[Any]:
        """So many calls whose request never comes, 100 on a connection."""

        def nothing() -> Iterator[bytes]:
            self.go_on.wait(120)
            yield from ()

        metadata = () if token is None else (("authorization", f"Bearer {token}"),)
        opened = []
        for begin in range(0, calls, 100):
            own = [("grpc.use_local_subchannel_pool", 1)]
            channel = grpc.insecure_channel(str(self.server.address), options=own)
            self.ends.callback(channel.close)
            stub: Any = channel.stream_unary(method)
            ends = min(begin + 100, calls)
            opened += [stub.future(nothing(), metadata=metadata) for _ in range(begin, ends)]
        return opened


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


def until(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.02)


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


_SERVING = """
import sys
from stream_runtime.config import Address
from stream_runtime.rpc.server import start_server
server = start_server(Address("127.0.0.1", 0), [])
server.set_serving(True)
print(server.address.port, flush=True)
sys.stdin.read()
server.stop(0.1)
"""


def peak_bytes(process_id: int) -> int:
    for line in Path(f"/proc/{process_id}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM")


def test_large_bodies_of_health_calls_are_not_taken_in() -> None:
    """Eight requests of 60 MiB at once, to a process of its own, whose memory is looked at."""
    command = [sys.executable, "-c", _SERVING]
    body = b"\0" * (60 << 20)
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as process, ExitStack() as ends:
        assert process.stdin is not None
        assert process.stdout is not None
        ends.callback(process.stdin.close)
        address = Address("127.0.0.1", int(process.stdout.readline()))
        until(lambda: is_serving(address, 5.0))
        before = peak_bytes(process.pid)
        calls: list[Any] = []
        for _ in range(8):
            own = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
            channel = grpc.insecure_channel(str(address), options=own)
            ends.callback(channel.close)
            check: Any = channel.unary_unary(CHECK)
            calls.append(check.future(body, timeout=120))
        statuses = {health_pb2.HealthCheckResponse.FromString(each.result()).status for each in calls}
        assert statuses == {health_pb2.HealthCheckResponse.SERVING}
        assert peak_bytes(process.pid) - before < 32 << 20


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


def test_thousands_of_connections_are_not_kept_and_leave_those_alone_who_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of those who never say anything the server holds no more than its limit."""
    monkeypatch.setattr(server, "_HANDSHAKE_MS", 600_000)
    monkeypatch.setattr(server, "_CONNECTIONS_MAX", 100)
    made = World(tmp_path, tokens=True)
    security = client_security(made.config, CLOCK, {TOKEN_VARIABLE: SERVICE})
    with made.ends, open_channel(made.server.address, security=security) as channel:
        renew: Any = channel.unary_unary(RENEW)
        assert call(renew, b"x") == b"xx"
        descriptors = len(list(Path("/proc/self/fd").iterdir()))
        with ExitStack() as sockets:
            for _ in range(2_000):
                address = (made.server.address.host, made.server.address.port)
                sockets.enter_context(socket.create_connection(address, 60))
            # The last one was accepted, and closed at once: all before it were, too.
            until(lambda: len(list(Path("/proc/self/fd").iterdir())) < descriptors + 2_000 + 120)
            assert call(renew, b"x") == b"xx"
        until(lambda: is_serving(made.server.address, 5.0))


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
        greeting.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
        for connection in (silent, greeting):
            while connection.recv(4_096):
                pass


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
