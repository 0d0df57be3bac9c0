"""The health checks of the containers against servers that answer, refuse, or are something else."""

import importlib.util
import socket
import struct
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

FILE = Path(__file__).resolve().parents[3] / "deploy" / "healthcheck.py"
spec = importlib.util.spec_from_file_location("healthcheck", FILE)
assert spec is not None
assert spec.loader is not None
healthcheck = importlib.util.module_from_spec(spec)
spec.loader.exec_module(healthcheck)


@contextmanager
def answering(reply):
    """A server on a free port that reads one request and answers `reply(request)`."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            connection, _ = listener.accept()
            with connection:
                connection.sendall(reply(connection.recv(65536)))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(timeout=60)


def api_versions(error):
    """A broker's answer with the request's correlation id."""
    return lambda request: struct.pack(">i", 10) + request[8:12] + struct.pack(">hi", error, 0)


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (api_versions(0), 0),
        (api_versions(35), 1),
        (lambda _: b"", 1),
        (lambda _: b"HTTP/1.1 400 Bad\r\n\r\n", 1),
    ],
)
def test_kafka_is_healthy_when_it_answers_as_kafka_without_an_error(reply, code):
    with answering(reply) as port:
        assert healthcheck.main(["kafka", str(port)]) == code


@pytest.mark.parametrize(
    ("status", "code"), [("200 OK", 0), ("204", 0), ("503 Service Unavailable", 1), ("302 Found", 1)]
)
def test_http_is_healthy_when_it_answers_2xx(status, code):
    reply = f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()
    with answering(lambda _: reply) as port:
        assert healthcheck.main(["http", f"http://127.0.0.1:{port}/healthz"]) == code


@pytest.mark.parametrize("reply", [b"", b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1\r\n\r\n"])
def test_what_does_not_speak_http_is_unhealthy(reply):
    with answering(lambda _: reply) as port:
        assert healthcheck.main(["http", f"http://127.0.0.1:{port}/"]) == 1


def test_http_asks_for_the_path_of_the_url():
    asked = []

    def answer(request):
        asked.append(request)
        return b"HTTP/1.0 200 OK\r\n\r\n"

    with answering(answer) as port:
        assert healthcheck.main(["http", f"http://127.0.0.1:{port}/json/"]) == 0
    assert asked[0].startswith(b"GET /json/ HTTP/1.0\r\n")


@pytest.mark.parametrize("kind", ["kafka", "http"])
def test_nobody_there_is_unhealthy_and_says_so(kind, capsys):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    target = str(port) if kind == "kafka" else f"http://127.0.0.1:{port}/"
    assert healthcheck.main([kind, target]) == 1
    assert target in capsys.readouterr().err


def test_wrong_use_is_unhealthy():
    assert healthcheck.main(["redis", "1"]) == 1
