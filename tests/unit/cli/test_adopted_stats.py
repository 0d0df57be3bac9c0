"""`table adopt` keeps column stats: compared with the rows, made anew, and told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.files_with_stats import files_of_table, files_without_records
from tests.unit import table_files
from tests.unit.table_files import new_table, orders, table_schema, write_config
from tidemark.cli.main import main
from tidemark.hudi_format.column_ranges import ColumnRange, StatType, ValueType
from tidemark.hudi_format.column_stats_scan import ColumnStatsScan
from tidemark.hudi_format.index_definitions import (
    COLUMN_STATS,
    column_stats_definition,
    read_index_definitions,
    write_index_definitions,
)
from tidemark.hudi_format.metadata_table.bootstrap import partition_metadata
from tidemark.hudi_format.metadata_table.own_stats import own_stats_columns
from tidemark.hudi_format.metadata_table.partitions.column_stats import file_records
from tidemark.hudi_format.metadata_table.stats_creation import create_column_stats
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import read_table_config, update_properties

LISTED = "hoodie.table.metadata.partitions"


class Adopted:
    """A table in the state of one that Spark made: stats of `at` that are wrong for a file, and partition
    stats.
    """

    def __init__(self, folder: Path, listed: str = "column_stats,partition_stats") -> None:
        new_table(folder / "table").commit(orders(("k1", "2026-01-01", 7)))
        self.file, self.storage = write_config(folder), LocalStorage(folder / "table")
        ((partition, name),) = files_of_table(self.storage)
        wrong = [
            ColumnRange("at", StatType(ValueType.LONG), 1, 6, 1, 0),
            *(
                ColumnRange(column, StatType(ValueType.STRING), "", "\U0010ffff", 1, 0)
                for column in ("_hoodie_commit_time", "_hoodie_partition_path", "_hoodie_record_key")
            ),
        ]
        records = file_records(partition, name, wrong)
        create_column_stats(self.storage, ["at"], records, lambda: "20990101000000000", types={})
        # What Spark made has no columns in its folder's file.
        self.storage.replace(
            ".hoodie/metadata/column_stats/.hoodie_partition_metadata",
            partition_metadata("00000000000000002", 1),
        )
        update_properties(self.storage, {LISTED: f"files,record_index,{listed}"})

    def define(self, *columns: str) -> None:
        definitions = read_index_definitions(self.storage)
        changed = {**definitions, COLUMN_STATS: column_stats_definition(columns)}
        write_index_definitions(self.storage, changed)

    def adopt(self, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
        assert main(["table", "adopt", "-c", str(self.file), "--json", *more]) == 0
        answer: dict[str, Any] = json.loads(capsys.readouterr().out)
        return answer

    @property
    def listed(self) -> set[str]:
        return set(read_table_config(self.storage).metadata_partitions)


def test_wrong_ranges_are_told_and_all_are_made_anew(tmp_path: Path, capsys) -> None:
    table = Adopted(tmp_path)
    told = table.adopt(capsys)["column_stats"]
    assert told["columns"] == ["at"]
    ((path, column, reason),) = told["wrong"]
    assert path.startswith("2026-01-01/")
    assert (column, reason) == ("at", "1 to 6 leaves out rows with 7 to 7")
    assert table.listed == {"files", "record_index", "column_stats"}
    assert own_stats_columns(table.storage) == ["at"]
    scan = ColumnStatsScan(table.storage, read_table_config(table.storage), table_schema(), ["at"])
    scan.scan()
    assert not scan.wrong()
    assert not files_without_records(table.storage, table_schema(), ["at"])
    # They are ours now: adopted again, they stay as they are, and partition stats alone go.
    update_properties(table.storage, {LISTED: "column_stats,files,partition_stats,record_index"})
    assert table.adopt(capsys)["column_stats"] == {"columns": [], "wrong": []}
    assert table.listed == {"files", "record_index", "column_stats"}
    assert own_stats_columns(table.storage) == ["at"]


def test_columns_that_can_have_none_are_taken_out_and_told(tmp_path: Path, capsys) -> None:
    table = Adopted(tmp_path)
    table.define("at", "gone")
    assert main(["table", "adopt", "-c", str(table.file)]) == 0
    said = capsys.readouterr().out
    assert "gone was taken out of the column stats: the table has no such column" in said
    assert "partition_stats were switched off" in said
    assert own_stats_columns(table.storage) == ["at"]


def test_a_column_of_bytes_is_taken_out_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fields: Any = table_files.SCHEMA["fields"]
    raw = {"name": "raw", "type": ["null", "bytes"], "default": None}
    monkeypatch.setitem(table_files.SCHEMA, "fields", [*fields, raw])
    table = Adopted(tmp_path)
    table.define("at", "raw")
    assert main(["table", "adopt", "-c", str(table.file)]) == 0
    said = capsys.readouterr().out
    assert "raw was taken out of the column stats: columns of binary can have none" in said
    assert own_stats_columns(table.storage) == ["at"]


def test_stats_without_a_column_that_is_left_are_switched_off(tmp_path: Path, capsys) -> None:
    table = Adopted(tmp_path)
    table.define("gone")
    assert main(["table", "adopt", "-c", str(table.file)]) == 0
    assert "column_stats were switched off" in capsys.readouterr().out
    assert table.listed == {"files", "record_index"}


def test_partition_stats_alone_are_switched_off(tmp_path: Path, capsys) -> None:
    table = Adopted(tmp_path, "partition_stats")
    assert table.adopt(capsys)["column_stats"] == {"columns": [], "wrong": []}
    assert table.listed == {"files", "record_index"}


def test_they_can_be_dropped_instead(tmp_path: Path, capsys) -> None:
    table = Adopted(tmp_path)
    assert table.adopt(capsys, "--drop-stats", "--yes")["dropped"] == ["column_stats", "partition_stats"]
    assert table.listed == {"files", "record_index"}
    assert not table.storage.exists(".hoodie/metadata/column_stats")
