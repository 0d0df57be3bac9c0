"""Where inserts go: file groups grow towards the target size, and assigners share them."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from testing.ids import SeededIds
from tidemark.commit_coordinator.calls.placement import Placement, Want
from tidemark.commit_coordinator.commit.context import Report
from tidemark.commit_coordinator.domain.file_groups import ASSUMED_RATIO, FileGroupPlanner
from tidemark.hudi_format.metadata_table.partitions.files import ListedFiles
from tidemark.hudi_format.metadata_table.record_schema import encode_record, metadata_record_schema
from tidemark.hudi_format.table_view import TableView
from tidemark.hudi_format.timeline import Action, Instant, State, Timeline
from tidemark.hudi_format.timeline.avro_records import WriteStat

TARGET = 1_000_000
AT = 1_700_000_000_000
ROW = 100  # Arrow bytes
STORED = ROW * ASSUMED_RATIO
_NO_FILES = ListedFiles({})


def view_of(*completed: str, replaced: tuple[str, ...] = (), clustering: tuple[str, ...] = ()) -> TableView:
    """A view in which these instants are completed, and file groups of partition p taken."""
    line = Timeline(tuple(Instant(at, Action.COMMIT, State.COMPLETED, at + "1") for at in completed))
    gone = {("p", file_id): "9" for file_id in replaced}
    return TableView(line, gone, {}, {}, {("p", file_id): "8" for file_id in clustering})


def lease_all(planner: FileGroupPlanner, records: int, fresh: itertools.count[int]) -> dict[str, int]:
    """File id -> records, leased in the way `Placement` does it."""
    placed: dict[str, int] = {}
    while records > 0:
        lease = planner.lease("p", records, records * ROW, f"f{next(fresh)}")
        placed[lease.file_id] = placed.get(lease.file_id, 0) + min(records, lease.records)
        records -= lease.records
    return placed


def test_file_groups_approach_the_target_over_many_epochs() -> None:
    planner, fresh = FileGroupPlanner(TARGET), itertools.count()
    sizes: dict[str, float] = {}
    for _ in range(200):
        for file_id, records in lease_all(planner, 2_000, fresh).items():
            sizes[file_id] = sizes.get(file_id, 0.0) + records * STORED
        for file_id, size in sizes.items():
            planner.written("p", file_id, int(size))
    full = sorted(sizes.values())[1:]
    assert len(sizes) == pytest.approx(200 * 2_000 * STORED / TARGET, abs=2)
    assert all(0.9 * TARGET <= size <= 1.1 * TARGET for size in full), sizes


def test_rows_of_any_size_overrun_a_group_by_one_row_at_most() -> None:
    planner = FileGroupPlanner(TARGET)
    planner.load([("p", "nearly-full", TARGET - 10)])
    lease = planner.lease("p", 50, 50 * 10_000_000, "new")
    assert lease.file_id == "new", "not one of these rows fits the other one"
    assert lease.records == 1


def test_two_assigners_share_a_group_until_it_is_full() -> None:
    planner = FileGroupPlanner(TARGET)
    first = planner.lease("p", 1_000, 1_000 * ROW, "a")
    second = planner.lease("p", 1_000, 1_000 * ROW, "b")
    assert first.file_id == second.file_id == "a"
    assert planner.lease("q", 1, ROW, "c").file_id == "c", "partitions share nothing"


def test_a_lease_is_a_part_of_a_group_not_all_of_it() -> None:
    planner = FileGroupPlanner(1 << 40)
    assert planner.lease("p", 10, 10 * ROW, "a").records == 1_000
    assert planner.lease("p", 5_000, 5_000 * ROW, "a").records == 20_000


def test_the_fullest_group_with_room_is_filled_first() -> None:
    planner = FileGroupPlanner(TARGET)
    planner.load([("p", "full", TARGET), ("p", "half", TARGET // 2), ("p", "little", 10)])
    assert planner.lease("p", 1, ROW, "new").file_id == "half"
    assert planner.stats() == {
        "file_groups": 3.0, "bytes": float(TARGET + TARGET // 2 + 10), "target_bytes": float(TARGET),
    }  # fmt: skip


def test_the_measured_ratio_takes_the_place_of_the_assumed_one() -> None:
    planner = FileGroupPlanner(TARGET)
    for _ in range(50):
        planner.learn_ratio(arrow_bytes=1_000, stored_bytes=100)
    planner.learn_ratio(0, 0)
    lease = planner.lease("p", 1_000_000, 1_000_000 * ROW, "a")
    assert lease.records == pytest.approx(TARGET / (ROW * 0.1), rel=0.01)


def test_placement_leases_every_wanted_record_and_learns_what_a_commit_left() -> None:
    placement = Placement(TARGET, SeededIds(1))
    leases = placement.lease([Want("p", 100_000, 100_000 * ROW), Want("q", 5, 5 * ROW)])
    assert sum(lease.records for lease in leases if lease.partition_path == "p") >= 100_000
    assert len({lease.file_id for lease in leases if lease.partition_path == "p"}) == 4
    assert placement.lease([Want("p", 0, 0)]) == []
    base = WriteStat(file_id="x", path="p/x", partition_path="p", file_size_in_bytes=400)
    placement.committed(Report((base,), ()), AT)
    log = replace(base, file_size_in_bytes=50, log_files=("x.log",))
    placement.committed(Report((log, log), ()), AT)
    assert placement.stats()["bytes"] == 500.0


def test_placement_measures_the_ratio_on_new_base_files_that_are_large_enough() -> None:
    target = 1 << 30
    placement = Placement(target, SeededIds(1))

    def room() -> int:
        """Records of one row each that one file group takes."""
        return placement.lease([Want("fresh", 100_000_000, 100_000_000 * ROW)])[0].records

    assumed = room()
    new = WriteStat(file_id="x", path="p/x", partition_path="p", num_writes=20_000, num_inserts=20_000)
    placement.committed(Report((replace(new, file_size_in_bytes=500_000),), ()), AT)
    updated = replace(new, num_inserts=5, file_size_in_bytes=2_000_000)
    placement.committed(Report((updated, replace(updated, log_files=("x.log",))), ()), AT)
    placement.load(_NO_FILES, view_of(), [])
    assert room() == assumed, "small files, rewritten ones and logs teach nothing"
    for _ in range(50):
        placement.committed(Report((replace(new, file_size_in_bytes=1_400_000),), ()), AT)
    placement.load(_NO_FILES, view_of(), [])
    assert room() == pytest.approx(target / 70, rel=0.01)


def test_replaced_groups_and_groups_that_are_about_to_be_clustered_get_no_inserts() -> None:
    """Rows in the one would never be read, rows in the other are lost when the clustering completes."""
    files = ListedFiles()
    entries = {f"{name}_0-0-0_1.parquet": {"size": 400, "isDeleted": False} for name in ("a", "b", "c")}
    record = encode_record({"key": "", "type": 2, "filesystemMetadata": entries})
    listed = encode_record(
        {"key": "", "type": 1, "filesystemMetadata": {"p": {"size": 0, "isDeleted": False}}}
    )
    files.apply("p", record, metadata_record_schema(), "a test")
    files.apply("__all_partitions__", listed, metadata_record_schema(), "a test")
    placement = Placement(TARGET, SeededIds(1))
    placement.load(files, view_of("1", replaced=("c",), clustering=("b",)), [])
    assert {file_id for _, file_id, _ in placement.slices()} == {"a", "b"}
    leased = {lease.file_id for lease in placement.lease([Want("p", 100_000, 100_000 * ROW)])}
    assert leased & {"a", "b", "c"} == {"a"}
