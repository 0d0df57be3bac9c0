"""A schema registry for tests: the part of Confluent's HTTP API that producers and readers of schemas use.

It listens on a free port of this machine, and can be stopped and started again at the same address.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final

_TYPE: Final = "application/vnd.schemaregistry.v1+json"
Answer = tuple[int, Any]


@dataclass
class _Stored:
    """Subjects and schemas; an id is given once per (type, text, references)."""

    schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def register(self, subject: str, body: dict[str, Any]) -> Answer:
        schema = {
            "schema": body["schema"],
            "schemaType": body.get("schemaType", "AVRO"),
            "references": body.get("references", []),
        }
        with self.lock:
            known = [number for number, each in self.schemas.items() if each == schema]
            number = known[0] if known else max(self.schemas, default=0) + 1
            self.schemas[number] = schema
            versions = self.subjects.setdefault(subject, [])
            if number not in versions:
                versions.append(number)
        return 200, {"id": number}

    def by_id(self, number: int) -> Answer:
        found = self.schemas.get(number)
        if found is None:
            return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
        return 200, found

    def version(self, subject: str, version: str) -> Answer:
        versions = self.subjects.get(subject)
        if versions is None:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        at = len(versions) if version == "latest" else int(version)
        if not 1 <= at <= len(versions):
            return 404, {"error_code": 40402, "message": f"Version {version} not found."}
        number = versions[at - 1]
        return 200, {**self.schemas[number], "subject": subject, "version": at, "id": number}

    def lookup(self, subject: str, body: dict[str, Any]) -> Answer:
        for at, number in enumerate(self.subjects.get(subject, []), 1):
            if self.schemas[number]["schema"] == body["schema"]:
                return 200, {**self.schemas[number], "subject": subject, "version": at, "id": number}
        return 404, {"error_code": 40403, "message": "Schema not found"}


class RegistryServer:
    """``user_info``: "name:password" that requests must carry; ``token``: a bearer token instead. ``asked``:
    paths of all requests. ``odd``: by path, what makes the status and the bytes of its answer.
    """

    def __init__(self, user_info: str | None = None, token: str | None = None) -> None:
        self._stored = _Stored()
        self._wanted: str | None = None
        if user_info is not None:
            self._wanted = "Basic " + base64.b64encode(user_info.encode()).decode()
        elif token is not None:
            self._wanted = f"Bearer {token}"
        self.asked: list[str] = []
        self.failing = False
        self.odd: dict[str, Callable[[], tuple[int, bytes]]] = {}
        self._port = 0
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def schemas(self) -> int:
        """How many there are."""
        return len(self._stored.schemas)

    def register(self, subject: str, schema: str, kind: str = "AVRO", references: Any = ()) -> int:
        """As a producer's client does it, without the network."""
        body = {"schema": schema, "schemaType": kind, "references": list(references)}
        return int(self._stored.register(subject, body)[1]["id"])

    def put(self, number: int, schema: str, kind: str = "AVRO", references: Any = ()) -> None:
        """A schema of this id, and of no subject."""
        stored = {"schema": schema, "schemaType": kind, "references": list(references)}
        self._stored.schemas[number] = stored

    def start(self) -> None:
        """At the address that it had before."""
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), _handler(self))
        self._port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Connections are refused from now on; what is registered stays."""
        if self._server is None or self._thread is None:
            return
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10.0)
        self._server = None

    def answer(self, method: str, path: str, authorization: str | None, body: dict[str, Any]) -> Answer:
        self.asked.append(path)
        if self.failing:
            return 503, {"error_code": 50301, "message": "not now"}
        if self._wanted is not None and authorization != self._wanted:
            return 401, {"error_code": 40101, "message": "Unauthorized"}
        if match := re.fullmatch(r"/schemas/ids/(\d+)", path):
            return self._stored.by_id(int(match[1]))
        if match := re.fullmatch(r"/subjects/([^/]+)/versions", path):
            return self._stored.register(match[1], body)
        if match := re.fullmatch(r"/subjects/([^/]+)/versions/(latest|\d+)", path):
            return self._stored.version(match[1], match[2])
        if (match := re.fullmatch(r"/subjects/([^/]+)", path)) and method == "POST":
            return self._stored.lookup(match[1], body)
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def __enter__(self) -> RegistryServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _handler(registry: RegistryServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer("GET", {})

        def do_POST(self) -> None:
            size = int(self.headers.get("Content-Length", "0"))
            self._answer("POST", json.loads(self.rfile.read(size) or b"{}"))

        def _answer(self, method: str, body: dict[str, Any]) -> None:
            path = self.path.split("?")[0].replace("%2F", "/")
            if path in registry.odd:
                status, content = registry.odd[path]()
            else:
                status, document = registry.answer(method, path, self.headers.get("Authorization"), body)
                content = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", _TYPE)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            # Who asked may have had enough.
            with contextlib.suppress(ConnectionError):
                self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Silent."""

    return Handler
