"""`tidemark dead-letter` against a coordinator: the same documents as from Kafka, over all the pages."""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.commit_coordinator.admin_world import World
from tests.unit.table_files import write_config
from tidemark.cli.main import main
from tidemark.commit_coordinator.admin import dead_letter_calls
from tidemark.commit_coordinator.admin.messages import filter_of
from tidemark.ledger_client.dead_letters import DeadLetter, LetterFilter
from tidemark.record_formats.refusals import DeadLetterReason
from tidemark.stream_runtime.clock import SystemClock


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World("orders", str(tmp_path / "table"))
    made.refuse(5)
    made.refuse(2, DeadLetterReason.MISSING_KEY)
    yield made
    made.close()


@pytest.fixture
def ask(world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    config = write_config(tmp_path, coordinator=f"127.0.0.1:{world.server.address.port}")

    def run(*command: str, code: int = 0) -> Any:
        assert main(["dead-letter", *command, "-c", str(config), "--json"]) == code
        said = capsys.readouterr()
        return json.loads(said.out) if code == 0 else said.err

    return run


def letters(world: World) -> list[DeadLetter]:
    return world.queries.page(LetterFilter(), 100).letters


def test_list_has_the_newest_of_all_pages_and_counts_all(
    world: World, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = [each.document() for each in letters(world)]
    monkeypatch.setattr("tidemark.commit_coordinator.dead_letters.queries.PAGE_BYTES_MAX", 300)
    listed = ask("list", "--limit", "6")
    assert (listed["count"], listed["by_reason"]) == (7, {"missing-key": 2, "not-json": 5})
    assert listed["dead_letters"] == everything[1:]
    assert ask("list", "--reason", "missing-key")["dead_letters"] == everything[5:]


def test_show_has_the_whole_record(ask: Any) -> None:
    shown = ask("show", "0")
    assert base64.b64decode(shown["value_base64"]) == b"{" * 10
    assert shown["headers"] == [{"name": "trace", "value_base64": base64.b64encode(b"\x01").decode()}]
    assert "replayed" not in shown
    assert "there is no dead letter 99" in ask("show", "99", code=1)


def test_replay_does_all_pages_and_tells_what_it_left_out(
    world: World, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemark.commit_coordinator.dead_letters.queries.PAGE_BYTES_MAX", 300)
    tried = ask("replay", "--dry-run")
    assert (tried["replayed"], [each["id"] for each in tried["chosen"]]) == (0, list(range(7)))
    assert ask("replay", "3")["replayed"] == 1
    done = ask("replay")
    assert (done["replayed"], [each["id"] for each in done["skipped"]]) == (6, [3])
    assert all(each.replayed for each in letters(world))


def test_since_is_passed_on_and_refused_for_a_coordinator_that_does_not_know_it(
    world: World, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: world.clock.now_ms() + 1_000)
    assert ask("list", "--since", "2s")["count"] == 7
    assert ask("list", "--since", "500ms")["count"] == 0
    assert ask("replay", "--since", "500ms")["replayed"] == 0
    monkeypatch.setattr(
        dead_letter_calls, "filter_of", lambda message: dataclasses.replace(filter_of(message), since_ms=None)
    )
    for command in ("list", "replay"):
        assert "does not know --since" in ask(command, "--since", "500ms", code=1)
    assert not any(each.replayed for each in letters(world))
