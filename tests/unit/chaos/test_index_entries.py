"""The kill campaign's final comparison of column stats and record index with the files finds what is missing,
wrong, in a wrong file group and hidden.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.chaos.index_entries import IndexEntries, check_indexes
from tests.simulation.world.checkers.partitioned import IndexGroup, index_group, shard_of
from tests.unit.table_files import (
    existing_table,
    new_partitioned_table,
    new_table,
    orders,
    write_config,
)
from tidemark.cli.main import main
from tidemark.hudi_format.column_ranges import column_ranges
from tidemark.hudi_format.metadata_table.partitions.column_stats import (
    COLUMN_STATS,
    StatsChanges,
    column_stats_key,
    file_records,
)
from tidemark.hudi_format.metadata_table.partitions.partition import MetadataLogFile
from tidemark.hudi_format.metadata_table.partitions.record_index import (
    DELETED,
    RecordIndexEntries,
    record_index_log,
    write_record_index_log,
)
from tidemark.hudi_format.model import RecordLocation, ShardId
from tidemark.hudi_format.table_config import TableType

ROWS = orders(("k1", "2026-01-01", 1), ("k2", "2026-01-02", 2), ("k3", "2026-01-02", 3))
DAY = "2026-01-02"
ELSEWHERE = RecordLocation("2026-01-01", "00000000-0000-4000-8000-00000000000a-0")


class Table:
    """A table with these rows and with column stats; wrong records are written into it."""

    def __init__(self, folder: Path, kind: TableType = TableType.MERGE_ON_READ) -> None:
        self.root = folder / "table"
        self.instant = new_table(self.root, kind).commit(ROWS)
        config = write_config(folder)
        config.write_text(
            config.read_text().replace("table:\n", f"table:\n  type: {kind.value.lower()}\n", 1)
        )
        assert main(["index", "create", "-c", str(config), "--column-stats", "at,note"]) == 0

    @property
    def file(self) -> str:
        (name,) = (each.name for each in (self.root / DAY).iterdir() if each.suffix == ".parquet")
        return name

    def plant(self, log: MetadataLogFile, data: bytes) -> None:
        """A log file that no commit should have written, behind that of the first one."""
        (self.root / log.path.replace(".log.1_", ".log.2_")).write_bytes(data)

    def plant_stats(self, changes: StatsChanges) -> None:
        for group, some in changes.by_group(2).items():
            self.plant(*COLUMN_STATS.log_file(some, self.instant, group))

    def plant_entry(self, key: str, place: RecordLocation | None, shard: int) -> None:
        at = np.array([DELETED if place is None else 0], np.int32)
        places = [] if place is None else [place]
        entries = RecordIndexEntries(pa.array([key]), at, places, np.zeros(1, np.int64))
        data = write_record_index_log(entries, self.instant)
        gone = int(place is None)
        self.plant(record_index_log(self.instant, ShardId(shard), len(data), 1 - gone, gone), data)

    def found(self) -> list[str]:
        return list(check_indexes(self.root, by_partition=False))


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path)


@pytest.mark.parametrize("kind", list(TableType))
def test_a_table_whose_indexes_are_right_has_no_faults(tmp_path: Path, kind: TableType) -> None:
    assert Table(tmp_path, kind).found() == []


def test_a_file_that_lacks_the_record_of_a_column_is_found(table: Table) -> None:
    table.plant_stats(StatsChanges(deleted=[column_stats_key("at", DAY, table.file)]))
    assert table.found() == [f"{DAY}/{table.file} has no column stats of at"]


def test_files_of_a_commit_that_nobody_wrote_records_of_are_found(table: Table) -> None:
    existing_table(table.root).commit(orders(("k9", "2026-01-09", 9)))
    found = table.found()
    assert len(found) == 5, "of Hudi's three columns and two others"
    assert all("2026-01-09/" in each and "has no column stats of" in each for each in found)


def test_a_range_that_leaves_values_out_is_found(table: Table) -> None:
    """Hudi widens the bounds of two records of one key, so the right ones go first."""
    narrow = list(column_ranges(pa.table({"at": pa.array([2, 2])}), ["at"]))
    key = column_stats_key("at", DAY, table.file)
    (group, deleted), = StatsChanges(deleted=[key]).by_group(2).items()  # fmt: skip
    log, data = COLUMN_STATS.log_file(deleted, table.instant, group)
    records = StatsChanges(file_records(DAY, table.file, narrow))
    table.plant(log, data + COLUMN_STATS.log_file(records, table.instant, group)[1])
    assert table.found() == [f"{DAY}/{table.file}: of the column stats of at 2 to 2 leaves out [3]"]


def test_a_second_record_of_a_column_is_found(table: Table) -> None:
    """Its counts are added to the first one's."""
    same = list(column_ranges(pa.table({"at": pa.array([2, 3])}), ["at"]))
    table.plant_stats(StatsChanges(file_records(DAY, table.file, same)))
    (fault,) = table.found()
    assert "it counts (4, 0) rows and nulls, and there are (2, 0)" in fault


def test_a_missing_entry_of_the_record_index_is_found(table: Table) -> None:
    table.plant_entry("k2", None, shard_of("k2", 2))
    (fault,) = table.found()
    assert fault.startswith(f"k2: the record index says None, and it lives in ('{DAY}', ")


@pytest.mark.parametrize("key", ["k2", "k7"])
def test_an_entry_that_points_elsewhere_or_at_nothing_is_found(table: Table, key: str) -> None:
    table.plant_entry(key, ELSEWHERE, shard_of(key, 2))
    (fault,) = table.found()
    assert fault.startswith(f"{key}: the record index says ('2026-01-01', '{ELSEWHERE.file_id}'), and")


def test_an_entry_in_a_file_group_where_nobody_looks_is_found(table: Table) -> None:
    wrong = 1 - shard_of("k2", 2)
    table.plant_entry("k2", ELSEWHERE, wrong)
    assert table.found() == [
        f"record-index-{wrong:04d}-0 has k2, for which readers look in the group {1 - wrong}"
    ]


@pytest.mark.parametrize("is_hidden", [False, True])
def test_a_hidden_group_of_an_index_that_is_divided_by_partition_is_found(
    tmp_path: Path, is_hidden: bool
) -> None:
    """Its first log file is of an instant, behind the first commit, that nobody committed."""
    writer, folder = new_partitioned_table(tmp_path), tmp_path / ".hoodie/metadata/record_index"
    first = writer.commit_rows(ROWS.slice(0, 1))
    writer.commit_rows(ROWS.slice(1))
    file_id = next(each for each in file_ids(folder) if index_group(each) == IndexGroup(DAY, 0))
    if is_hidden:
        (folder / f".{file_id}_{int(first) + 1:017d}.log.1_0-0-0").write_bytes(b"")
    found = list(IndexEntries(tmp_path, by_partition=True).faults_of_record_index())
    hidden = f"readers see nothing of {file_id}: its first file is of an instant that does not count"
    assert found == ([hidden] if is_hidden else [])


def file_ids(folder: Path) -> set[str]:
    return {each.name.removeprefix(".").partition("_")[0] for each in folder.iterdir() if "log." in each.name}
