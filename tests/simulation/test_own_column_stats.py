"""Column stats that were made here are kept by every epoch; what another engine does to them ends that, and
never the stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.files_with_stats import files_without_records
from tests.simulation.commit_path import CommitPath
from tests.simulation.kept_stats import compact_and_clean
from tests.simulation.other_engine import OtherEngine
from tests.simulation.scripted_epochs import EXPECTED_INDEX, check_end, first_epoch, second_epoch
from tests.simulation.scripted_tagger import SCHEMA
from tidemark.hudi_format import table_keys
from tidemark.hudi_format.column_stats_scan import ColumnStatsScan
from tidemark.hudi_format.index_definitions import (
    COLUMN_STATS,
    STATS_META_COLUMNS,
    column_stats_definition,
    read_index_definitions,
    write_index_definitions,
)
from tidemark.hudi_format.metadata_table.bootstrap import partition_metadata
from tidemark.hudi_format.metadata_table.own_stats import foreign_stats, own_stats_columns
from tidemark.hudi_format.table_config import TableType, read_table_config, update_properties
from tidemark.hudi_format.table_schema import table_schema
from tidemark.hudi_format.timeline import DATA_ROOT, METADATA_TABLE_ROOT, Action, load_timeline
from tidemark.table_verification.verify import verify_table

FOLDER = ".hoodie/metadata/column_stats"
COLUMNS = ["id", "v"]
META = STATS_META_COLUMNS


def scan_of(path: CommitPath) -> ColumnStatsScan:
    config = read_table_config(path.storage)
    schema = table_schema(path.storage, config, load_timeline(path.storage))
    assert schema is not None
    scan = ColumnStatsScan(path.storage, config, schema, COLUMNS)
    scan.scan()
    return scan


def with_own_stats(tmp_path: Path, table_type: TableType = TableType.MERGE_ON_READ) -> CommitPath:
    path = CommitPath(tmp_path, table_type, ordered=True)
    first_epoch(path)
    path.run_until_idle()
    scan_of(path).create(path.clock)
    second_epoch(path)
    return path


def end_second_epoch(path: CommitPath) -> None:
    """Tagged anew if the coordinator rewinds."""
    generation = path.state().generation
    path.run_until_idle()
    if path.state().generation > generation:
        path.tagger.claim_anew(path.state())
        second_epoch(path)
        path.run_until_idle()


def listed(path: CommitPath) -> set[str]:
    return set(read_table_config(path.storage).metadata_partitions)


def define(path: CommitPath, columns: list[str]) -> None:
    definitions = read_index_definitions(path.storage)
    changed = {**definitions, COLUMN_STATS: column_stats_definition(columns)}
    write_index_definitions(path.storage, changed)


@pytest.mark.parametrize("table_type", list(TableType))
def test_epochs_keep_them(tmp_path: Path, table_type: TableType) -> None:
    path = with_own_stats(tmp_path, table_type)
    path.run_until_idle()
    assert listed(path) == {"files", "record_index", "column_stats"}
    scan = scan_of(path)
    assert not scan.wrong()
    assert not files_without_records(path.storage, SCHEMA, COLUMNS)
    check_end(path)


@pytest.mark.parametrize("table_type", list(TableType))
def test_a_new_table_has_those_of_its_first_commit(tmp_path: Path, table_type: TableType) -> None:
    path = CommitPath(tmp_path, table_type, ordered=True, stats=COLUMNS)
    first_epoch(path)
    second_epoch(path)
    path.run_until_idle()
    assert listed(path) == {"files", "record_index", "column_stats"}
    scan = scan_of(path)
    assert scan.files
    assert not scan.wrong()
    assert not files_without_records(path.storage, SCHEMA, COLUMNS)
    assert verify_table(path.storage, lambda _: None).agrees
    check_end(path)


def test_partition_stats_alone_are_taken_out(tmp_path: Path) -> None:
    path = with_own_stats(tmp_path)
    names = "column_stats,files,partition_stats,record_index"
    update_properties(path.storage, {table_keys.METADATA_PARTITIONS: names})
    path.run_until_idle()
    assert listed(path) == {"files", "record_index", "column_stats"}
    assert path.context is not None
    assert path.context.taken_out is not None
    assert path.context.taken_out.names == "partition_stats"
    assert not scan_of(path).wrong()
    check_end(path)


@pytest.mark.parametrize("before_decision", [False, True])
def test_other_columns_end_them(tmp_path: Path, before_decision: bool) -> None:
    path = with_own_stats(tmp_path)
    if before_decision:
        path.step()
        path.write_open_attempt()
    define(path, ["id", "ts", "v"])
    path.run_until_idle()
    assert listed(path) == {"files", "record_index"}
    assert own_stats_columns(path.storage) is None
    assert path.context is not None
    assert path.context.taken_out is not None
    assert path.context.taken_out.reason == "another writer changed their columns from id, v to id, ts, v"
    # Listed again, they are not taken for ours: the commits since are not in them.
    define(path, COLUMNS)
    update_properties(path.storage, {table_keys.METADATA_PARTITIONS: "column_stats,files,record_index"})
    path.step_coordinator()
    check_end(path)


def test_stats_that_another_engine_made_anew_are_not_ours(tmp_path: Path) -> None:
    path = with_own_stats(tmp_path)
    path.storage.replace(f"{FOLDER}/.hoodie_partition_metadata", partition_metadata("00000000000000003", 1))
    path.run_until_idle()
    assert listed(path) == {"files", "record_index"}
    check_end(path)


def test_an_engine_that_drops_them_does_not_stop_the_stream(tmp_path: Path) -> None:
    path = with_own_stats(tmp_path)
    update_properties(path.storage, {table_keys.METADATA_PARTITIONS: "files,record_index"})
    path.storage.delete_tree(FOLDER)
    path.run_until_idle()
    assert listed(path) == {"files", "record_index"}
    check_end(path)


@pytest.mark.parametrize("before_decision", [False, True])
@pytest.mark.parametrize("action", [Action.COMMIT, Action.COMPACTION])
def test_a_commit_with_stats_of_some_of_their_columns_ends_them(
    tmp_path: Path, action: Action, before_decision: bool
) -> None:
    """Its writer has our options and another list of columns, so no definition tells."""
    path = with_own_stats(tmp_path, TableType.COPY_ON_WRITE)
    if before_decision:
        path.step()
        path.write_open_attempt()
    other = OtherEngine(path.storage, path.clock, action)
    completion = other.rewrite(SCHEMA, lambda rows: rows, [*META, "id", "ts"])
    end_second_epoch(path)
    assert listed(path) == {"files", "record_index"}
    assert own_stats_columns(path.storage) is None
    assert path.context is not None
    assert path.context.taken_out is not None
    [theirs] = [each for each in load_timeline(path.storage).instants if each.completion == completion]
    assert path.context.taken_out.reason == f"another writer's commit {theirs.requested} has none of v"
    check_end(path)
    # Whoever lists them again is told of that alone.
    update_properties(path.storage, {table_keys.METADATA_PARTITIONS: "column_stats,files,record_index"})
    found = foreign_stats(path.storage, read_table_config(path.storage))
    assert found is not None
    assert found.reason == "another writer switched them on"


@pytest.mark.parametrize("columns", [("id", "v"), ("id", "ts", "v"), ()])
def test_a_commit_with_stats_of_all_of_their_columns_or_none_leaves_them(
    tmp_path: Path, columns: Sequence[str]
) -> None:
    path = with_own_stats(tmp_path, TableType.COPY_ON_WRITE)
    theirs = [*META, *columns] if columns else []
    OtherEngine(path.storage, path.clock, path.action).rewrite(SCHEMA, lambda rows: rows, theirs)
    end_second_epoch(path)
    assert listed(path) == {"files", "record_index", "column_stats"}
    assert path.context is not None
    assert path.context.taken_out is None
    check_end(path)


@pytest.mark.parametrize("root", [DATA_ROOT, METADATA_TABLE_ROOT, ""], ids=["data", "metadata", "cleaned"])
@pytest.mark.parametrize(("columns", "stays"), [(["id", "ts"], False), (["id", "v"], True)])
def test_a_commit_whose_traces_are_gone_is_judged_by_the_records_of_its_files(
    tmp_path: Path, root: str, columns: Sequence[str], stays: bool
) -> None:
    """Its instants were archived before anybody looked, or its log files were merged and cleaned away."""
    path = with_own_stats(tmp_path, TableType.COPY_ON_WRITE)
    path.crash()
    other = OtherEngine(path.storage, path.clock, path.action)
    other.rewrite(SCHEMA, lambda rows: rows, [*META, *columns])
    if root:
        other.commit()
        other.archive(root)
    else:
        compact_and_clean(path.storage, path.clock)
    end_second_epoch(path)
    assert listed(path) == {"files", "record_index"} | ({"column_stats"} if stays else set())
    assert path.context is not None
    taken = path.context.taken_out
    assert (taken is None) is stays
    assert taken is None or taken.reason.endswith("none of v")
    assert path.record_index() == EXPECTED_INDEX
