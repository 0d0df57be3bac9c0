"""Column stats of an existing table are made in an order that leaves readers right, wherever it is cut."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.hudi_format.metadata_tables import IndexedTable
from tidemark.hudi_format.column_ranges import ColumnRange, StatType, ValueType
from tidemark.hudi_format.commit.instants import create_inflight, create_requested
from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.index_definitions import read_index_definitions, stats_columns
from tidemark.hudi_format.metadata_table.index_history import newest_index_build
from tidemark.hudi_format.metadata_table.log_records import slice_entries
from tidemark.hudi_format.metadata_table.partitions.column_stats import COLUMN_STATS, file_records
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot, metadata_slices
from tidemark.hudi_format.metadata_table.stats_creation import StatsFailpoint, create_column_stats
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.table_config import read_table_config, update_properties
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action, load_timeline
from tidemark.hudi_format.timeline.service_records import (
    CompactionOperation,
    RequestedCompaction,
    compaction_metrics,
    encode_compaction_plan,
)

FOLDER = ".hoodie/metadata/column_stats"
LISTED = "hoodie.table.metadata.partitions"


def records_of(high: int) -> dict[str, bytes]:
    ranges = [ColumnRange(name, StatType(ValueType.INT), 0, high, 3, 0) for name in "abcdefgh"]
    return file_records("p", "file_0-0-0_1.parquet", ranges)


def create(
    table: IndexedTable, high: int, hit: Callable[[StatsFailpoint], None] = lambda place: None
) -> None:
    create_column_stats(table.storage, ["a", "b"], records_of(high), table.times.next, hit, types={})


def highs(table: IndexedTable) -> set[object]:
    """The upper bounds in the stats as a reader merges them."""
    validity = MetadataTableSnapshot.load(table.storage).validity
    parts = [
        entries
        for each in metadata_slices({COLUMN_STATS.name: table.storage.names(FOLDER)}, validity)
        for entries in slice_entries(table.storage, FOLDER, each, validity.is_valid)
    ]
    return {stats.range.high for stats in COLUMN_STATS.merge(parts).values()}


def listed(table: IndexedTable) -> set[str]:
    return set(read_table_config(table.storage).metadata_partitions)


def test_the_partition_is_listed_defined_and_read() -> None:
    table = IndexedTable()
    table.commit({"k": 1})
    create(table, 5)
    assert listed(table) == {"files", "record_index", "column_stats"}
    assert stats_columns(read_index_definitions(table.storage))[3:] == ["a", "b"]
    assert highs(table) == {5}
    table.commit({"k": 2})
    assert highs(table) == {5}
    assert table.index_content() == {"k": 2}


def test_stats_that_are_made_anew_replace_the_former() -> None:
    table = IndexedTable()
    create(table, 5)
    update_properties(table.storage, {LISTED: "files,record_index,column_stats,partition_stats"})
    create(table, 3)
    assert listed(table) == {"files", "record_index", "column_stats"}
    assert highs(table) == {3}
    times = [each.requested for each in load_timeline(table.storage, METADATA_TABLE_ROOT).completed()]
    assert sorted(times) == [f"{number:017d}" for number in range(4)]


def test_a_table_without_rows_has_groups_without_records() -> None:
    table = IndexedTable()
    create_column_stats(table.storage, ["a"], {}, table.times.next, types={})
    assert sorted(name for name in table.storage.names(FOLDER) if name.startswith(".col")) == [
        ".col-stats-0000-0_00000000000000002.log.1_0-0-0",
        ".col-stats-0001-0_00000000000000002.log.1_0-0-0",
    ]
    assert not highs(table)


@pytest.mark.parametrize("place", list(StatsFailpoint))
def test_killed_after_any_step_readers_use_no_stats_and_a_repetition_makes_them(
    place: StatsFailpoint,
) -> None:
    table = IndexedTable()
    create(table, 5)

    def die(at: StatsFailpoint) -> None:
        if at is place:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        create(table, 3, die)
    assert listed(table) == {"files", "record_index"}
    assert not load_timeline(table.storage, METADATA_TABLE_ROOT).pending()
    table.commit({"k": 1})
    create(table, 4)
    assert highs(table) == {4}
    assert "column_stats" in listed(table)


def test_a_pending_compaction_of_the_former_stats_refuses() -> None:
    table = IndexedTable()
    create(table, 5)
    operation = CompactionOperation(
        partition_path="column_stats",
        file_id="col-stats-0000-0",
        base_instant="00000000000000002",
        log_files=(),
        metrics=compaction_metrics(1, 80, 0),
    )
    plan = encode_compaction_plan(RequestedCompaction(operations=(operation,)))
    requested = create_requested(
        Unfenced(table.storage), table.times.next(), Action.COMPACTION, plan, root=METADATA_TABLE_ROOT
    )
    create_inflight(Unfenced(table.storage), requested, root=METADATA_TABLE_ROOT)
    with pytest.raises(UnsupportedTableError, match="is pending"):
        create(table, 3)
    assert "column_stats" in listed(table)


@pytest.mark.parametrize("records", [records_of(5), {}])
def test_it_says_nothing_of_the_record_index(records: dict[str, bytes]) -> None:
    """Caches ask when the record index was built: after a build they load it anew."""
    table = IndexedTable()
    table.commit({"k": 1})

    def built() -> str:
        return newest_index_build(table.storage, load_timeline(table.storage, METADATA_TABLE_ROOT))

    before = built()
    create_column_stats(table.storage, ["a", "b"], records, table.times.next, types={})
    assert built() == before
