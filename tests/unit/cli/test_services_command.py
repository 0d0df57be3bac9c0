"""`tidemark services`: what it prints, how `run --wait` follows an action. The admin client is a double."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.unit.table_files import new_table, orders, write_config
from tidemark.cli.commands.table_services import services_lines, size_text
from tidemark.cli.main import main
from tidemark.console import admin_client
from tidemark.table_status.messages import services_document
from tidemark.table_status.services import (
    EndedServiceAction,
    OpenServiceAction,
    OwnServices,
    ServiceFailures,
    ServiceKindState,
    named_kinds,
)

NOW_MS = 1_000_000
OPEN = OpenServiceAction(
    number=9, instant="T9", step="planned", planned_ms=NOW_MS - 5_000, groups=8, groups_done=3, bytes=3 << 20
)
DONE = EndedServiceAction(
    number=9,
    instant="T9",
    outcome="done",
    planned_ms=NOW_MS - 5_000,
    ended_ms=NOW_MS,
    groups=8,
    bytes=3 << 20,
)


def enabled(*kinds: ServiceKindState, **more: Any) -> OwnServices:
    return OwnServices(enabled=True, kinds=list(kinds), **more)


class Client:
    """Answers with the states in turn; the last one stays."""

    def __init__(self, states: list[OwnServices], runs: list[dict[str, Any]]) -> None:
        self.states = states
        self.runs = runs

    def services(self) -> tuple[OwnServices, dict[str, Any]]:
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        return state, services_document(state)

    def run_service(self, kind: str) -> list[dict[str, Any]]:
        return self.runs

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None: ...


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> list[Client]:
    """The client that the next command gets."""
    held: list[Client] = []
    monkeypatch.setattr(admin_client, "connect", lambda _: held[-1])
    monkeypatch.setattr("tidemark.cli.commands.table_services._LOOK_EVERY_S", 0.0)
    return held


@pytest.mark.parametrize("command", ["list", "run", "pause", "resume"])
def test_every_command_has_a_help_page(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["services", command, "--help"]) == 0
    page = capsys.readouterr().out
    assert page.startswith(f"usage: tidemark services {command}")
    assert "examples:\n  tidemark services" in page


def test_a_kind_that_is_none_is_refused_with_the_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["services", "run", "vacuum", "-c", "f.yaml"]) == 2
    assert "compact-index" in capsys.readouterr().err


def test_disabled_services_are_said_to_be_another_engines_work() -> None:
    (line,) = services_lines(OwnServices(), NOW_MS)
    assert "table_services.enabled is false" in line


def test_list_shows_state_last_action_and_reasons() -> None:
    failures = ServiceFailures(2, "no space left", NOW_MS + 30_000)
    lines = list(
        services_lines(
            enabled(
                ServiceKindState(kind="compact-data", open=OPEN),
                ServiceKindState(kind="clean-data", last=DONE, not_due="next look in 200 s"),
                ServiceKindState(kind="archive", failures=failures, held_back=["savepoint 2026"]),
                behind=["slice eu f1 has 99 log files"],
            ),
            NOW_MS,
        )
    )
    assert lines[1].split() == ["compact-data", "open", "never", "-", "-", "-", "-"]
    assert lines[2].split() == [
        "clean-data",
        "idle",
        "0",
        "s",
        "ago",
        "done",
        "5.0",
        "s",
        "8",
        "files",
        "3.0",
        "MiB",
    ]
    assert lines[3].split()[:2] == ["archive", "failing"]
    assert "compact-data: action 9 planned, 3 of 8 file groups, since 5 s (instant T9, 3.0 MiB)" in lines
    assert "clean-data: not due: next look in 200 s" in lines
    assert "archive: failed 2 times in a row: no space left; next try in 30 s" in lines
    assert lines[-2:] == ["archive: held back: savepoint 2026", "behind: slice eu f1 has 99 log files"]


def test_pause_is_shown_with_its_reason() -> None:
    lines = list(services_lines(enabled(ServiceKindState(kind="archive"), paused=True, reason="r"), NOW_MS))
    assert lines[0].startswith("paused: r.")
    assert lines[2].split()[:2] == ["archive", "paused"]


def test_run_that_waits_says_how_far_the_action_is_and_how_it_ended(
    clients: list[Client], capsys: pytest.CaptureFixture[str]
) -> None:
    later = msgspec.structs.replace(OPEN, groups_done=8)
    states = [
        enabled(ServiceKindState(kind="compact-data", open=OPEN)),
        enabled(ServiceKindState(kind="compact-data", open=OPEN)),
        enabled(ServiceKindState(kind="compact-data", open=later)),
        enabled(ServiceKindState(kind="compact-data", last=DONE)),
    ]
    runs = [{"kind": "compact-data", "number": 9, "nothing": None, "ended": None}]
    clients.append(Client(states, runs))
    assert main(["services", "run", "compact-data", "--wait", "-c", "f.yaml"]) == 0
    said = capsys.readouterr()
    assert said.out == "compact-data: action 9 done, 8 file groups, 3.0 MiB, in 5.0 s\n"
    told = [line.partition(", since")[0] for line in said.err.splitlines()]
    assert told == [
        "compact-data action 9 planned, 3 of 8 file groups",
        "compact-data action 9 planned, 8 of 8 file groups",
    ]


def test_run_whose_action_was_voided_ends_with_1_and_the_reason(
    clients: list[Client], capsys: pytest.CaptureFixture[str]
) -> None:
    voided = msgspec.structs.replace(DONE, outcome="voided", reason="the plan does not hold any more")
    runs = [{"kind": "archive", "number": 9, "nothing": None, "ended": None}]
    clients.append(Client([enabled(ServiceKindState(kind="archive", last=voided))], runs))
    assert main(["services", "run", "archive", "--wait", "--json", "-c", "f.yaml"]) == 1
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert (run["ended"]["outcome"], run["ended"]["reason"]) == ("voided", "the plan does not hold any more")


def test_run_with_nothing_to_do_says_why(clients: list[Client], capsys: pytest.CaptureFixture[str]) -> None:
    runs = [{"kind": "archive", "number": 0, "nothing": "40 instants, less than 600", "ended": None}]
    clients.append(Client([enabled()], runs))
    assert main(["services", "run", "archive", "--wait", "-c", "f.yaml"]) == 0
    assert capsys.readouterr().out == "archive: 40 instants, less than 600\n"


def test_run_that_is_not_done_in_time_fails_and_says_that_it_goes_on(
    clients: list[Client], capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [{"kind": "compact-data", "number": 9, "nothing": None, "ended": None}]
    clients.append(Client([enabled(ServiceKindState(kind="compact-data", open=OPEN))], runs))
    command = ["services", "run", "compact-data", "--wait", "--timeout", "1ms", "-c", "f.yaml"]
    assert main(command) == 1
    assert "it goes on as action 9" in capsys.readouterr().err


def test_describe_names_what_keeps_other_writers_from_the_services_where_tidemark_runs_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_config(tmp_path)
    written = file.read_text()
    new_table(tmp_path / "table").commit(orders(("k1", "2026-01-01", 1)))
    file.write_text(f"{written}table_services: {{enabled: false}}\n")
    assert main(["table", "describe", "-c", str(file), "--json"]) == 0
    before = json.loads(capsys.readouterr().out)["foreign_writer_options"]
    archive = "{min: 20, max: 70, batch: 10}"
    file.write_text(f"{written}table_services: {{enabled: true, archive: {archive}}}\n")
    assert main(["table", "describe", "-c", str(file), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    options = document["foreign_writer_options"]
    added = {name: value for name, value in options.items() if name not in before}
    assert added == {
        "hoodie.metadata.compact.max.delta.commits": "1000000",
        "hoodie.compact.inline": "false",
        "hoodie.clean.automatic": "false",
        "hoodie.archive.automatic": "false",
        "hoodie.keep.min.commits": "70",
        "hoodie.keep.max.commits": "140",
    }
    assert "hoodie.metadata.compact.max.delta.commits=1000000" in document["procedure_options"]
    page = (Path(__file__).parents[3] / "docs/hudi-beside.md").read_text()
    assert all(f"`{name}" in page for name in added)


def test_clean_means_both_cleans() -> None:
    known = ("compact-data", "clean-data", "clean-index")
    assert named_kinds("clean", known) == ("clean-data", "clean-index")
    assert named_kinds("compact-data", known) == ("compact-data",)
    assert named_kinds("vacuum", known) == ()


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1_023, "1023 B"), (1_536, "1.5 KiB"), (5 << 40, "5.0 TiB")]
)
def test_sizes_are_in_the_largest_unit_that_fits(size: int, text: str) -> None:
    assert size_text(size) == text
