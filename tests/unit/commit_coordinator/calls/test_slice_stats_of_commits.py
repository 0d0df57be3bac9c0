"""`Placement` keeps the stats of newest slices: by listings, commits and services."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testing.ids import SeededIds
from tests.unit.hudi_format.metadata_tables import IndexedTable
from tidemark.commit_coordinator.calls.placement import CompactedSlice, Placement, SuspendedError, Want
from tidemark.commit_coordinator.commit.context import Report
from tidemark.commit_coordinator.commit.listed_slices import index_stats, listed_stats
from tidemark.commit_coordinator.domain.slice_stats import SliceStats
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.metadata_table.partitions.files import ListedFiles
from tidemark.hudi_format.metadata_table.partitions.partition import MetadataLogFile
from tidemark.hudi_format.model import ShardId, instant_to_ms
from tidemark.hudi_format.table_view import TableView
from tidemark.hudi_format.timeline import Timeline
from tidemark.hudi_format.timeline.avro_records import WriteStat

AT = instant_to_ms("20260101000000000")
TARGET = 1_000_000
BASE = WriteStat(file_id="x", path="p/x", partition_path="p", file_size_in_bytes=400)
LOG = replace(BASE, file_size_in_bytes=50, log_files=("x.log",))


def index_log(shard: int, size: int) -> MetadataLogFile:
    return MetadataLogFile.of_commit("record_index", ShardId(shard), f"r-{shard}", "1", size, 1, 0)


def loaded() -> Placement:
    placement = Placement(TARGET, SeededIds(1))
    placement.load(ListedFiles(), TableView(Timeline(()), {}, {}, {}, {}), [])
    return placement


def test_a_listed_slice_is_as_old_as_its_oldest_log() -> None:
    logs = (".x_20260101000000000.log.1_0-0-0", ".x_20260101000001500.log.1_0-0-0")
    slice_ = FileSlice("p", "x", "x_0-0-0_1.parquet", "1", logs)
    sizes = {"x_0-0-0_1.parquet": 400, logs[0]: 50, logs[1]: 7}
    assert listed_stats(slice_, sizes) == SliceStats("p", "x", 400, 2, 57, AT)
    bootstrap = FileSlice("record_index", "r", None, "1", (".r_00000000000000001.log.1_0-0-0",))
    assert listed_stats(bootstrap, {}) == SliceStats("record_index", "r", 0, 1, 0, 0)


def test_groups_under_plans_of_others_are_held_and_those_of_our_own_are_not() -> None:
    placement = Placement(TARGET, SeededIds(1))
    view = TableView(Timeline(()), {}, {("p", "x"): "5", ("p", "y"): "6"}, {("p", "z"): "7"}, {})
    placement.load(ListedFiles(), view, [], own={"5"})
    assert placement.snapshot().held == {("p", "y"), ("p", "z")}


def test_commits_and_services_move_the_figures_of_data_and_index() -> None:
    placement = loaded()
    placement.committed(Report((BASE,), (index_log(0, 10),)), AT)
    placement.committed(Report((LOG,), (index_log(0, 5), index_log(1, 6))), AT + 1_000)
    placement.wrote_index([index_log(1, 4)], AT + 2_000)
    seen = placement.snapshot()
    assert seen.data == (SliceStats("p", "x", 400, 1, 50, AT + 1_000),)
    assert set(seen.index) == {
        SliceStats("record_index", "r-0", 0, 2, 15, AT),
        SliceStats("record_index", "r-1", 0, 2, 10, AT + 1_000),
    }
    placement.compacted([CompactedSlice("p", "x", 420, 1, 50)], AT + 1_500, is_index=False)
    placement.compacted([CompactedSlice("record_index", "r-1", 9, 1, 6)], AT + 1_500, is_index=True)
    seen = placement.snapshot()
    assert seen.data == (SliceStats("p", "x", 420),)
    assert SliceStats("record_index", "r-1", 9, 1, 4, AT + 1_500) in seen.index
    exact = SliceStats("p", "x", 500, 3, 30, AT)
    placement.listed([exact], is_index=False)
    assert placement.snapshot().data == (exact,)


def test_what_a_service_tells_again_counts_once() -> None:
    """A commit whose lock was lost behind its last file is made again."""
    placement = loaded()
    placement.committed(Report((BASE,), ()), AT)
    placement.committed(Report((LOG,), ()), AT + 1_000)
    placement.committed(Report((LOG,), ()), AT + 2_000)
    for _ in range(2):
        placement.wrote_index([index_log(0, 4)], AT + 1_500)
        placement.compacted([CompactedSlice("p", "x", 420, 1, 50)], AT + 1_500, is_index=False)
    seen = placement.snapshot()
    assert [(stats.log_count, stats.log_bytes) for stats in seen.data] == [(1, 50)]
    assert [(stats.log_count, stats.log_bytes) for stats in seen.index] == [(1, 4)]


def test_until_the_files_are_listed_anew_the_figures_are_those_of_before() -> None:
    placement = loaded()
    assert placement.snapshot().is_listed
    placement.suspend()
    assert not placement.snapshot().is_listed
    with pytest.raises(SuspendedError):
        placement.lease([Want("p", 1, 100)])


def test_inserts_fill_a_group_once_it_was_compacted_to_less_than_the_target() -> None:
    """Full with its logs, the group takes nothing; after the compaction it takes what is left."""
    placement = loaded()
    placement.committed(Report((BASE, replace(LOG, file_size_in_bytes=TARGET)), ()), AT)
    assert {lease.file_id for lease in placement.lease([Want("p", 10, 1_000)])} != {"x"}
    placement.compacted([CompactedSlice("p", "x", 900_000, 1, TARGET)], AT, is_index=False)
    first = placement.lease([Want("p", 1_000_000, 100_000_000)])[0]
    assert first.file_id == "x"
    assert first.records == pytest.approx(100_000 / 35, rel=0.01)
    after = placement.lease([Want("p", 1_000, 100_000)])
    assert "x" not in {lease.file_id for lease in after}


def test_figures_of_the_index_come_from_its_own_folders() -> None:
    table = IndexedTable(shards=2)
    table.commit({"a": 1, "b": 2, "c": 3, "d": 4}, {"f": 9})
    table.finish_compaction(table.schedule_compaction(), dict(table.live))
    instant = table.commit({"a": 2}, {"g": 9})
    stats = {slice_.group: slice_ for slice_ in index_stats(table.storage, table.snapshot())}
    changed = stats["record_index", f"record-index-{table.shard_of('a'):04d}-0"]
    other = stats["record_index", f"record-index-{1 - table.shard_of('a'):04d}-0"]
    assert (changed.log_count, changed.oldest_log_ms) == (1, instant_to_ms(instant))
    assert (other.log_count, other.log_bytes) == (0, 0)
    assert min(changed.base_bytes, changed.log_bytes, other.base_bytes) > 0
    assert stats["files", "files-0000-0"].log_count == 3
