"""`tidemark index create NAME`, `repair` and `drop`: from a table's files, without Kafka."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.table_files import new_table, orders, write_config
from tidemark.cli.main import main
from tidemark.hudi_format.index_definitions import read_index_definitions
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
    assert main(["index", "repair", "-c", str(file), "by_at", "--json"]) == 0
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


def test_adopting_a_table_names_the_indexes_that_nobody_compared_with_the_rows(file: Path, capsys) -> None:
    assert main(["index", "create", "-c", str(file), "by_at", "--column", "at"]) == 0
    capsys.readouterr()
    assert main(["table", "adopt", "-c", str(file)]) == 0
    assert "secondary_index_by_at is kept as it is: run `tidemark verify`" in capsys.readouterr().out
