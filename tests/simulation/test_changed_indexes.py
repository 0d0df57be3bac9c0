"""Another engine changes the indexes while Tidemark runs. Stats that it switches on are taken out again;
where it drops the record index, or leaves it behind in a restore, Tidemark stops loudly.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.commit_path import CommitPath
from tests.simulation.other_engine import OtherEngine
from tests.simulation.scripted_epochs import check_end, first_epoch, second_epoch
from tidemark.hudi_format import table_keys
from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.index_definitions import (
    COLUMN_STATS,
    column_stats_definition,
    read_index_definitions,
    write_index_definitions,
)
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX_FOLDER
from tidemark.hudi_format.publication.locate import read_lock
from tidemark.hudi_format.table_config import TableType, read_table_config, update_properties
from tidemark.hudi_format.validation import check_servable


@pytest.mark.parametrize(
    ("partitions", "remedy"),
    [
        ("bloom_filters,files,record_index", "DROP INDEX bloom_filters ON"),
        ("expr_index_day,files,record_index", "DROP INDEX expr_index_day ON"),
        ("files,record_index,vector_index_x", "DROP INDEX vector_index_x ON"),
        ("column_stats,files", "record level index"),
    ],
)
def test_tagging_stops_before_an_epoch_would_leave_an_index_stale(
    tmp_path: Path, partitions: str, remedy: str
) -> None:
    path = CommitPath(tmp_path, TableType.MERGE_ON_READ, ordered=True)
    first_epoch(path)
    path.run_until_idle()
    before = path.rows()
    update_properties(path.storage, {table_keys.METADATA_PARTITIONS: partitions})
    second_epoch(path)
    coordinator = path.coordinator
    assert coordinator is not None
    for _ in range(5):
        coordinator.step(0.0)
    assert coordinator.seen.halted is not None
    assert remedy in coordinator.seen.halted
    assert "`tidemark epoch retry 2`" in coordinator.seen.halted
    assert read_lock(path.storage) is None
    update_properties(path.storage, {table_keys.METADATA_PARTITIONS: "files,record_index"})
    assert path.rows() == before
    coordinator.retry(2)
    path.run_until_idle()
    assert path.coordinator is coordinator
    check_end(path)


def test_an_attempt_that_was_reported_is_not_decided_on_a_changed_table(tmp_path: Path) -> None:
    path = CommitPath(tmp_path, TableType.COPY_ON_WRITE, ordered=True)
    first_epoch(path)
    coordinator = path.start_coordinator()
    coordinator.step(0.0)
    path.write_open_attempt()
    update_properties(path.storage, {table_keys.METADATA_PARTITIONS: "bloom_filters,files,record_index"})
    path.step_coordinator()
    assert coordinator.seen.halted is not None
    assert path.context is not None
    assert path.context.fold().state.decided is None
    assert read_lock(path.storage) is None


def switched_on(path: CommitPath, names: str = "column_stats,partition_stats") -> None:
    """Another writer with Hudi's default options begins: it lists the stats, with their definitions."""
    storage = path.storage
    update_properties(storage, {table_keys.METADATA_PARTITIONS: f"{names},files,record_index"})
    definitions = read_index_definitions(storage)
    write_index_definitions(storage, {**definitions, COLUMN_STATS: column_stats_definition(["name"])})


def indexes(path: CommitPath) -> frozenset[str]:
    return read_table_config(path.storage).metadata_partitions


@pytest.mark.parametrize("before_decision", [False, True])
def test_stats_that_another_writer_switches_on_are_taken_out_before_a_commit(
    tmp_path: Path, before_decision: bool
) -> None:
    path = CommitPath(tmp_path, TableType.MERGE_ON_READ, ordered=True)
    first_epoch(path)
    path.run_until_idle()
    second_epoch(path)
    assert path.coordinator is not None
    assert path.context is not None
    if before_decision:
        path.step()
        path.write_open_attempt()
    switched_on(path)
    path.run_until_idle()
    assert path.coordinator.seen.halted is None
    assert indexes(path) == {"files", "record_index"}
    # A write that is in flight since it switched them on goes on to use both.
    assert COLUMN_STATS in read_index_definitions(path.storage)
    taken = path.context.taken_out
    assert taken is not None
    assert taken.names == "column_stats, partition_stats"
    assert path.state().attempts == 0
    assert path.state().generation == 0
    check_end(path)


def test_stats_that_were_switched_on_while_nobody_served_are_taken_out_after_the_start(
    tmp_path: Path,
) -> None:
    path = CommitPath(tmp_path, TableType.MERGE_ON_READ, ordered=True)
    first_epoch(path)
    path.run_until_idle()
    path.crash()
    switched_on(path, "column_stats")
    second_epoch(path)
    path.run_until_idle()
    assert indexes(path) == {"files", "record_index"}
    check_end(path)


def test_nothing_is_taken_out_of_a_table_that_is_refused_for_another_reason(tmp_path: Path) -> None:
    path, _ = second_epoch_tagged(tmp_path)
    names = "column_stats,bloom_filters,files,record_index"
    update_properties(path.storage, {table_keys.METADATA_PARTITIONS: names})
    assert "bloom_filters" in halts(path)
    assert indexes(path) == frozenset(names.split(","))


def test_tagging_stops_where_the_index_is_gone(tmp_path: Path) -> None:
    """Deleted by hand; the next commit would begin another one, of its own keys alone."""
    path, _ = second_epoch_tagged(tmp_path)
    kept = {info.path: path.storage.read(info.path) for info in path.storage.walk(RECORD_INDEX_FOLDER)}
    path.storage.delete_tree(RECORD_INDEX_FOLDER)
    said = halts(path)
    assert f"no shards: hoodie.properties lists it, and its folder {RECORD_INDEX_FOLDER} is gone" in said
    assert path.state().planned is None
    assert not path.storage.exists(RECORD_INDEX_FOLDER)
    for name, content in kept.items():
        path.storage.create(name, content)
    assert path.coordinator is not None
    path.coordinator.retry(2)
    path.run_until_idle()
    check_end(path)


MORE_SHARDS = "has 3 shards, and Tidemark's topics are made for 2"


def second_epoch_tagged(folder: Path) -> tuple[CommitPath, OtherEngine]:
    """The first epoch is committed, the second one tagged."""
    path = CommitPath(folder, TableType.MERGE_ON_READ, ordered=True)
    first_epoch(path)
    path.run_until_idle()
    second_epoch(path)
    return path, OtherEngine(path.storage, path.clock, path.action)


def halts(path: CommitPath) -> str:
    """What the running coordinator says when it stops, which it does within a few steps."""
    coordinator = path.coordinator
    assert coordinator is not None
    for _ in range(8):
        coordinator.step(0.0)
    assert coordinator.seen.halted is not None
    assert read_lock(path.storage) is None
    return coordinator.seen.halted


def test_nothing_is_planned_by_an_index_that_was_built_anew_with_more_shards(tmp_path: Path) -> None:
    """Before the engine that builds it has committed anything: no rewind is due yet."""
    path, other = second_epoch_tagged(tmp_path)
    other.build_index(3)
    said = halts(path)
    assert MORE_SHARDS in said
    assert "filegroup.count 2" in said
    assert (path.state().planned, path.state().generation) == (None, 0)
    other.build_index(2)
    assert path.coordinator is not None
    path.coordinator.retry(2)
    path.run_until_idle()
    check_end(path)


def test_nothing_is_tagged_anew_by_an_index_with_other_shards(tmp_path: Path) -> None:
    """Hudi's restore, and an upsert after a drop of the index, choose a number of their own."""
    path, other = second_epoch_tagged(tmp_path)
    other.build_index(10)
    other.commit()
    assert "has 10 shards" in halts(path)
    assert path.state().generation == 0
    other.build_index(2)
    assert path.coordinator is not None
    path.coordinator.retry(2)
    tagged_anew(path)
    path.run_until_idle()
    check_end(path)


def test_an_assigner_that_finds_other_shards_brings_the_coordinator_to_look(tmp_path: Path) -> None:
    """At rest nothing is planned, so nobody else would look; its lanes do not open, and no row is tagged."""
    path = CommitPath(tmp_path, TableType.MERGE_ON_READ, ordered=True)
    first_epoch(path)
    path.run_until_idle()
    other = OtherEngine(path.storage, path.clock, path.action)
    other.build_index(3)
    coordinator = path.coordinator
    assert coordinator is not None
    coordinator.step(0.0)
    assert coordinator.seen.halted is None
    coordinator.want_rewind("the record index has 3 shards, not 2", 0)
    assert MORE_SHARDS in halts(path)
    assert path.state().generation == 0


def test_what_was_written_by_the_former_shards_is_not_decided(tmp_path: Path) -> None:
    path, other = second_epoch_tagged(tmp_path)
    coordinator = path.coordinator
    assert coordinator is not None
    coordinator.step(0.0)
    path.write_open_attempt()
    other.build_index(3)
    path.step_coordinator()
    assert MORE_SHARDS in str(coordinator.seen.halted)
    assert path.state().decided is None
    assert read_lock(path.storage) is None


def restored(folder: Path, *, index_went_back: bool) -> tuple[CommitPath, OtherEngine]:
    """The first epoch is committed, another engine commits and restores the table to that epoch."""
    path = CommitPath(folder, TableType.MERGE_ON_READ, ordered=True)
    first_epoch(path)
    path.run_until_idle()
    other = OtherEngine(path.storage, path.clock, path.action)
    other.commit()
    if not index_went_back:
        other.build_index()
    other.restore()
    second_epoch(path)
    return path, other


def tagged_anew(path: CommitPath) -> None:
    """Steps until the rewind, and does the second epoch again."""
    for _ in range(12):
        path.step()
        if path.state().generation == 1:
            break
    assert (path.state().generation, path.state().tagged) == (1, [])
    path.tagger.claim_anew(path.state())
    second_epoch(path)


def test_tagging_stops_while_a_restore_left_the_record_index_behind(tmp_path: Path) -> None:
    """As Hudi's does when the savepoint is older than the metadata table's compactions."""
    path, other = restored(tmp_path, index_went_back=False)
    before, coordinator = path.rows(), path.coordinator
    assert coordinator is not None
    for _ in range(8):
        coordinator.step(0.0)
    assert coordinator.seen.halted is not None
    assert "would double keys" in coordinator.seen.halted
    assert "`tidemark epoch retry 2`" in coordinator.seen.halted
    assert path.state().generation == 0, "what is tagged anew would rest on the same index"
    assert read_lock(path.storage) is None
    assert path.rows() == before
    with pytest.raises(UnsupportedTableError, match="would double keys"):
        check_servable(path.storage)
    other.build_index()
    coordinator.retry(2)
    tagged_anew(path)
    path.run_until_idle()
    assert path.coordinator is coordinator
    check_end(path)


def test_a_restore_that_took_the_record_index_along_stops_nothing(tmp_path: Path) -> None:
    path, _ = restored(tmp_path, index_went_back=True)
    tagged_anew(path)
    path.run_until_idle()
    check_end(path)


@pytest.mark.parametrize(("keeps", "said"), [(0, "has no shards"), (1, "has 1 shards")])
def test_nothing_is_tagged_anew_where_a_restore_took_the_building_of_the_index_back(
    tmp_path: Path, keeps: int, said: str
) -> None:
    """As Hudi's does when the savepoint's commit completed before the index was built."""
    path, other = restored(tmp_path, index_went_back=True)
    other.take_building_back(keeps)
    assert said in halts(path)
    assert path.state().generation == 0
