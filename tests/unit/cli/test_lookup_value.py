"""`tidemark lookup --where`: from a table's files, and from its coordinator."""

from __future__ import annotations

import json
from pathlib import Path
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


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--where", "at"], "write COLUMN=VALUE"),
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


def test_the_coordinator_answers_the_same(indexed: Path, tmp_path: Path, capsys) -> None:
    table, here = LocalStorage(indexed.parent / "table"), tmp_path / "elsewhere"
    here.mkdir()
    alone = asked(indexed, capsys, "--where", "at=2", "--limit", "2")
    world = World(
        "orders", path=str(here / "table"), lookup_value=lambda request: lookup_value(table, request)
    )
    try:
        (here / "table").symlink_to(indexed.parent / "table")
        there = write_config(here, coordinator=f"127.0.0.1:{world.server.address.port}")
        assert asked(there, capsys, "--where", "at=2", "--limit", "2") == alone
        assert main(["lookup", "-c", str(there), "--where", "note=n"]) == 2
        assert "note has no secondary index" in capsys.readouterr().err
        page = call(world.stub.LookupValue, pb.LookupValueRequest(table="orders", column="at", value="1"))
        assert (list(page.keys), list(page.location), len(page.locations)) == (["k1"], [1], 1)
        for request, field in [
            (pb.LookupValueRequest(table="orders", column="at"), "wanted"),
            (pb.LookupValueRequest(table="orders", column="at", value="x"), "value"),
            (pb.LookupValueRequest(table="orders", column="at", null=False), "wanted"),
        ]:
            assert refused(world.stub.LookupValue, request).info.violations[0][0] == field
    finally:
        world.close()
