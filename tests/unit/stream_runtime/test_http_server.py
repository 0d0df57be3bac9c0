"""The HTTP server of a service: its routes, what it refuses, and what it survives."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter

from tidemark.config.model import Address
from tidemark.stream_runtime import http_server
from tidemark.stream_runtime.http_messages import Answer, Request, text_answer
from tidemark.stream_runtime.http_server import HttpServer, service_routes, start_http_server
from tidemark.stream_runtime.security.listening import ListenError
from tidemark.stream_runtime.security.refused_calls import TOO_MANY, TOO_SLOW, RefusedCalls

LOOPBACK = Address("127.0.0.1", 0)


def hello(request: Request) -> Answer:
    return text_answer(200, f"hello {request.query.get('name', 'you')}")


def broken(_: Request) -> Answer:
    raise RuntimeError("password=abc")


def held(request: Request) -> Answer:
    return text_answer(200, f"below {request.path}")


@pytest.fixture
def server() -> Iterator[HttpServer]:
    running = start_http_server(LOOPBACK, {"/hello": hello, "/broken": broken, "/a/*": held})
    yield running
    running.close()


def ask(
    server: HttpServer, target: str, method: str = "GET", **headers: str
) -> tuple[int, str, dict[str, str]]:
    connection = http.client.HTTPConnection(server.address.host, server.address.port, timeout=60)
    try:
        connection.request(method, target, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), dict(answer.getheaders())
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("target", "status", "body"),
    [
        ("/hello", 200, "hello you\n"),
        ("/hello?name=a%20b&name=c", 200, "hello a b\n"),
        ("/a/b/c?x", 200, "below /a/b/c\n"),
        ("/a", 404, "there is no such page\n"),
        ("/hello/", 404, "there is no such page\n"),
        ("/broken", 500, "the request failed: the service's log has the error\n"),
        ("/hello?" + "&".join(f"f{n}=1" for n in range(40)), 400, "this address cannot be read\n"),
        ("/hello?name=" + "x" * 9_000, 414, "the address is longer than 8192 characters\n"),
    ],
)
def test_a_request_is_answered_by_its_route(server: HttpServer, target: str, status: int, body: str) -> None:
    found = ask(server, target)
    assert found[:2] == (status, body)


def test_an_answer_says_nothing_of_the_machine_and_is_not_kept(server: HttpServer) -> None:
    _, _, headers = ask(server, "/hello")
    assert headers["Server"].strip() == "tidemark"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"


def test_head_has_no_body_and_other_methods_are_refused(server: HttpServer) -> None:
    status, body, headers = ask(server, "/hello", "HEAD")
    assert (status, body, headers["Content-Length"]) == (200, "", "10")
    assert ask(server, "/hello", "POST")[0] == 501
    assert ask(server, "/hello", "DELETE")[0] == 501


def test_guard_is_asked_before_any_route() -> None:
    def guard(request: Request) -> Answer | None:
        return (
            None if request.headers.get("authorization") == "Bearer x" else text_answer(401, "who are you?")
        )

    server = start_http_server(LOOPBACK, {"/hello": hello}, guard=guard)
    try:
        assert ask(server, "/hello")[:2] == (401, "who are you?\n")
        assert ask(server, "/nothing")[0] == 401
        assert ask(server, "/hello", Authorization="Bearer x")[0] == 200
    finally:
        server.close()


def test_more_requests_than_there_are_threads_are_told_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "WORKING_MAX", 2)
    inside, go_on = threading.Barrier(3, timeout=60), threading.Event()

    def slow(_: Request) -> Answer:
        inside.wait()
        go_on.wait(60)
        return text_answer(200, "late")

    refused = RefusedCalls()
    routes = {"/slow": slow, "/hello": hello, **service_routes(CollectorRegistry(), lambda: True)}
    server = start_http_server(LOOPBACK, routes, too_many=lambda: refused.add(TOO_MANY))
    answers: list[int] = []
    threads = [threading.Thread(target=lambda: answers.append(ask(server, "/slow")[0])) for _ in range(2)]
    try:
        for thread in threads:
            thread.start()
        inside.wait()
        assert ask(server, "/hello")[:2] == (503, "too many requests at once: try again\n")
        assert ask(server, "/healthz")[0] == 200, "whether it serves is told all the same"
        assert refused.counts()["too_many"] == 1
        go_on.set()
        for thread in threads:
            thread.join(60)
        assert answers == [200, 200]
        assert ask(server, "/hello")[0] == 200
    finally:
        go_on.set()
        server.close()


def connected(server: HttpServer, sockets: ExitStack) -> socket.socket:
    connection = socket.create_connection((server.address.host, server.address.port), timeout=60)
    return sockets.enter_context(connection)


@pytest.mark.parametrize("said", [b"", b"GET /healthz HTTP/1.1\r\nx: "], ids=["nothing", "half"])
def test_slow_sockets_keep_no_probe_from_its_answer(said: bytes) -> None:
    """Many more than there may be connections: whoever sends a request is answered, each time."""
    refused = RefusedCalls()
    routes = {"/hello": hello, **service_routes(CollectorRegistry(), lambda: True)}
    server = start_http_server(LOOPBACK, routes, too_slow=lambda: refused.add(TOO_SLOW))
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    try:
        with ExitStack() as sockets:
            for number in range(2_000):
                slow = connected(server, sockets)
                with suppress(OSError):
                    slow.sendall(said)
                if number % 100 == 99:
                    assert ask(server, "/healthz")[:2] == (200, "serving\n")
                    assert ask(server, "/hello")[0] == 200
            held = len(list(Path("/proc/self/fd").iterdir())) - descriptors - 2_000
            assert held <= http_server.CONNECTIONS_MAX + 20
        assert refused.counts()["too_slow"] >= 2_000 - http_server.CONNECTIONS_MAX
    finally:
        server.close()


def slow_readers(server: HttpServer, sockets: ExitStack) -> int:
    """How many clients now ask for what they never read."""
    clients = 40
    for _ in range(clients):
        connected(server, sockets).sendall(b"GET /large HTTP/1.1\r\n\r\n")
    return clients


def test_clients_that_read_slowly_hold_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "CONNECTION_S", 600.0)
    refused, large, given = RefusedCalls(), Answer(b"x" * (32 << 20)), threading.Semaphore(0)

    def give(_: Request) -> Answer:
        given.release()
        return large

    server = start_http_server(LOOPBACK, {"/large": give}, too_slow=lambda: refused.add(TOO_SLOW))
    try:
        with ExitStack() as sockets:
            for _ in range(slow_readers(server, sockets)):
                assert given.acquire(timeout=60)
            end_s = time.monotonic() + 60
            while any(thread.name == "http-route" for thread in threading.enumerate()):
                assert time.monotonic() < end_s
                time.sleep(0.01)
            assert refused.counts()["too_slow"] == 0
    finally:
        server.close()


def test_clients_that_read_slowly_are_cut_off_and_others_are_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_server, "CONNECTION_S", 3.0)
    refused, large = RefusedCalls(), Answer(b"x" * (32 << 20))
    routes = {"/large": lambda _: large, **service_routes(CollectorRegistry(), lambda: True)}
    server = start_http_server(LOOPBACK, routes, too_slow=lambda: refused.add(TOO_SLOW))
    try:
        with ExitStack() as sockets:
            clients = slow_readers(server, sockets)
            end_s = time.monotonic() + 60
            answered = 0
            while refused.counts()["too_slow"] < clients or not answered:
                assert time.monotonic() < end_s
                with suppress(http.client.RemoteDisconnected):  # by a machine that takes 3 s for it
                    answered += ask(server, "/healthz")[0] == 200
    finally:
        server.close()


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET\r\n\r\n", 400),
        (b"GET / HTTP/2\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", 400),
        (b"GET /hello HTTP/1.1\r\n" + b"x: y\r\n" * 200 + b"\r\n", 431),
        (b"GET /hello HTTP/1.1\r\nx: " + b"y" * 100_000, 431),
        (b"GET /hello HTTP/1.0\r\n\r\n", 200),
        (b"GET /hello HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 200),
    ],
)
def test_whatever_is_sent_is_answered_and_the_connection_closed(
    server: HttpServer, sent: bytes, status: int
) -> None:
    with ExitStack() as sockets:
        connection = connected(server, sockets)
        connection.sendall(sent)
        answer = b""
        with suppress(ConnectionError):
            while part := connection.recv(65_536):
                answer += part
        # What was not read may reset the connection before its answer is.
        assert answer.startswith(b"HTTP/1.1 %d " % status) or (status == 431 and not answer)


def test_a_client_that_drips_its_request_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "HEAD_S", 0.5)
    server = start_http_server(LOOPBACK, {"/hello": hello})
    end = time.monotonic() + 60
    try:
        with socket.create_connection((server.address.host, server.address.port), timeout=60) as dripping:
            dripping.settimeout(0.05)
            dripping.sendall(b"GET /hello HTTP/1.1\r\nx: ")
            answer = None
            while answer is None:
                assert time.monotonic() < end, "the server still listens to it"
                try:
                    dripping.sendall(b"x")
                    answer = dripping.recv(100)
                except TimeoutError:
                    continue
                except ConnectionError:
                    answer = b""
            assert answer == b""
        assert ask(server, "/hello")[0] == 200
    finally:
        server.close()


def test_nothing_is_left_of_a_server_that_is_closed() -> None:
    go_on, inside = threading.Event(), threading.Event()

    def slow(_: Request) -> Answer:
        inside.set()
        go_on.wait(60)
        return text_answer(200, "late")

    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    server = start_http_server(LOOPBACK, {"/slow": slow})
    try:
        with ExitStack() as sockets:
            connected(server, sockets)
            connected(server, sockets).sendall(b"GET /slow HTTP/1.1\r\n\r\n")
            assert inside.wait(60)
            server.close()
            server.close()
            with pytest.raises(OSError, match="refused"):
                connected(server, sockets)
    finally:
        go_on.set()
    assert len(list(Path("/proc/self/fd").iterdir())) <= descriptors


def test_metrics_and_health_of_a_service() -> None:
    registry = CollectorRegistry()
    Counter("tidemark_x_records", "Records", registry=registry).inc(3)
    ready = threading.Event()
    server = start_http_server(LOOPBACK, service_routes(registry, ready.is_set))
    try:
        status, page, headers = ask(server, "/metrics")
        assert status == 200
        assert "tidemark_x_records_total 3.0" in page.splitlines()
        assert headers["Content-Type"].startswith("text/plain; version=")
        assert ask(server, "/healthz")[:2] == (503, "not serving yet\n")
        ready.set()
        assert ask(server, "/healthz")[:2] == (200, "serving\n")
    finally:
        server.close()


def test_an_address_that_is_taken_or_remote_is_refused(server: HttpServer) -> None:
    with pytest.raises(ListenError, match="cannot serve HTTP on"):
        start_http_server(server.address, {})
    with pytest.raises(ListenError, match="services.allow_remote"):
        start_http_server(Address("0.0.0.0", 0), {})


def test_it_listens_on_ipv6_loopback_where_there_is_one() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    server = start_http_server(Address("::1", 0), {"/hello": hello})
    try:
        assert ask(server, "/hello")[0] == 200
    finally:
        server.close()
