"""`tidemark index create NAME`, `repair` and `drop`: from a table's files, without Kafka."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.table_files import existing_table, new_table, orders, write_config
from tidemark.cli.main import main
from tidemark.hudi_format.index_definitions import read_index_definitions, write_index_definitions
from tidemark.hudi_format.storage.local import LocalStorage


@pytest.fixture
def file(tmp_path: Path) -> Path:
    new_table(tmp_path / "table").commit(orders(("k1", "2026-01-01", 1), ("k2", "2026-01-02", 2)))
    return write_config(tmp_path)


def names(file: Path) -> set[str]:
    return set(read_index_definitions(LocalStorage(file.parent / "table")))


def test_an_index_is_made_made_anew_and_dropped(file: Path, capsys) -> None:
    assert main(["index", "create", "-c", str(file), "by_at", "--column", "at", "--json"]) == 0
    made = {"partition": "secondary_index_by_at", "column": "at", "groups": 2, "entries": 2}
    assert json.loads(capsys.readouterr().out) == made
    assert main(["index", "create", "-c", str(file), "by_at", "--column", "at", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == made
    assert main(["index", "drop", "-c", str(file), "by_at", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"name": "by_at"}
    assert names(file) == {"record_index"}
    assert main(["index", "drop", "-c", str(file), "by_at"]) == 1
    assert "no secondary index by_at" in capsys.readouterr().err


@pytest.mark.parametrize(
    "wrong", [[], ["by_at"], ["--column", "at"], ["by_at", "--column", "at", "--column-stats", "at"]]
)
def test_a_name_and_a_column_go_together(file: Path, capsys, wrong: list[str]) -> None:
    assert main(["index", "create", "-c", str(file), *wrong]) == 2
    assert "give --column-stats, or a name and --column" in capsys.readouterr().err


def commit_past_the_index(file: Path) -> None:
    """k1 gets another value, k3 is new, and the index has the entries from before."""
    existing_table(file.parent / "table").commit(orders(("k1", "2026-01-01", 7), ("k3", "2026-01-02", 3)))


def test_what_is_wrong_of_an_index_is_put_right(file: Path, capsys) -> None:
    assert main(["index", "create", "-c", str(file), "by_at", "--column", "at"]) == 0
    commit_past_the_index(file)
    capsys.readouterr()
    name, repair = "secondary_index_by_at", ["index", "repair", "-c", str(file), "by_at"]
    assert main([*repair, "--json"]) == 0
    document = {"partition": name, "column": "at", "groups": 2, "entries": 3, "missing": 2, "extra": 1}
    assert json.loads(capsys.readouterr().out) == {**document, "anew": False}
    assert main(repair) == 0
    assert f"{name} has exactly the entries of the rows" in capsys.readouterr().out


def test_adopting_a_table_puts_its_secondary_indexes_right(file: Path, capsys) -> None:
    assert main(["index", "create", "-c", str(file), "by_at", "--column", "at"]) == 0
    commit_past_the_index(file)
    capsys.readouterr()
    assert main(["table", "adopt", "-c", str(file), "--json"]) == 0
    [index] = json.loads(capsys.readouterr().out)["secondary_indexes"]
    assert (index["partition"], index["missing"], index["extra"]) == ("secondary_index_by_at", 2, 1)
    assert main(["table", "adopt", "-c", str(file)]) == 0
    assert "secondary_index_by_at has exactly the entries of the rows" in capsys.readouterr().out


def test_the_description_of_a_table_names_its_indexes(file: Path, capsys) -> None:
    assert main(["index", "create", "-c", str(file), "by_at", "--column", "at"]) == 0
    assert main(["index", "create", "-c", str(file), "--column-stats", "id,at"]) == 0
    storage = LocalStorage(file.parent / "table")
    definitions = read_index_definitions(storage)
    other = {**definitions["secondary_index_by_at"], "sourceFields": ["id"]}
    write_index_definitions(storage, {**definitions, "secondary_index_half": other})
    capsys.readouterr()
    assert main(["table", "describe", "-c", str(file), "--json"]) == 0
    stats, by_at, half = json.loads(capsys.readouterr().out)["indexes"]
    assert (stats["name"], stats["kind"], stats["in_use"]) == ("column_stats", "column_stats", True)
    assert set(stats["columns"]) == {"id", "at"}
    assert by_at == {"name": "by_at", "kind": "secondary_index", "columns": ["at"], "in_use": True}
    assert half == {"name": "half", "kind": "secondary_index", "columns": ["id"], "in_use": False}
    assert main(["table", "describe", "-c", str(file)]) == 0
    lines = capsys.readouterr().out
    assert "by_at: secondary_index of at\n" in lines
    assert "half: secondary_index of id, not listed" in lines
