"""`tidemark lookup --where` and `--where-file`: from a table's files, and from its coordinator."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.cli.test_secondary_index import file
from tests.unit.commit_coordinator.admin_world import World, refused
from tests.unit.table_files import existing_table, orders, write_config
from tidemark.admin.v1 import admin_pb2 as pb
from tidemark.cli.main import main
from tidemark.commit_coordinator.admin.value_calls import lookup_value
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.stream_runtime.rpc.channel import call

__all__ = ["file"]


@pytest.fixture
def indexed(file: Path) -> Path:
    existing_table(file.parent / "table").commit(orders(("k3", "2026-01-02", 2), ("k4", "2026-01-02", 2)))
    assert main(["index", "create", "-c", str(file), "by_at", "--column", "at"]) == 0
    return file


def asked(file: Path, capsys, *options: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["lookup", "-c", str(file), *options, "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


def test_pages_are_read_from_the_files_where_no_coordinator_answers(indexed: Path, capsys) -> None:
    first = asked(indexed, capsys, "--where", "at=2", "--limit", "2")
    assert (first["index"], first["column"], first["value"]) == ("by_at", "at", "2")
    assert [(row["key"], row["partition_path"]) for row in first["found"]] == [
        ("k2", "2026-01-02"),
        ("k3", "2026-01-02"),
    ]
    second = asked(indexed, capsys, "--where", "at=02", "--page-token", first["next_page_token"])
    assert ([row["key"] for row in second["found"]], second["next_page_token"]) == (["k4"], None)
    assert asked(indexed, capsys, "--where-null", "at")["found"] == []
    assert main(["lookup", "-c", str(indexed), "--where", "at=2", "--limit", "1"]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[1].split()[:2] == ["k2", "2026-01-02"]
    assert "--page-token" in printed.err


def test_rows_of_several_values_come_with_their_value(indexed: Path, capsys) -> None:
    several = ["--where", "at=2", "--where", "at=1", "--where", "at=7", "--where", "at=2"]
    document = asked(indexed, capsys, *several)
    assert document["values"] == ["2", "1", "7"]
    assert "value" not in document
    rows = [(row["value"], row["key"]) for row in document["found"]]
    assert sorted(rows) == [("1", "k1"), ("2", "k2"), ("2", "k3"), ("2", "k4")]
    pages: list[tuple[str, str]] = []
    token: str | None = ""
    while token is not None:
        page = asked(indexed, capsys, *several, "--limit", "1", "--page-token", token)
        pages += [(row["value"], row["key"]) for row in page["found"]]
        token = page["next_page_token"]
    assert pages == rows
    assert main(["lookup", "-c", str(indexed), *several]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].split()[:3] == ["VALUE", "KEY", "PARTITION"]
    assert sorted(line.split()[:3] for line in printed[1:])[0] == ["1", "k1", "2026-01-01"]


def test_a_file_of_values_is_answered_as_csv_and_as_json(
    indexed: Path, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = tmp_path / "values.txt"
    values.write_bytes(b"\xef\xbb\xbf2\r\n1\n7\n02")
    capsys.readouterr()
    assert main(["lookup", "-c", str(indexed), "--where-file", f"at={values}"]) == 0
    printed = capsys.readouterr()
    rows = list(csv.DictReader(io.StringIO(printed.out)))
    assert sorted((row["value"], row["key"], row["partition_path"]) for row in rows) == [
        ("1", "k1", "2026-01-01"),
        ("2", "k2", "2026-01-02"),
        ("2", "k3", "2026-01-02"),
        ("2", "k4", "2026-01-02"),
    ]
    assert "4 values, 4 rows" in printed.err
    document = asked(indexed, capsys, "--where-file", f"at={values}")
    assert [row | {"partition_path": row["partition_path"]} for row in document.pop("found")] == rows
    assert document == {"values": 4, "rows": 4}
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"")))
    assert asked(indexed, capsys, "--where-file", "at=-") == {"found": [], "values": 0, "rows": 0}
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"")))
    assert main(["lookup", "-c", str(indexed), "--where-file", "at=-"]) == 0
    assert capsys.readouterr().out.split() == ['"value","key","partition_path","file_id"']


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"1\nsoon\n", "'soon' is no value of the column at"),
        (b"1\n\n", "'' is no value of the column at"),
        (b"1\n\xff", "values.txt, line 2 is not UTF-8"),
        (b"x" * 40_000, "values.txt, line 1 is longer than 32767 bytes, which no value is"),
    ],
)
def test_a_line_that_is_no_value_is_named(
    indexed: Path, tmp_path: Path, capsys, content: bytes, text: str
) -> None:
    (tmp_path / "values.txt").write_bytes(content)
    assert main(["lookup", "-c", str(indexed), "--where-file", f"at={tmp_path / 'values.txt'}"]) == 2
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--where", "at"], "write COLUMN=VALUE"),
        (["--where", "at=1", "--where", "note=n"], "--where names several columns: at, note"),
        (["--where-file", "values.txt"], "write COLUMN=F"),
        (["--where-file", "at=nowhere.txt"], "nowhere.txt is not a file"),
        (["--where-file", "at="], "--where-file names no file"),
        (["--where-file", "at=f", "--limit", "3"], "--limit and --page-token are for --where"),
        (["--where-file", "at=f", "--partition", "p"], "a value is looked up everywhere"),
        (["--where", "=1"], "write COLUMN=VALUE"),
        (["--where", "at=soon"], "'soon' is no value of the column at, which is a whole number of 64 bits"),
        (["--where", "note=n"], "note has no secondary index; these have one: at (by_at)"),
        (["k1", "--limit", "3"], "--limit and --page-token are for --where"),
        (["--where", "at=1", "--page-token", "x"], "not from an answer"),
    ],
)
def test_what_cannot_be_asked_is_said(indexed: Path, capsys, options: list[str], text: str) -> None:
    assert main(["lookup", "-c", str(indexed), *options]) == 2
    assert text in capsys.readouterr().err


@contextmanager
def served(indexed: Path, here: Path, answer: Any = lookup_value) -> Iterator[tuple[World, Path]]:
    """A coordinator of the table, which is found by the configuration in `here`."""
    here.mkdir()
    table = LocalStorage(indexed.parent / "table")
    world = World("orders", path=str(here / "table"), lookup_value=lambda request: answer(table, request))
    try:
        (here / "table").symlink_to(indexed.parent / "table")
        yield world, write_config(here, coordinator=f"127.0.0.1:{world.server.address.port}")
    finally:
        world.close()


def test_the_coordinator_answers_the_same(indexed: Path, tmp_path: Path, capsys) -> None:
    several = ["--where", "at=2", "--where", "at=1"]
    (tmp_path / "values.txt").write_text("2\n1\n")
    of_file = ["--where-file", f"at={tmp_path / 'values.txt'}"]
    questions = [
        ["--where", "at=2", "--limit", "2"],
        [*several, "--limit", "3"],
        ["--where-null", "at"],
        of_file,
    ]
    alone = [asked(indexed, capsys, *question) for question in questions]
    with served(indexed, tmp_path / "elsewhere") as (_, there):
        assert [asked(there, capsys, *question) for question in questions] == alone
        assert main(["lookup", "-c", str(there), "--where", "note=n"]) == 2
        assert "note has no secondary index" in capsys.readouterr().err


def test_a_former_coordinator_is_told_from_a_wrong_question(indexed: Path, tmp_path: Path, capsys) -> None:
    def former(table: LocalStorage, request: pb.LookupValueRequest) -> pb.LookupValueResponse:
        request.ClearField("any")
        return lookup_value(table, request)

    with served(indexed, tmp_path / "elsewhere", former) as (_, there):
        assert main(["lookup", "-c", str(there), "--where", "at=1", "--where", "at=2"]) == 1
        assert "knows no look-ups of several values" in capsys.readouterr().err
        assert [row["key"] for row in asked(there, capsys, "--where", "at=1")["found"]] == ["k1"]


def test_what_a_call_says_and_refuses(indexed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask, some = pb.LookupValueRequest, pb.LookupValueRequest.Values
    monkeypatch.setattr("tidemark.commit_coordinator.admin.value_calls.VALUES_MAX", 3)
    monkeypatch.setattr("tidemark.commit_coordinator.admin.value_calls.VALUES_BYTES_MAX", 3)
    with served(indexed, tmp_path / "elsewhere") as (world, _):
        method = world.stub.LookupValue
        page = call(method, ask(table="orders", column="at", value="1"))
        assert (list(page.keys), list(page.location), len(page.locations)) == (["k1"], [1], 1)
        assert not page.wanted
        page = call(method, ask(table="orders", column="at", any=some(values=["7", "1"], null=True)))
        assert (list(page.keys), list(page.wanted)) == (["k1"], [1])
        for request, field in [
            (ask(table="orders", column="at"), "wanted"),
            (ask(table="orders", column="at", value="x"), "value"),
            (ask(table="orders", column="at", null=False), "wanted"),
            (ask(table="orders", column="at", any=some()), "wanted"),
            (ask(table="orders", column="at", any=some(values=["1", "x"])), "value"),
            (ask(table="orders", column="at", any=some(values=["1", "2", "3"], null=True)), "any"),
            (ask(table="orders", column="at", any=some(values=["22", "11"])), "any"),
        ]:
            assert refused(method, request).info.violations[0][0] == field
