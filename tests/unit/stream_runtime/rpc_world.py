"""A gRPC server with two services, open or for callers with tokens, and callers who hold calls open."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc

from testing.ids import SeededIds
from tests.certificates import Authority
from tests.unit.stream_runtime.security.secured import secret_file, secured
from tidemark.config import Address
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.rpc.admission import CallGroup, CallGroups
from tidemark.stream_runtime.rpc.channel import call, open_channel
from tidemark.stream_runtime.rpc.server import RpcServer, start_server
from tidemark.stream_runtime.security.client import (
    IN_THE_CLEAR,
    TOKEN_VARIABLE,
    ClientSecurity,
    client_security,
)
from tidemark.stream_runtime.security.roles import Role
from tidemark.stream_runtime.security.server import ServerSecurity, open_security, server_security
from tidemark.stream_runtime.security.tokens import new_token, token_line

ADMIN, COMMIT = "tidemark.admin.v1.Admin", "tidemark.commit.v1.CommitCoordinator"
STATUS, RENEW, CHECK = f"/{ADMIN}/Status", f"/{COMMIT}/Renew", "/grpc.health.v1.Health/Check"
LOOPBACK = Address("127.0.0.1", 0)
READER, SERVICE = (new_token(SeededIds(seed)) for seed in (1, 2))
CLOCK = SystemClock()
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""What opens an HTTP/2 connection: the least that gRPC takes for one."""


def adding(service: str, method: str) -> Callable[[grpc.Server], None]:
    def add(running: grpc.Server) -> None:
        handler: Any = grpc.unary_unary_rpc_method_handler(lambda request, _: request[:8] * 2)
        running.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))

    return add


class World:
    """A server with the two services, its callers, and who holds calls open."""

    def __init__(self, folder: Path, *, tokens: bool, tls: bool = False) -> None:
        """``tls``: with tokens alone."""
        self.ends = ExitStack()
        self.security: ServerSecurity = open_security()
        self.config: Any = None
        if tokens:
            lines = [token_line(READER, [Role.READ], "one"), token_line(SERVICE, [Role.SERVICE], "two")]
            section = f"tokens: {{file: {secret_file(folder / 'tokens', chr(10).join(lines))}}}"
            if tls:
                authority = Authority(folder / "ca")
                own = authority.issue("localhost", "127.0.0.1")
                files = f"certificate: {own.certificate}, key: {own.key}, ca: {authority.ca}"
                section += f", tls: {{{files}}}"
            self.config = secured(folder, f"{{{section}}}")
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

    def caller(self, token: str) -> ClientSecurity:
        if self.config is None:
            return IN_THE_CLEAR
        return client_security(self.config, CLOCK, {TOKEN_VARIABLE: token})

    def ask(self, method: str, token: str, content: bytes = b"x", seconds: float = 60.0) -> Any:
        with open_channel(self.server.address, security=self.caller(token)) as channel:
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


def until(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.02)
