"""A coordinator dies within a commit, and another writer's CREATE INDEX writes its definition before a
successor goes on. It writes that without the table's lock, and waits for the lock before it reads a row: it
builds behind the epoch that is decided.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation import kept_secondary, kept_stats
from tests.simulation.commit_path import CommitPath
from tests.simulation.scripted_epochs import GROUP_A, check_end, first_epoch, row, second_epoch
from tests.simulation.test_lost_lock import lose_lock
from tidemark.commit_coordinator.errors import DivergedError
from tidemark.commit_coordinator.failpoints import CoordinatorFailpoint
from tidemark.epoch_protocol.batches import DataOp
from tidemark.epoch_protocol.entries import AttemptVoided
from tidemark.hudi_format import table_keys as keys
from tidemark.hudi_format.index_definitions import (
    INDEX_DEFINITIONS_PATH,
    read_index_definitions,
    secondary_index_definition,
    write_index_definitions,
)
from tidemark.hudi_format.table_config import TableType, read_properties, update_properties
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, load_timeline
from tidemark.stream_runtime.failpoint import FailpointAction, FailpointHitError

OTHER = "secondary_index_by_time"
KEPT = pytest.mark.parametrize("kept", ["nothing", "stats", "secondary"])
HALF = CoordinatorFailpoint.AFTER_METADATA_COMMIT
DEATHS = [
    *((table_type, HALF) for table_type in TableType),
    (TableType.MERGE_ON_READ, CoordinatorFailpoint.AFTER_COMMIT_DECIDED),
    (TableType.MERGE_ON_READ, CoordinatorFailpoint.BEFORE_METADATA_COMPLETED),
    (TableType.COPY_ON_WRITE, CoordinatorFailpoint.AFTER_DATA_COMMIT),
    (TableType.COPY_ON_WRITE, CoordinatorFailpoint.BEFORE_EPOCH_COMMITTED),
]


def died(folder: Path, table_type: TableType, kept: str, at: CoordinatorFailpoint) -> CommitPath:
    """The first epoch is committed; a coordinator died at this step of the second one's commit, a second
    later.
    """
    path = CommitPath(folder, table_type, ordered=True, stats=["v"] if kept == "stats" else [])
    first_epoch(path)
    path.run_until_idle()
    if kept == "secondary":
        kept_secondary.switch_on(path.storage, 2)
    second_epoch(path)
    path.failpoints.arm(at, 1, FailpointAction.RAISE)
    with pytest.raises(FailpointHitError):
        path.run_until_idle()
    path.crash()
    path.clock.advance(1.0)
    return path


def define_other(path: CommitPath) -> None:
    """As CREATE INDEX of another column begins."""
    definition = secondary_index_definition(OTHER, "ts")
    write_index_definitions(path.storage, {**read_index_definitions(path.storage), OTHER: definition})


def begin_build(path: CommitPath, name: str) -> None:
    """As CREATE INDEX, or a write that builds an index on its way, goes on under the lock."""
    path.storage.create(name, b"")


def voids(path: CommitPath) -> list[AttemptVoided]:
    return [found.entry for found in path.fold_reader().catch_up() if isinstance(found.entry, AttemptVoided)]


def steps(path: CommitPath, times: int) -> None:
    for _ in range(times):
        path.step()
        path.clock.advance(3.0)


@KEPT
@pytest.mark.parametrize(("table_type", "at"), DEATHS)
def test_a_definition_of_an_index_lets_a_decided_epoch_be_finished(
    tmp_path: Path, table_type: TableType, kept: str, at: CoordinatorFailpoint
) -> None:
    """Behind the metadata table's commit every successor stopped for good: the epoch could neither be
    finished nor taken back.
    """
    path = died(tmp_path, table_type, kept, at)
    define_other(path)
    path.run_until_idle()
    assert (path.state().committed.epoch, voids(path)) == (2, [])
    check_end(path)
    path.tag([(row("a", 4, 4), DataOp.UPDATE, GROUP_A)])
    steps(path, 6)
    assert path.coordinator is not None
    awaited = path.coordinator.seen.awaited
    assert awaited is not None, "the next epoch waits for the index"
    assert (awaited.index, path.state().committed.epoch) == (OTHER, 2)
    assert not path.storage.exists(".hoodie/lock"), "a builder needs the lock"


@KEPT
@pytest.mark.parametrize(
    ("table_type", "build"),
    [
        (TableType.MERGE_ON_READ, ".hoodie/timeline/20250615000000000.indexing.requested"),
        (
            TableType.COPY_ON_WRITE,
            f"{METADATA_TABLE_ROOT}/timeline/00000000000000007.deltacommit.requested",
        ),
    ],
)
def test_a_build_that_began_since_the_decision_takes_it_back_or_stops_loudly(
    tmp_path: Path, kept: str, table_type: TableType, build: str
) -> None:
    """The lock was lost, and the build may have read the table without the epoch: its rows would be in no
    index for ever. The clock of that writer is hours behind.
    """
    path = died(tmp_path / "decided", table_type, kept, CoordinatorFailpoint.AFTER_COMMIT_DECIDED)
    lose_lock(path)
    define_other(path)
    begin_build(path, build)
    steps(path, 6)
    assert (path.state().committed.epoch, path.state().attempts) == (1, 1)
    assert "began to build an index" in voids(path)[0].reason

    path = died(tmp_path / "half", table_type, kept, HALF)
    lose_lock(path)
    define_other(path)
    begin_build(path, build)
    with pytest.raises(DivergedError, match="began to build an index"):
        path.run_until_idle()
    assert path.state().committed.epoch == 1


@pytest.mark.parametrize("kept", ["stats", "secondary"])
def test_a_build_that_failed_long_ago_stops_nothing(tmp_path: Path, kept: str) -> None:
    """Its indexing instant stays pending for ever."""
    path = CommitPath(tmp_path, TableType.MERGE_ON_READ, ordered=True, stats=["v"] if kept == "stats" else [])
    begin_build(path, ".hoodie/timeline/20250615000000000.indexing.requested")
    path.clock.advance(1.0)
    first_epoch(path)
    path.run_until_idle()
    if kept == "secondary":
        kept_secondary.switch_on(path.storage, 2)
    second_epoch(path)
    path.failpoints.arm(HALF, 1, FailpointAction.RAISE)
    with pytest.raises(FailpointHitError):
        path.run_until_idle()
    path.crash()
    define_other(path)
    path.run_until_idle()
    assert path.state().committed.epoch == 2
    check_end(path)


def test_definitions_that_are_being_written_are_awaited_by_a_half_committed_epoch(tmp_path: Path) -> None:
    path = died(tmp_path, TableType.MERGE_ON_READ, "stats", HALF)
    whole = path.storage.read(INDEX_DEFINITIONS_PATH)
    path.storage.replace(INDEX_DEFINITIONS_PATH, whole[: len(whole) // 2])
    steps(path, 6)
    assert path.coordinator is not None
    assert (path.coordinator.seen.halted, path.state().committed.epoch) == (None, 1)
    path.storage.replace(INDEX_DEFINITIONS_PATH, whole)
    path.run_until_idle()
    assert path.state().committed.epoch == 2
    check_end(path)


@pytest.mark.parametrize("kept", ["stats", "secondary"])
def test_an_index_that_is_dropped_stops_no_half_committed_epoch(tmp_path: Path, kept: str) -> None:
    """Nobody reads an index that is gone, so nothing is missing in it."""
    path = died(tmp_path, TableType.COPY_ON_WRITE, kept, HALF)
    folder = {"stats": kept_stats.FOLDER, "secondary": kept_secondary.FOLDER}[kept]
    name = folder.rpartition("/")[2]
    definitions = read_index_definitions(path.storage)
    write_index_definitions(path.storage, {each: definitions[each] for each in definitions if each != name})
    listed = set(read_properties(path.storage)[keys.METADATA_PARTITIONS].split(",")) - {name}
    update_properties(path.storage, {keys.METADATA_PARTITIONS: ",".join(sorted(listed))})
    path.storage.delete_tree(folder)
    path.run_until_idle()
    assert path.state().committed.epoch == 2
    check_end(path)


def test_a_copy_of_the_table_with_other_times_stops_no_half_committed_epoch(tmp_path: Path) -> None:
    """By the time of a file plan and decision tell builds of a secondary index apart."""
    path = died(tmp_path, TableType.MERGE_ON_READ, "secondary", HALF)
    path.storage.set_time(f"{kept_secondary.FOLDER}/.hoodie_partition_metadata")
    path.run_until_idle()
    assert path.state().committed.epoch == 2
    check_end(path)


def test_an_index_that_is_listed_since_the_decision_stops_a_half_committed_epoch(tmp_path: Path) -> None:
    """Nobody can tell whether it was built with the epoch's rows."""
    path = died(tmp_path, TableType.MERGE_ON_READ, "stats", HALF)
    kept_secondary.switch_on(path.storage, 2, at=max(load_timeline(path.storage).times()))
    with pytest.raises(DivergedError, match="secondary indexes were changed"):
        path.run_until_idle()
    assert path.state().committed.epoch == 1
