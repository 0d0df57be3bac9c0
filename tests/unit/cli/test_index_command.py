"""`tidemark index warm`: by the assigners that run, else by itself."""

from __future__ import annotations

import json
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import grpc
import pytest

from testing.clock import ManualClock
from tests.unit.table_files import write_config
from tidemark.cli import answering
from tidemark.cli.commands import index
from tidemark.cli.main import main
from tidemark.console.admin_client import Warmth
from tidemark.console.errors import CliError
from tidemark.console.output import Output
from tidemark.stream_runtime.rpc.errors import ErrorDetails, RpcError


class Coordinator:
    """Answers `warm_index` with these, one after the other."""

    def __init__(self, *answers: Warmth | Exception) -> None:
        self._answers = iter(answers)
        self.started: list[bool] = []

    def __enter__(self) -> Coordinator:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def warm_index(self, start: bool) -> Warmth:
        self.started.append(start)
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "_ASK_EVERY_S", 0.0)


def run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, coordinator: Coordinator | None, *arguments: str
) -> int:
    monkeypatch.setattr(answering, "answering_coordinator", lambda *_: coordinator)
    return main(["index", "warm", "-c", str(write_config(folder)), *arguments])


def test_it_asks_until_nothing_is_left_and_says_how_far_it_is(tmp_path, monkeypatch, capsys) -> None:
    coordinator = Coordinator(Warmth(4, 1, 3, 10, 40), Warmth(4, 2, 2, 20, 40), Warmth(4, 4, 0, 40, 40))
    assert run(tmp_path, monkeypatch, coordinator, "--json") == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"by": "assigners", "shards": 4, "loaded": 4, "entries": 40}
    assert "20 of 40 entries (50 %), 2 of 4 shards are loaded" in printed.err
    assert coordinator.started == [True, False, False]


def test_what_could_not_be_loaded_is_said_and_is_a_failure(tmp_path, monkeypatch, capsys) -> None:
    coordinator = Coordinator(Warmth(4, 3, 0, 30, 40), Warmth(4, 3, 1, 30, 40), Warmth(4, 3, 0, 30, 40))
    assert run(tmp_path, monkeypatch, coordinator) == 1
    assert "1 shards are not: neither state.disk nor the disk itself" in capsys.readouterr().out
    assert coordinator.started == [True, True, False], "asked for once more, in vain"


def test_what_an_assigner_forgot_when_it_opened_its_lanes_anew_is_asked_for_again(
    tmp_path, monkeypatch, capsys
) -> None:
    """Another writer commits; later the only assigner starts again. The command takes no folder meanwhile."""
    monkeypatch.setattr(index, "_by_itself", lambda *_: pytest.fail("the folder is the assigner's"))
    coordinator = Coordinator(
        Warmth(4, 1, 3, 10, 40),
        Warmth(4, 2, 0, 20, 40),
        Warmth(4, 2, 2, 20, 40),
        refused("NO_ASSIGNER"),
        Warmth(4, 3, 0, 30, 40),
        Warmth(4, 4, 0, 40, 40),
    )
    assert run(tmp_path, monkeypatch, coordinator, "--json") == 0
    assert json.loads(capsys.readouterr().out)["loaded"] == 4
    assert coordinator.started == [True, False, True, False, False, True]


def test_an_assigner_that_starts_again_with_a_lost_cache_is_waited_for(tmp_path, monkeypatch, capsys) -> None:
    """It has fewer shards than when they were asked for: that is no full disk."""
    coordinator = Coordinator(
        Warmth(4, 3, 1, 30, 40),
        Warmth(4, 3, 0, 30, 40),
        Warmth(4, 1, 0, 10, 40),
        Warmth(4, 1, 3, 10, 40),
        Warmth(4, 4, 0, 40, 40),
    )
    assert run(tmp_path, monkeypatch, coordinator, "--json") == 0
    assert json.loads(capsys.readouterr().out)["loaded"] == 4
    assert coordinator.started == [True, False, True, True, False]


def test_shards_that_no_assigner_holds_are_not_loaded(tmp_path, monkeypatch, capsys) -> None:
    """A lane moves: its former owner counts it no more, and its next one does not yet."""
    coordinator = Coordinator(
        Warmth(2, 2, 0, 20, 20, 4), Warmth(4, 3, 1, 30, 40, 4), Warmth(4, 4, 0, 40, 40, 4)
    )
    assert run(tmp_path, monkeypatch, coordinator, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"by": "assigners", "shards": 4, "loaded": 4, "entries": 40}
    assert coordinator.started == [True, True, False]


def test_an_assigner_that_is_just_starting_keeps_its_folder(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(index, "_by_itself", lambda *_: pytest.fail("the folder is the assigner's"))
    coordinator = Coordinator(refused("NO_ASSIGNER"), refused("NO_ASSIGNER"), Warmth(4, 4, 0, 40, 40, 4))
    assert run(tmp_path, monkeypatch, coordinator) == 0


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        ([Warmth(4, 2, 2, 20, 40, 4)], "2 of 4 shards are loaded, 2 are left, no assigner holds 0"),
        ([Warmth(2, 2, 0, 20, 20, 4)], "2 of 4 shards are loaded, 0 are left, no assigner holds 2"),
        ([Warmth(1, 0, 1, entries, 40, 1) for entries in range(0, 40, 4)], "0 of 1 shards are loaded, 1 are"),
    ],
)
def test_it_ends_when_nothing_changes_any_more(answers: list[Warmth], text: str) -> None:
    """Also where a load begins again and again."""
    clock = ManualClock()
    client: Any = Coordinator(*islice(cycle(answers), 1_000))
    with pytest.raises(CliError, match=text):
        index._asked(client, _Seconds(clock), Output(as_json=True), lambda progress: None)
    assert 300 <= clock.monotonic_s() <= 350


class _Seconds:
    """A clock on which each sleep is a second."""

    def __init__(self, clock: ManualClock) -> None:
        self.now_ms, self.latest_ms = clock.now_ms, clock.latest_ms
        self.monotonic_s, self.sleep_ms = clock.monotonic_s, clock.sleep_ms
        self._clock = clock

    def sleep(self, seconds: float) -> None:
        self._clock.advance(1.0)


@pytest.mark.parametrize("nobody", [True, False])
def test_without_an_assigner_it_loads_the_folder_itself(tmp_path, monkeypatch, capsys, nobody) -> None:
    refused = RpcError("WarmIndex", grpc.StatusCode.UNAVAILABLE, "", ErrorDetails("NO_ASSIGNER"))
    monkeypatch.setattr(index, "_by_itself", lambda *_: Warmth(2, 2, 0, 9, 9))
    monkeypatch.setattr(index, "_STARTING_S", 0.0)
    assert run(tmp_path, monkeypatch, None if nobody else Coordinator(refused), "--json") == 0
    assert json.loads(capsys.readouterr().out)["by"] == "folder"


def test_an_assigner_that_is_busy_is_asked_again_and_loads_meanwhile(tmp_path, monkeypatch, capsys) -> None:
    """It answers between two batches, and the first ones of a cold index take long."""
    busy, halfway = refused("WARM_BUSY"), Warmth(4, 2, 2, 20, 40)
    coordinator = Coordinator(busy, busy, halfway, refused("NOT_ASSIGNING"), Warmth(4, 4, 0, 40, 40))
    assert run(tmp_path, monkeypatch, coordinator, "--json") == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["loaded"] == 4
    assert coordinator.started == [True, True, True, False, False]
    assert printed.err.count("asking again") == 2


@pytest.mark.parametrize(
    ("reason", "status", "code"),
    [("WARM_BUSY", grpc.StatusCode.UNAVAILABLE, 1), ("NOT_WARMED", grpc.StatusCode.FAILED_PRECONDITION, 2)],
)
def test_another_refusal_is_no_reason_to_load_the_folder(
    tmp_path, monkeypatch, capsys, reason: str, status: grpc.StatusCode, code: int
) -> None:
    monkeypatch.setattr(index, "_BUSY_S", 0.0)
    by_itself: list[Any] = []
    monkeypatch.setattr(index, "_by_itself", lambda *_: by_itself.append(1))
    assert run(tmp_path, monkeypatch, Coordinator(refused(reason, status))) == code
    assert by_itself == []
    assert "why it is refused" in capsys.readouterr().err


def refused(reason: str, status: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE) -> RpcError:
    return RpcError("WarmIndex", status, "why it is refused", ErrorDetails(reason))
