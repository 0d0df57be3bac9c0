"""The page's server: what it answers, what it refuses, how often it asks; everything behind it in memory."""

from __future__ import annotations

import http.client
import json
import re
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.page.page_world import EVIL, PageWorld, letter
from tidemark.admin.v1 import admin_pb2
from tidemark.config.model import Address
from tidemark.page.answers import FOLDER, page_files
from tidemark.page.group_sizes import LARGEST, PARTITIONS, group_sizes
from tidemark.page.key_story import AT_ONCE_MAX, StoryBusyError
from tidemark.page.page import Cached
from tidemark.stream_runtime.errors import DeadlineExceededError
from tidemark.stream_runtime.http_server import start_http_server
from tidemark.stream_runtime.kafka.errors import KafkaError


@pytest.fixture
def world() -> PageWorld:
    return PageWorld()


@pytest.fixture
def at(world: PageWorld) -> Iterator[Address]:
    with world.served() as address:
        yield address


def ask(at: Address, target: str, method: str = "GET", **headers: str) -> tuple[int, Any, dict[str, str]]:
    """Status, body (JSON where it is some), headers."""
    connection = http.client.HTTPConnection(at.host, at.port, timeout=60)
    try:
        connection.request(method, target, headers={name.replace("_", "-"): v for name, v in headers.items()})
        answer = connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        body = answer.read().decode()
        is_json = found["content-type"].startswith("application/json") and body
        return answer.status, json.loads(body) if is_json else body, found
    finally:
        connection.close()


@pytest.mark.parametrize("path", ["/", "/page.css", "/page.js", "/api/overview", "/api/nothing-here"])
def test_every_answer_of_the_page_keeps_browsers_from_running_anything_else(at: Address, path: str) -> None:
    status, _, headers = ask(at, path)
    assert headers["x-content-type-options"] == "nosniff"
    if status == 404:
        assert headers["content-type"].startswith("text/plain")
        return
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'self';")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"


def test_the_page_names_no_other_host_runs_nothing_inline_and_parses_no_markup() -> None:
    for file in sorted(FOLDER.iterdir()):
        text = file.read_text()
        foreign = [each for each in re.findall(r"(?:https?:)?//[\w.]+", text) if "www.w3.org" not in each]
        assert [each for each in foreign if each.startswith("http")] == [], file.name
        assert re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text) == []
    page = (FOLDER / "index.html").read_text()
    assert re.findall(r"<script(?![^>]*\bsrc=)", page) == []
    assert re.findall(r"\son\w+=|\sstyle=|<style|javascript:", page) == []


def test_all_files_that_the_page_asks_for_are_served(at: Address) -> None:
    named = re.findall(r'(?:src|href|from)[= ]"(/[\w.]+)"', "".join(f.read_text() for f in FOLDER.iterdir()))
    assert len(set(named)) >= 8
    for path in sorted(set(named)):
        assert ask(at, path)[0] == 200, path
    assert set(named) < set(page_files())


@pytest.mark.parametrize("target", ["/../overview.py", "/static/../page.py", "/%2e%2e/page.py", "//etc"])
def test_only_files_of_the_page_can_be_named(at: Address, target: str) -> None:
    assert ask(at, target)[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_but_reading_is_answered(at: Address, world: PageWorld, method: str) -> None:
    assert ask(at, "/api/overview", method)[0] in (405, 501)
    assert world.asked_status == 0


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:7413", 200),
        ("127.0.0.1:1", 200),
        ("[::1]:7413", 200),
        ("evil.example", 421),
        ("localhost.evil.example:7413", 421),
        ("", 421),
        ("[bad", 421),
    ],
)
def test_a_foreign_name_for_this_address_is_refused(at: Address, host: str, status: int) -> None:
    assert ask(at, "/api/overview", Host=host)[0] == status


def test_other_pages_cannot_ask_for_documents(at: Address, world: PageWorld) -> None:
    assert ask(at, "/api/key?key=a", Sec_Fetch_Site="cross-site")[0] == 403
    assert ask(at, "/api/overview", Sec_Fetch_Site="same-site")[0] == 403
    assert world.asked_status == 0
    assert ask(at, "/api/overview", Sec_Fetch_Site="same-origin")[0] == 200
    assert ask(at, "/", Sec_Fetch_Site="cross-site")[0] == 200


def test_many_browsers_cost_one_look_a_second(at: Address, world: PageWorld) -> None:
    askers = [threading.Thread(target=ask, args=(at, "/api/overview")) for _ in range(12)]
    started_s = world.clock.monotonic_s()
    for each in askers:
        each.start()
    for each in askers:
        each.join()
    assert 1 <= world.asked_status <= 1 + (world.clock.monotonic_s() - started_s)


def test_who_asks_while_an_answer_is_made_gets_the_former_one() -> None:
    clock = PageWorld().clock
    made, may_end, began = [1], threading.Event(), threading.Event()
    may_end.set()

    def make() -> int:
        began.set()
        may_end.wait(60.0)
        made.append(len(made) + 1)
        return made[-1]

    cached = Cached(make, 0.0, clock)
    assert cached.get() == 2
    may_end.clear()
    began.clear()
    other = threading.Thread(target=cached.get)
    other.start()
    assert began.wait(60.0)
    assert cached.get() == 2
    may_end.set()
    other.join()
    assert cached.get() == 4


@pytest.mark.parametrize(
    ("error", "status"),
    [(KafkaError("no broker answers"), 503), (DeadlineExceededError("not in time"), 504)],
)
def test_what_does_not_answer_is_named(at: Address, world: PageWorld, error: Any, status: int) -> None:
    world.failing = error
    assert ask(at, "/api/overview")[:2] == (status, {"error": str(error)})


def test_text_of_records_stays_text_in_json(at: Address, world: PageWorld) -> None:
    world.dead_letters = letter(1, EVIL, EVIL, EVIL)
    world.status["warnings"] = [EVIL]
    status, document, headers = ask(at, "/api/dead-letters")
    assert (status, document["newest"][0]["detail"]) == (200, EVIL)
    assert headers["content-type"] == "application/json; charset=utf-8"
    assert ask(at, "/api/overview")[1]["warnings"][0]["text"] == EVIL


def test_a_key_that_nobody_knows_is_not_in_the_table(at: Address) -> None:
    status, document, _ = ask(at, "/api/key?key=%3Cb%3E%26+x")
    assert status == 200
    assert (document["key"], document["tier"], document["found"]) == ("<b>& x", "none", False)


def test_an_empty_table_has_no_key_to_show(at: Address) -> None:
    assert ask(at, "/api/some-key")[:2] == (200, {"key": None})


def test_a_key_is_asked_for_in_the_partition_that_is_named(world: PageWorld) -> None:
    asked: list[tuple[list[str], str | None]] = []

    def found(keys: list[str], partition: str | None) -> list[admin_pb2.LookupResponse.Found]:
        asked.append((keys, partition))
        return [admin_pb2.LookupResponse.Found(key=key, tier="none", shard=3) for key in keys]

    world.stories._lookup = found
    with world.served() as at:
        assert ask(at, "/api/key?key=a&partition=day%3D1%2Feu")[1]["shard"] is None
        assert ask(at, "/api/key?key=a")[1]["shard"] == 3
        assert ask(at, f"/api/key?key=a&partition={'p' * 1_025}")[0] == 400
        assert ask(at, "/api/overview")[1]["table"]["index_kind"] == "global"
    assert asked == [(["a"], "day=1/eu"), (["a"], None)]


@pytest.mark.parametrize("query", ["", "?key=", f"?key={'k' * 8_000}{'%C3%A4' * 200}"])
def test_no_key_and_one_too_long_are_refused(at: Address, query: str) -> None:
    status, _, _ = ask(at, f"/api/key{query}")
    assert status in (400, 414)


@pytest.mark.parametrize(
    "stored",
    [
        pa.array([4_000_000], pa.int32()).view(pa.date32()),
        pa.array([300_000_000_000], pa.int64()).view(pa.timestamp("s")),
    ],
    ids=["date", "timestamp"],
)
def test_a_row_with_a_date_that_python_does_not_have_is_said_and_is_no_defect(
    at: Address, world: PageWorld, monkeypatch: pytest.MonkeyPatch, stored: pa.Array
) -> None:
    """Years behind 9999 fit their columns: reading one into Python raises."""
    monkeypatch.setattr(world.stories, "story", lambda *_: {"row": stored[0].as_py()})
    status, document, _ = ask(at, "/api/key?key=a")
    assert status == 400
    assert "the key's row holds a value that cannot be shown here" in document["error"]


def test_more_questions_about_keys_than_are_answered_at_once_are_refused(world: PageWorld) -> None:
    asked, may_answer = threading.Semaphore(0), threading.Event()

    def slow(keys: list[str], _: str | None) -> list[admin_pb2.LookupResponse.Found]:
        asked.release()
        may_answer.wait(60.0)
        return [admin_pb2.LookupResponse.Found(key=key, tier="none") for key in keys]

    world.stories._lookup = slow
    askers = [threading.Thread(target=world.stories.story, args=(f"k{n}",)) for n in range(AT_ONCE_MAX)]
    for each in askers:
        each.start()
        assert asked.acquire(timeout=60.0)
    with pytest.raises(StoryBusyError, match="try again"):
        world.stories.story("one more")
    may_answer.set()
    for each in askers:
        each.join()
    assert world.stories.story("now there is room")["found"] is False
    world.stories.close()


def test_file_groups_are_shown_within_bounds() -> None:
    slices = [(f"p{n % 500}", f"f{n}", n * 1_000) for n in range(5_000)]
    document = group_sizes(slices, 120 << 20)
    assert (document["file_groups"], document["partitions"]) == (5_000, 500)
    assert sum(each["file_groups"] for each in document["histogram"]) == 5_000
    assert len(document["largest"]) == LARGEST
    assert document["largest"][0] == {"partition_path": "p499", "file_id": "f4999", "bytes": 4_999_000}
    assert len(document["largest_partitions"]) == PARTITIONS
    assert len(json.dumps(document)) < 5_000


def test_a_port_that_is_taken_is_served_when_it_is_free(
    world: PageWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemark.page.page._LISTEN_EVERY_S", 0.05)
    other = start_http_server(Address("127.0.0.1", 0), {})
    page = world.page(other.address)
    page.start()
    assert not page.is_served()
    other.close()
    end_s = world.clock.monotonic_s() + 60.0
    while not page.is_served():
        assert world.clock.monotonic_s() < end_s
        world.clock.sleep(0.02)
    assert ask(other.address, "/api/overview")[0] == 200
    page.close()
    assert not page.is_served()
