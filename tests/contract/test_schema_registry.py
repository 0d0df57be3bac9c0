"""Schemas by id: the dictionary of the unit tests and the real client, asking over HTTP, behave alike."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from testing.clock import ManualClock
from tests.schema_registry import RegistryServer
from tests.unit.index_assigner.avro_world import DictRegistry
from tidemark.config.model import SchemaRegistryConfig
from tidemark.record_formats.errors import InputWaitsError
from tidemark.record_formats.schema_cache import UNKNOWN_AFTER_S, SchemaCache, Unusable
from tidemark.stream_runtime.schema_registry.confluent import ConfluentSchemaSource
from tidemark.stream_runtime.schema_registry.ports import (
    JSON,
    RegistrySettingsError,
    RegistryUnavailableError,
    SchemaSource,
    StoredSchema,
    UnknownSchemaError,
)

INNER = {"type": "record", "name": "inner", "fields": [{"name": "n", "type": "long"}]}
OUTER = {"type": "record", "name": "outer", "fields": [{"name": "x", "type": "inner"}]}


class Held:
    """A source, and how it is filled and broken."""

    def __init__(self, kind: str) -> None:
        self.server = RegistryServer() if kind == "http" else None
        self.fake = DictRegistry()
        self.source: SchemaSource = self.fake
        if self.server is not None:
            self.source = ConfluentSchemaSource(SchemaRegistryConfig({"url": self.server.url}, 2_000))

    def register(self, schema: Any, kind: str = "AVRO", references: tuple[Any, ...] = ()) -> int:
        text = json.dumps(schema)
        if self.server is None:
            number = len(self.fake.schemas) + 1
            self.fake.schemas[number] = StoredSchema(kind, text, tuple(map(json.dumps, references)))
            return number
        named = []
        for at, each in enumerate(references):
            self.server.register(f"ref-{at}", json.dumps(each))
            named.append({"name": each["name"], "subject": f"ref-{at}", "version": 1})
        return self.server.register("values", text, kind, named)

    def down(self) -> None:
        self.fake.down = True
        if self.server is not None:
            self.server.stop()

    def up(self) -> None:
        self.fake.down = False
        if self.server is not None:
            self.server.start()


@pytest.fixture(params=["dictionary", "http"])
def held(request: pytest.FixtureRequest) -> Iterator[Held]:
    made = Held(request.param)
    yield made
    made.source.close()
    if made.server is not None:
        made.server.stop()


def test_a_schema_comes_back_with_its_kind_and_all_that_it_names(held: Held):
    assert held.source.fetch(held.register(INNER)) == StoredSchema("AVRO", json.dumps(INNER))
    assert held.source.fetch(held.register({}, JSON)).kind == JSON
    found = held.source.fetch(held.register(OUTER, references=(INNER,)))
    assert (json.loads(found.text), found.references) == (OUTER, (json.dumps(INNER),))


def test_an_unknown_id_is_told_apart_from_no_answer(held: Held):
    number = held.register(INNER)
    with pytest.raises(UnknownSchemaError, match="99"):
        held.source.fetch(99)
    held.down()
    with pytest.raises(RegistryUnavailableError):
        held.source.fetch(number)
    held.up()
    assert held.source.fetch(number).kind == "AVRO"


@pytest.mark.parametrize(
    ("credentials", "accepted"),
    [
        ({"basic.auth.user.info": "me:hush-hush"}, {"user_info": "me:hush-hush"}),
        (
            {
                "bearer.auth.credentials.source": "STATIC_TOKEN",
                "bearer.auth.token": "hush-hush",
                "bearer.auth.logical.cluster": "c",
                "bearer.auth.identity.pool.id": "p",
            },
            {"token": "hush-hush"},
        ),
    ],
)
def test_credentials_go_to_the_registry_and_into_no_error(
    credentials: dict[str, str], accepted: dict[str, str], caplog: pytest.LogCaptureFixture
):
    caplog.set_level("DEBUG")
    with RegistryServer(**accepted) as server:
        number = server.register("s", json.dumps(INNER))
        source = ConfluentSchemaSource(SchemaRegistryConfig({"url": server.url, **credentials}))
        assert source.fetch(number).kind == "AVRO"
        with pytest.raises(UnknownSchemaError):
            source.fetch(99)
        wrong = {name: value.replace("hush-hush", "hush-wrong") for name, value in credentials.items()}
        refused = ConfluentSchemaSource(SchemaRegistryConfig({"url": server.url, **wrong}))
        with pytest.raises(RegistryUnavailableError, match="401") as told:
            refused.fetch(number)
        server.stop()
        with pytest.raises(RegistryUnavailableError) as silent:
            source.fetch(number)
    for text in (str(told.value), str(silent.value), caplog.text, repr(SchemaRegistryConfig(credentials))):
        assert "hush" not in text


def test_a_registry_that_fails_or_is_none_is_no_answer():
    with RegistryServer() as server:
        number = server.register("s", json.dumps(INNER))
        source = ConfluentSchemaSource(SchemaRegistryConfig({"url": f"{server.url}/elsewhere"}))
        with pytest.raises(RegistryUnavailableError, match="404"):
            source.fetch(number)
        server.failing = True
        with pytest.raises(RegistryUnavailableError, match="503"):
            ConfluentSchemaSource(SchemaRegistryConfig({"url": server.url})).fetch(number)
        server.failing = False
        both = ConfluentSchemaSource(SchemaRegistryConfig({"url": f"http://127.0.0.1:1,{server.url}"}))
        assert both.fetch(number).kind == "AVRO"


@pytest.mark.parametrize(
    "answer", [b"<html>", b"", b"5", b'{"schema": 5}', b'{"schema": "x", "schemaType": ["AVRO"]}']
)
def test_an_answer_that_is_no_schema_is_none_and_others_are_still_given(answer: bytes):
    with RegistryServer() as server:
        number = server.register("s", json.dumps(INNER))
        server.odd["/schemas/ids/77"] = lambda: (200, answer)
        source = ConfluentSchemaSource(SchemaRegistryConfig({"url": server.url}))
        with pytest.raises(RegistryUnavailableError):
            source.fetch(77)
        assert source.fetch(number).kind == "AVRO"


def test_an_unknown_id_costs_one_request_each_time_and_two_before_it_is_refused():
    """Records may name any number of them: the registry is no more asked than that, however they come."""
    clock = ManualClock()
    with RegistryServer() as server:
        source = ConfluentSchemaSource(SchemaRegistryConfig({"url": server.url}))
        for _ in range(2):
            with pytest.raises(UnknownSchemaError):
                source.fetch(99)
        assert server.asked == ["/schemas/ids/99"] * 2
        server.asked.clear()
        cache: SchemaCache[str] = SchemaCache(source, lambda _, stored: stored.text, clock)

        def refused(first: int, ids: int) -> bool:
            numbers = np.arange(first, first + ids)
            try:
                found = cache.resolve(numbers, np.arange(ids))
            except InputWaitsError:
                return False
            return all(isinstance(each, Unusable) for each in found.values())

        for _ in range(20):
            assert not refused(500, 1), "a registry of several may lag behind its writer"
        assert len(server.asked) == 1
        clock.advance(UNKNOWN_AFTER_S)
        for _ in range(20):
            assert refused(500, 1)
        assert server.asked == ["/schemas/ids/500"] * 2
        server.asked.clear()
        for _ in range(20):
            refused(1_000, 100)
            clock.advance(UNKNOWN_AFTER_S / 2)
        assert refused(1_000, 100)
        assert len(server.asked) <= 110, "many at a time: the first ten twice, each other one once"
        assert set(server.asked) == {f"/schemas/ids/{1_000 + each}" for each in range(100)}


def test_settings_that_the_client_refuses_are_named_without_their_values():
    with pytest.raises(RegistrySettingsError, match="input.schema_registry") as told:
        ConfluentSchemaSource(SchemaRegistryConfig({"url": "http://one", "basic.auth.user.info": "hush"}))
    assert "hush" not in str(told.value)


class Tap(BaseHTTPRequestHandler):
    """Answers without an end: `kind` says how."""

    kind = ""
    sent = 0
    stop = threading.Event()

    def do_GET(self) -> None:
        cls = type(self)
        with contextlib.suppress(OSError):
            if cls.kind == "slow headers":
                self.wfile.write(b"HTTP/1.1 200 OK\r\n")
                while not cls.stop.wait(0.05):
                    self.wfile.write(b"x-more: y\r\n")
            self.send_response(200)
            self.send_header("content-type", "application/json")
            if cls.kind == "gzip":
                self.send_header("content-encoding", "gzip")
            self.end_headers()
            chunk = b"x" if cls.kind == "slow body" else b"x" * 65_536
            while not cls.stop.wait(0.05 if cls.kind == "slow body" else 0.0):
                self.wfile.write(chunk)
                cls.sent += len(chunk)

    def log_message(self, *_: object) -> None:
        """Nowhere."""


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("endless", "longer than 8388608 bytes"),
        ("gzip", "compressed"),
        # A machine that pauses may make the client's own time end first.
        ("slow body", "no whole answer within 1 s|timed out"),
        ("slow headers", "no whole answer within 1 s|timed out"),
    ],
)
def test_an_answer_without_an_end_is_no_answer(kind: str, said: str):
    class Handler(Tap):
        stop = threading.Event()

    handler: type[Tap] = Handler
    handler.kind = kind
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    serving = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    serving.start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    source = ConfluentSchemaSource(SchemaRegistryConfig({"url": url}, 1_000 if "slow" in kind else 60_000))
    try:
        for _ in range(2):
            with pytest.raises(RegistryUnavailableError, match=said):
                source.fetch(1)
        assert handler.sent < 64 << 20
    finally:
        handler.stop.set()
        source.close()
        server.shutdown()
        server.server_close()
        serving.join(60.0)
