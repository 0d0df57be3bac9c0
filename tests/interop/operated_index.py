"""The indexes that a table may have while Spark operates on it, and what each of them must stand: Hudi on
Spark finds by it the rows that a scan of all files finds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.interop.filters import Filter
from tests.interop.hudi_options import GLOBAL_RECORD_INDEX, PARTITIONED_RECORD_INDEX
from tests.interop.judge import HudiJudge
from tests.interop.skipping import judge_skipping
from tests.interop.verdict import assert_partitioned_index_is
from tidemark.hudi_format.commit.foreign_writers import foreign_writer_options
from tidemark.hudi_format.index_definitions import IndexKind
from tidemark.hudi_format.metadata_table.own_stats import kept_stats_columns
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import read_table_config

if TYPE_CHECKING:
    from tests.interop.operated_table import OperatedTable

SHARDS: Final = 4
NOBODY: Final = "nobody's"
STATS: Final = ("id", "ts", "name", "amount")
_VALUES: Final = 3


class TableIndex:
    """The global record index alone. ``configured``: of `table.index`; ``spark``: the judge's options.

    ``refused``: operations by name, and what Hudi says of them; ``passed_over``: those that say nothing in a
    table with this index, and why.
    """

    name = "global"
    configured: Mapping[str, Any] = {"shards": SHARDS}
    spark: Mapping[str, str] = GLOBAL_RECORD_INDEX
    stays = False
    refused: Mapping[str, str] = {}
    passed_over: Mapping[str, str] = {}

    def options(self, path: Path) -> dict[str, str]:
        """What `tidemark table describe` prints for other writers."""
        return foreign_writer_options(str(path), SHARDS)

    def make(self, table: OperatedTable) -> None:
        """The table is there, and its services run."""

    def is_kept(self, table: OperatedTable) -> bool:
        """Whether readers use it."""
        return True

    def finds(self, table: OperatedTable) -> None:
        """By the index and without it Spark finds the same rows."""

    def is_right(self, table: OperatedTable, is_asked_by_a_write: bool) -> None:
        """``is_asked_by_a_write``: also by Spark's tagging, where only that asks it."""
        self.finds(table)


class ColumnStats(TableIndex):
    name = "column-stats"
    configured: Mapping[str, Any] = {"shards": SHARDS, "column_stats": list(STATS)}

    def options(self, path: Path) -> dict[str, str]:
        return foreign_writer_options(str(path), SHARDS, stats=STATS)

    def is_kept(self, table: OperatedTable) -> bool:
        storage = LocalStorage(table.table.path)
        return tuple(kept_stats_columns(storage, read_table_config(storage))) == STATS

    def finds(self, table: OperatedTable) -> None:
        rows = sorted(table.model.rows.values(), key=lambda row: int(row["ts"]))
        middle, key = rows[len(rows) // 2], table.some(1)[0]
        asked = [
            f"id = '{key}'",
            f"ts >= {middle['ts']}",
            f"ts < {middle['ts']} and name <> 'of Spark'",
            f"name = '{middle['name']}' or amount > 2000",
            "amount is null",
            # Of all files there are.
            "id > 'z'",
        ]
        filters = [Filter(each) for each in asked]
        assert self.is_kept(table)
        judge_skipping(table.judge, table.table.path, filters)


class SecondaryIndex(TableIndex):
    """On the column `name`: of Spark's rows many have one value."""

    name = "secondary"
    index = "by_name"
    partition = f"secondary_index_{index}"
    refused: Mapping[str, str] = {
        operation: f"HoodieIndexException: Can not perform operation {kind} on secondary index"
        for operation, kind in {
            "insert_overwrite": "INSERT_OVERWRITE",
            "insert_overwrite_table": "INSERT_OVERWRITE_TABLE",
            "delete_partition": "DELETE_PARTITION",
        }.items()
    }

    passed_over: Mapping[str, str] = {
        "bulk_insert": "Hudi adds nothing to a secondary index then, in tables of its own making, too"
    }

    def make(self, table: OperatedTable) -> None:
        made = table.table.pipeline.command("index", "create", self.index, "--column", "name", "--json")
        assert made.returncode == 0, made.stderr

    def is_kept(self, table: OperatedTable) -> bool:
        return self.partition in read_table_config(LocalStorage(table.table.path)).metadata_partitions

    def finds(self, table: OperatedTable) -> None:
        keys_of: dict[str, set[str]] = {}
        for key, row in table.model.rows.items():
            keys_of.setdefault(row["name"], set()).add(key)
        newest = [str(table.model.rows[key]["name"]) for key in table.touched if key in table.model.rows]
        values = [*newest, *sorted(keys_of)][:_VALUES]
        for asked in (values, [max(keys_of, key=lambda value: len(keys_of[value]))], [NOBODY]):
            expected = {key for value in asked for key in keys_of.get(value, ())}
            found, files = looked_up(table.judge, table.table.path, asked)
            assert found == expected, (asked, expected - found, found - expected)
            if asked == [NOBODY]:
                assert (files == 0) is self.is_kept(table), files


def looked_up(judge: HudiJudge, path: Path, values: Sequence[str]) -> tuple[set[str], int]:
    """The keys of the rows with these names, and how many files were read for them."""
    options = {"hoodie.metadata.enable": "true", "hoodie.enable.data.skipping": "true"}
    literals = ", ".join("'" + each.replace("'", "\\'") + "'" for each in values)
    condition = f"name IN ({literals})" if len(values) > 1 else f"name = {literals}"
    frame = judge._frame(path, options).select("id", "name").where(condition)
    rows, files = judge.rows_and_files(frame.select("id"))
    return {row["id"] for row in rows}, files


class PartitionedIndex(TableIndex):
    """A record index that is divided by data partition."""

    name = "partitioned"
    configured: Mapping[str, Any] = {"kind": "partitioned", "shards": 2}
    spark: Mapping[str, str] = PARTITIONED_RECORD_INDEX
    stays = True
    passed_over: Mapping[str, str] = {"move": "a key has a row in each partition"}

    def options(self, path: Path) -> dict[str, str]:
        return foreign_writer_options(str(path), 2, kind=IndexKind.PARTITIONED)

    def is_right(self, table: OperatedTable, is_asked_by_a_write: bool) -> None:
        """A row that an upsert of Spark's does not find by it is there twice then."""
        if is_asked_by_a_write:
            table.update()
            table.agrees()
        self.finds(table)

    def finds(self, table: OperatedTable) -> None:
        rows = table.judge.snapshot(table.table.path, meta_columns=True)
        assert_partitioned_index_is(table.judge, table.table.path, rows)
