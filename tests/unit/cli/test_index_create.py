"""`tidemark index create --column-stats`: from a table's files, without Kafka."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.table_files import new_table, orders, write_config
from tidemark.cli.main import main
from tidemark.hudi_format.metadata_table.own_stats import own_stats_columns
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import read_table_config


@pytest.fixture
def file(tmp_path: Path) -> Path:
    writer = new_table(tmp_path / "table")
    writer.commit(orders(("k1", "2026-01-01", 1), ("k2", "2026-01-02", 2)))
    return write_config(tmp_path)


def storage_of(file: Path) -> LocalStorage:
    return LocalStorage(file.parent / "table")


def test_it_says_how_many_records_it_made_of_how_many_files(file: Path, capsys) -> None:
    assert main(["index", "create", "-c", str(file), "--column-stats", "at, note", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"columns": ["at", "note"], "files": 2, "records": 10}
    assert own_stats_columns(storage_of(file)) == ["at", "note"]
    assert main(["table", "describe", "-c", str(file)]) == 0
    assert "hoodie.metadata.index.column.stats.column.list=at,note" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ("at,nothing", "nothing (the table has no such column)"),
        ("at,at", "at (named twice)"),
        (" , ", "no column"),
    ],
)
def test_columns_that_can_have_none_are_refused_and_nothing_is_changed(
    file: Path, capsys, columns: str, says: str
) -> None:
    before = read_table_config(storage_of(file)).properties
    assert main(["index", "create", "-c", str(file), "--column-stats", columns]) == 2
    assert says in capsys.readouterr().err
    assert read_table_config(storage_of(file)).properties == before
