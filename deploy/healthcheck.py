"""What the containers' health checks run; the standard library alone, since every image has it.

`healthcheck.py http URL`    healthy when a GET answers 2xx
`healthcheck.py kafka PORT`  healthy when the broker on this machine answers a request, not just a connection
Exit code 0 or 1, one line on stderr when it is 1.

Every container runs one every few seconds: the library's HTTP client, with all of TLS and mail behind it,
would take three times the processor time of the whole check.
"""

from __future__ import annotations

import socket
import struct
import sys

_TIMEOUT_S = 10.0
_HTTP = "http://"
_API_VERSIONS = 18
_CORRELATION = 7


def ask_http(url: str) -> None:
    """`http://HOST:PORT/PATH`. Raises OSError for anything but 2xx within the time, ValueError for no URL."""
    server, _, path = url.removeprefix(_HTTP).partition("/")
    host, _, port = server.partition(":")
    request = f"GET /{path} HTTP/1.0\r\nHost: {server}\r\n\r\n"
    with socket.create_connection((host, int(port)), _TIMEOUT_S) as connection:
        connection.sendall(request.encode())
        with connection.makefile("rb") as answer:
            status = answer.readline().split(b" ", 2)
            answer.read()
    if len(status) < 2 or not status[0].startswith(b"HTTP/") or not status[1].startswith(b"2"):
        raise OSError(f"the answer is {b' '.join(status)[:100]!r}")


def ask_kafka(port: int) -> None:
    """ApiVersions, version 0. A broker opens its ports long before it answers. Raises OSError."""
    client = b"healthcheck"
    body = struct.pack(f">hhih{len(client)}s", _API_VERSIONS, 0, _CORRELATION, len(client), client)
    with socket.create_connection(("127.0.0.1", port), _TIMEOUT_S) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        size, correlation = struct.unpack(">ii", _read(connection, 8))
        (error,) = struct.unpack(">h", _read(connection, 2))
    if size < 6 or correlation != _CORRELATION or error != 0:
        raise OSError(f"the answer is not Kafka's: size {size}, correlation {correlation}, error {error}")


def _read(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise OSError("the broker closed the connection")
        data += part
    return data


def main(arguments: list[str]) -> int:
    """Runs the named check."""
    if len(arguments) != 2 or arguments[0] not in ("http", "kafka"):
        sys.stderr.write("use: healthcheck.py http URL | healthcheck.py kafka PORT\n")
        return 1
    kind, target = arguments
    try:
        if kind == "http":
            ask_http(target)
        else:
            ask_kafka(int(target))
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{kind} {target}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
