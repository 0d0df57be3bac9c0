"""What commands print, answers and errors: nothing from outside is obeyed by a terminal."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import grpc
import pytest

from tests.unit.table_files import new_table, write_config
from tidemark import cli
from tidemark.cli.main import DEBUG_VARIABLE, main
from tidemark.cli.run.supervisor import Supervisor
from tidemark.config import load_config
from tidemark.console.errors import CliError
from tidemark.console.output import Output
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.ids import SystemIds
from tidemark.stream_runtime.rpc.errors import RpcError

HOSTILE = "k\x1b[2J\x9b31m\u202e\x07\r\nforged line\x7f\U000e0001"


@pytest.mark.parametrize("as_json", [False, True])
def test_control_characters_of_keys_are_shown_as_escapes(as_json: bool) -> None:
    out, err = io.StringIO(), io.StringIO()
    output = Output(as_json, out, err)
    output.answer({"key": HOSTILE}, [f"key {HOSTILE}", "Zürich \u2014 \U0001f4a5"])
    output.say(f"first {HOSTILE}\nsecond")
    for text in (out.getvalue(), err.getvalue()):
        assert all(line.isprintable() for line in text.split("\n"))
    assert "forged line" in out.getvalue()
    assert len(out.getvalue().splitlines()) == (1 if as_json else 2)
    if as_json:
        assert json.loads(out.getvalue()) == {"key": HOSTILE}
    else:
        assert "Zürich \u2014 \U0001f4a5" in out.getvalue()


def shown_lines(text: str) -> list[str]:
    """Only the newlines that end our own lines are left."""
    assert text.endswith("\n")
    lines = text[:-1].split("\n")
    assert all(line.isprintable() for line in lines), text
    return lines


def test_a_table_whose_properties_have_control_characters_cannot_write_to_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = str(write_config(tmp_path))
    new_table(tmp_path / "table")
    properties = tmp_path / "table" / ".hoodie" / "hoodie.properties"
    text = properties.read_bytes() + b"hoodie.\\u001b[2J.\\u009b31m=x\n"
    properties.write_bytes(text)
    for command in (["table", "adopt"], ["table", "describe"], ["doctor"]):
        main([*command, "-c", config])
        said = capsys.readouterr()
        assert "hoodie.\\x1b[2J.\\x9b31m" in said.err + said.out, command
        assert all(line.isprintable() for line in (said.err + said.out).split("\n"))


@pytest.mark.parametrize(
    "error",
    [
        CliError(f"bad {HOSTILE}"),
        RuntimeError(f"bad {HOSTILE}"),
        FileNotFoundError(2, f"bad {HOSTILE}", f"/data/bad {HOSTILE}"),
        PermissionError(13, "denied", f"/data/bad {HOSTILE}"),
        RpcError("/tidemark.admin.v1.Admin/Status", grpc.StatusCode.INTERNAL, f"bad {HOSTILE}"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("debug", ["", "1"])
def test_control_characters_of_errors_are_shown_as_escapes(
    error: Exception, debug: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(_: object) -> int:
        raise error

    monkeypatch.setenv(DEBUG_VARIABLE, debug)
    monkeypatch.setattr("tidemark.cli.commands.archive.run_archive", fails)
    assert main(["archive", "-o", "x.zip"]) == 1
    *trace, line = shown_lines(capsys.readouterr().err)
    assert line.startswith("tidemark archive: ")
    assert "bad k\\x1b[2J\\x9b31m\\u202e" in line
    assert ("Traceback (most recent call last):" in trace) == bool(debug)


def test_arguments_that_are_refused_are_shown_as_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["archive", "-o", "x.zip", f"--{HOSTILE}"]) == 2
    said = shown_lines(capsys.readouterr().err)
    assert said[-1].endswith("\\x07\\r\\nforged line\\x7f\\U000e0001")


def test_each_line_that_a_service_wrote_bears_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = Output()
    supervisor = Supervisor(load_config(write_config(tmp_path)), SystemClock(), SystemIds(), output.say)
    supervisor._forwarder("writer")(f"error: gave up: {HOSTILE}\n\tat x")
    said = shown_lines(capsys.readouterr().err)
    assert [line.partition(" ")[0] for line in said] == ["[writer]"] * 3
    assert "\\x1b[2J" in said[0]


def test_nothing_but_what_escapes_writes_to_the_terminal() -> None:
    """`main`, `confirmation` and `feed` escape what they write themselves; `entry` and `completion` write our
    own words. The demo shows its own data, and counts what its services say."""
    folder = Path(cli.__path__[0]).parent
    rooms = ("cli", "console", "demo", "doctor", "init")
    writes = re.compile(r"\bprint\(|\bsys\.std(?:out|err)(?!\.isatty)")
    found = {
        str(file.relative_to(folder))
        for room in rooms
        for file in (folder / room).rglob("*.py")
        if writes.search(file.read_text("utf-8"))
    }
    assert found == {
        *("console/output.py", "console/confirmation.py"),
        *("cli/main.py", "cli/entry.py", "cli/commands/completion.py"),
        *("demo/session.py", "demo/terminal.py", "demo/report.py", "demo/feed.py"),
    }
