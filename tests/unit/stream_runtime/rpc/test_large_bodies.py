"""Large bodies, on gRPC and HTTP, with and without tokens: what they take of a process's memory."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2

from testing.ids import SeededIds
from tests.unit.stream_runtime.rpc_world import CHECK, COMMIT, READER, RENEW, SERVICE, STATUS, until
from tests.unit.stream_runtime.serving_process import ServingProcess, serving_process
from tidemark.config import Address
from tidemark.stream_runtime.rpc.admission import OF_A_SERVICE
from tidemark.stream_runtime.rpc.health import is_serving
from tidemark.stream_runtime.rpc.server import REQUEST_BYTES_MAX
from tidemark.stream_runtime.security.tokens import new_token

BODY = b"\0" * (24 << 20)
AT_ONCE = 8
TAKEN_MAX = 32 << 20
"""Of the 192 MiB that come at once."""
STRANGER = new_token(SeededIds(3))
LIST, WATCH = "/grpc.health.v1.Health/List", "/grpc.health.v1.Health/Watch"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
NOBODYS = f"/{COMMIT}/Nothing"
METHODS = (CHECK, LIST, WATCH, REFLECTION, STATUS, RENEW, NOBODYS)
REFUSED = {
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNIMPLEMENTED,
    # Whoever made room for another one that waits for its request.
    grpc.StatusCode.CANCELLED,
}


Serving = Callable[[bool], ServingProcess]


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """One process with tokens and one without, for tests after which little is left in their memory."""
    with ExitStack() as ends:

        @cache
        def get(tokens: bool) -> ServingProcess:
            folder = tmp_path_factory.mktemp("serving")
            process = ends.enter_context(serving_process(folder, tokens=tokens))
            until(lambda: is_serving(process.rpc, 5.0))
            return process

        yield get


CALLERS = pytest.mark.parametrize(
    ("tokens", "token"),
    [(False, None), (True, None), (True, STRANGER), (True, "right")],
    ids=["open", "none", "bad", "right"],
)


def sent(address: Address, method: str, token: str | None, body: bytes, calls: int) -> list[Any]:
    """The calls' ends, each of a connection of its own, all at once."""
    metadata = () if token is None else (("authorization", f"Bearer {token}"),)
    with ExitStack() as ends:
        made = []
        for _ in range(calls):
            own = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
            channel = ends.enter_context(grpc.insecure_channel(str(address), options=own))
            stub: Any = channel.unary_unary(method)
            made.append(stub.future(body, metadata=metadata, timeout=120, wait_for_ready=True))
        for each in made:
            each.exception()
        return made


@CALLERS
@pytest.mark.parametrize("method", METHODS)
def test_large_requests_are_not_taken_in(
    serving: Serving, method: str, tokens: bool, token: str | None
) -> None:
    process = serving(tokens)
    before = process.forget_peak()
    if token == "right":
        token = SERVICE if method.startswith(f"/{COMMIT}/") else READER
    calls = sent(process.rpc, method, token, BODY, AT_ONCE)
    if method in (CHECK, LIST):
        assert {each.code() for each in calls} == {grpc.StatusCode.OK}
    else:
        assert {each.code() for each in calls} <= REFUSED
    assert process.peak_bytes() - before < TAKEN_MAX
    assert is_serving(process.rpc, 60.0)


def test_health_is_told_to_who_sends_a_large_request(serving: Serving) -> None:
    [checked] = sent(serving(True).rpc, CHECK, None, BODY, 1)
    answer = health_pb2.HealthCheckResponse.FromString(checked.result())
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize("tokens", [True, False], ids=["tokens", "open"])
def test_the_largest_requests_take_no_more_than_the_threads_of_their_service(
    tmp_path: Path, tokens: bool
) -> None:
    """Many more than it has threads, of callers who may: each waits outside until one takes it."""
    with serving_process(tmp_path, tokens=tokens) as process:
        until(lambda: is_serving(process.rpc, 5.0))
        before = process.forget_peak()
        body = b"x" * (REQUEST_BYTES_MAX - 100)
        codes = {each.code() for each in sent(process.rpc, RENEW, SERVICE, body, 120)}
        assert grpc.StatusCode.OK in codes
        assert codes <= {grpc.StatusCode.OK, grpc.StatusCode.CANCELLED, grpc.StatusCode.RESOURCE_EXHAUSTED}
        # Of each one that a thread has: the parts as they came, the whole, and its like before it, which the
        # allocator may still hold. Without the limit it would be this for all of them.
        assert process.peak_bytes() - before < 3 * OF_A_SERVICE.threads * REQUEST_BYTES_MAX + TAKEN_MAX


def plain(token: str | None, method: str) -> bytes:
    return b"%s /page HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %d\r\n\r\n" % (
        method.encode(),
        b"" if token is None else f"Authorization: Bearer {token}\r\n".encode(),
        len(BODY),
    )


def chunked(token: str | None, method: str) -> bytes:
    head = re.sub(rb"Content-Length: \d+", b"Transfer-Encoding: chunked", plain(token, method))
    return head + b"%x\r\n" % len(BODY)


def answer_to(address: Address, head: bytes) -> bytes:
    """What came back, nothing when the connection was reset: the body is sent until the server hangs up."""
    answer = b""
    with socket.create_connection(address, 120) as connection, suppress(ConnectionError):
        with suppress(ConnectionError):
            connection.sendall(head + BODY)
        while part := connection.recv(65_536):
            answer += part
    return answer


@CALLERS
@pytest.mark.parametrize("head", [plain, chunked])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_large_bodies_over_http_are_not_taken_in(
    serving: Serving,
    method: str,
    head: Callable[[str | None, str], bytes],
    tokens: bool,
    token: str | None,
) -> None:
    process = serving(tokens)
    before = process.forget_peak()
    token = READER if token == "right" else token
    answers: list[bytes] = []

    def ask() -> None:
        answers.append(answer_to(process.http, head(token, method)))

    threads = [threading.Thread(target=ask) for _ in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(answers) == AT_ONCE
    statuses = {int(answer.split()[1]) for answer in answers if answer}
    assert statuses <= ({501} if method == "POST" else {200, 401})
    assert process.peak_bytes() - before < TAKEN_MAX
    assert page(process.http).startswith(b"HTTP/1.1 200 ")


def page(address: Address) -> bytes:
    head = f"GET /page HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {READER}\r\n\r\n".encode()
    with socket.create_connection(address, 120) as connection:
        connection.sendall(head)
        return connection.recv(65_536)
