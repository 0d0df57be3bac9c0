"""Epochs and compactions of a table that keeps column stats: which records they write, and what happens when
somebody changes the stats between plan and decision.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.simulation.commit_path import CommitPath, MemoryWorker
from tests.simulation.kept_stats import FOLDER, define, records, switch_on
from tests.simulation.lived_table import LivedTable
from tests.simulation.scripted_epochs import GROUP_A, check_end, first_epoch, row, second_epoch
from tests.simulation.scripted_tagger import SHARDS
from tests.simulation.watched_life import SOON
from tidemark.commit_coordinator.calls.service import begin_response
from tidemark.commit_coordinator.commit.stored_report import read_report, report_document
from tidemark.commit_coordinator.errors import StatsLeftOutError
from tidemark.commit_coordinator.failpoints import CoordinatorFailpoint
from tidemark.config.table_services_model import IndexCompactionConfig
from tidemark.epoch_protocol.batches import DataOp
from tidemark.epoch_protocol.kept_indexes import KeptStats
from tidemark.epoch_protocol.service_entries import ServiceVoided
from tidemark.hudi_format.column_ranges import ValueType, column_ranges
from tidemark.hudi_format.errors import FencedOutError
from tidemark.hudi_format.index_definitions import STATS_META_COLUMNS
from tidemark.hudi_format.storage.base import name_of
from tidemark.hudi_format.table_config import TableType
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action, load_timeline
from tidemark.hudi_format.timeline.avro_records import WriteStat, decode_commit_metadata
from tidemark.stream_runtime.failpoint import FailpointHitError
from tidemark.stream_writer.epoch_tasks import index_tasks
from tidemark.stream_writer.tasks import run_task

BOTH_TYPES = pytest.mark.parametrize("table_type", list(TableType))
USER_COLUMNS = ("id", "ts", "v")
COLUMNS = [*STATS_META_COLUMNS, *USER_COLUMNS]


def with_stats(folder: Path, table_type: TableType, groups: int = 2) -> CommitPath:
    path = CommitPath(folder, table_type, ordered=True)
    switch_on(path.storage, USER_COLUMNS, groups)
    return path


def commit_both(path: CommitPath) -> tuple[str, str]:
    """Commits both epochs; returns their instants."""
    instants = []
    for epoch in (first_epoch, second_epoch):
        epoch(path)
        path.run_until_idle()
        instants.append(str(path.state().committed.instant))
    return instants[0], instants[1]


def named_files(path: CommitPath, instant: str, root: str = ".hoodie") -> Mapping[str, Sequence[WriteStat]]:
    """Partition -> what the completed commit names there."""
    found = load_timeline(path.storage, root).find(instant)
    assert found is not None
    content = path.storage.read(f"{root}/timeline/{found.file_name}")
    return decode_commit_metadata(content, instant).write_stats


@BOTH_TYPES
def test_each_file_of_an_epoch_has_a_record_of_each_column_in_the_same_commit(
    tmp_path: Path, table_type: TableType
) -> None:
    path = with_stats(tmp_path, table_type)
    for instant in commit_both(path):
        files = {name_of(stat.path) for stats in named_files(path, instant).values() for stat in stats}
        found = records(path.storage, instant)
        assert found.keys() == files
        assert all(sorted(columns) == sorted(COLUMNS) for columns in found.values())
        named = named_files(path, instant, METADATA_TABLE_ROOT)["column_stats"]
        logs = {name for name in path.storage.names(FOLDER) if f"_{instant}.log." in name}
        assert {name_of(stat.path) for stat in named} == logs
        assert sum(stat.num_writes for stat in named) == len(files) * len(COLUMNS)
    check_end(path)


def test_ranges_are_those_of_all_rows_of_a_base_file_and_of_the_data_block_of_a_log(tmp_path: Path) -> None:
    """The second epoch updates a to 3, deletes b and inserts e with 3; the base file of the first keeps b."""
    path = with_stats(tmp_path, TableType.MERGE_ON_READ)
    first, second = commit_both(path)
    bases = records(path.storage, first).values()
    assert sorted((r["id"].low, r["id"].high, r["id"].values) for r in bases) == [
        ("a", "b", 2),
        ("c", "c", 1),
    ]
    [log] = records(path.storage, second).values()
    assert [(log[n].low, log[n].high, log[n].values) for n in ("id", "ts")] == [("a", "e", 2), (3, 3, 2)]
    assert log["_hoodie_commit_time"].low == second


def test_a_rewritten_base_file_has_the_ranges_of_old_and_new_rows(tmp_path: Path) -> None:
    path = with_stats(tmp_path, TableType.COPY_ON_WRITE)
    path.tag([(row(key, 1, 1), DataOp.INSERT, GROUP_A) for key in "ab"])
    path.run_until_idle()
    path.tag([(row("b", 9, 9), DataOp.UPDATE, GROUP_A)])
    path.run_until_idle()
    [base] = records(path.storage, str(path.state().committed.instant)).values()
    assert (base["id"].low, base["id"].high, base["v"].low, base["v"].high) == ("a", "b", 1, 9)


def test_a_log_of_deletes_alone_has_records_that_say_that_it_has_no_values(tmp_path: Path) -> None:
    """Without records every reader would look into its slice, whatever it searches."""
    path = with_stats(tmp_path, TableType.MERGE_ON_READ)
    first_epoch(path)
    path.run_until_idle()
    path.tag([(row("a", 2, 0), DataOp.DELETE, GROUP_A)])
    path.run_until_idle()
    instant = str(path.state().committed.instant)
    assert path.state().committed.epoch == 2
    [log] = records(path.storage, instant).values()
    assert sorted(log) == sorted(COLUMNS)
    assert {(each.low, each.high, each.values, each.nulls) for each in log.values()} == {(None, None, 0, 0)}
    assert log["ts"].type.kind is ValueType.LONG


def test_the_plan_names_columns_and_groups(tmp_path: Path) -> None:
    path = with_stats(tmp_path, TableType.MERGE_ON_READ, groups=3)
    first_epoch(path)
    path.step_coordinator()
    planned = path.state().planned
    assert planned is not None
    assert planned.column_stats == KeptStats(COLUMNS, 3)


@BOTH_TYPES
def test_a_second_run_of_all_tasks_changes_nothing(tmp_path: Path, table_type: TableType) -> None:
    """The driver that died after it wrote the logs; tasks of both jobs run once more."""
    path = with_stats(tmp_path, table_type)
    first_epoch(path)
    path.step_coordinator()
    view = path.open_attempt()
    tasks = path.run_open_attempt()
    first = path.outcomes_of(view, tasks)
    files = path.files()
    path.clock.advance(5.0)
    assert [outcome.metadata_logs for outcome in path.outcomes_of(view, tasks)] == [
        outcome.metadata_logs for outcome in first
    ]
    assert path.files() == files


def test_tasks_of_stats_of_a_void_attempt_publish_nothing_and_leave_nothing(tmp_path: Path) -> None:
    path = with_stats(tmp_path, TableType.MERGE_ON_READ)
    first_epoch(path)
    path.step_coordinator()
    view = path.open_attempt()
    worker, tasks = MemoryWorker(path.client, path.clock), path.run_open_attempt()
    losing = index_tasks(begin_response(view, SHARDS), tasks, [run_task(task, worker) for task in tasks])
    assert len(losing) == 2
    run_task(losing[0], worker)
    path.fail_open_attempt(rewind=False)
    while path.state().committed.epoch == 0:
        path.step()
    assert not [name for name in path.storage.names(FOLDER) if f"_{view.planned.instant}.log." in name]
    files = path.files()
    for task in losing:
        with pytest.raises(FencedOutError):
            run_task(task, worker)
    assert path.files() == files
    assert len(records(path.storage, str(path.state().committed.instant))) == 2


@pytest.mark.parametrize("change", ["columns", "groups"])
def test_stats_that_were_changed_since_the_plan_void_the_attempt(tmp_path: Path, change: str) -> None:
    """Without a rewind, and the next attempt writes what the table keeps now."""
    path = with_stats(tmp_path, TableType.MERGE_ON_READ)
    first_epoch(path)
    path.step_coordinator()
    assert path.write_open_attempt()
    if change == "columns":
        define(path.storage, ("id",))
    else:
        switch_on(path.storage, USER_COLUMNS, 1)
    path.run_until_idle()
    state = path.state()
    assert (state.committed.epoch, state.generation) == (1, 0)
    instant = str(state.committed.instant)
    columns = [*STATS_META_COLUMNS, "id"] if change == "columns" else COLUMNS
    assert [sorted(of) for of in records(path.storage, instant).values()] == [sorted(columns)] * 2
    logs = [name for name in path.storage.names(FOLDER) if f"_{instant}.log." in name]
    assert len(logs) == (2 if change == "columns" else 1)


def test_stats_that_were_changed_after_the_decision_take_it_back(tmp_path: Path) -> None:
    """The coordinator dies, its lock is broken, another engine changes the columns: the successor does not
    finish what lacks them.
    """
    path = with_stats(tmp_path, TableType.MERGE_ON_READ)
    first_epoch(path)
    path.step_coordinator()
    assert path.write_open_attempt()
    path.failpoints.arm(CoordinatorFailpoint.AFTER_COMMIT_DECIDED)
    with pytest.raises(FailpointHitError):
        path.run_until_idle()
    assert path.state().decided is not None
    path.crash()
    define(path.storage, ("v",))
    path.run_until_idle()
    assert path.state().committed.epoch == 1
    found = records(path.storage, str(path.state().committed.instant))
    assert [sorted(of) for of in found.values()] == [sorted([*STATS_META_COLUMNS, "v"])] * 2


def test_columns_that_the_table_does_not_have_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    path = with_stats(tmp_path, TableType.MERGE_ON_READ)
    define(path.storage, ("id", "gone"))
    first_epoch(path)
    path.step_coordinator()
    assert path.state().planned is None
    assert path.coordinator is not None
    assert "column gone" in str(path.coordinator.seen.halted)


def test_a_report_without_the_stats_that_were_asked_for_is_refused(tmp_path: Path) -> None:
    """As a writer of a former version sends it, and one that left out a group."""
    path = with_stats(tmp_path, TableType.MERGE_ON_READ)
    first_epoch(path)
    path.step_coordinator()
    view = path.open_attempt()
    planned = view.planned
    outcomes = path.outcomes_of(view, path.run_open_attempt())
    for wrong in (outcomes[:-2], outcomes[:-1]):
        with pytest.raises(StatsLeftOutError, match="same Tidemark version"):
            path.report(planned.epoch, planned.attempt, str(planned.instant), wrong)
    assert path.report(planned.epoch, planned.attempt, str(planned.instant), outcomes)
    report = path.attempts.report_of(planned)
    assert read_report(report_document(report), str(planned.instant)) == report


def lived(folder: Path) -> LivedTable:
    """A table with stats, whose data is compacted every few seconds."""
    config = replace(SOON, compact_index=IndexCompactionConfig(enabled=False))
    life = LivedTable(folder, config, groups=3, keys=24, seed=5)
    switch_on(life.storage, USER_COLUMNS, 2)
    return life


def compactions(life: LivedTable) -> list[str]:
    timeline = load_timeline(life.storage)
    return [found.requested for found in timeline.completed(Action.COMPACTION, Action.COMMIT)]


def lives_until(life: LivedTable, happened: Callable[[LivedTable], object]) -> None:
    for _ in range(60):
        if happened(life):
            return
        life.second()
    raise AssertionError("not within a minute")


def test_a_compaction_writes_the_ranges_of_its_base_files_in_its_own_deltacommit(tmp_path: Path) -> None:
    life = lived(tmp_path)
    lives_until(life, compactions)
    [instant] = compactions(life)
    stats = [stat for of in named_files(life, instant).values() for stat in of]
    found = records(life.storage, instant)
    assert found.keys() == {name_of(stat.path) for stat in stats if stat.num_writes}
    for stat in stats:
        rows = pq.read_table(io.BytesIO(life.storage.read(stat.path)))
        assert found.get(name_of(stat.path), {}) == {r.column: r for r in column_ranges(rows, COLUMNS)}
    named = named_files(life, instant, METADATA_TABLE_ROOT)
    assert sorted(named) == ["column_stats", "files"]
    assert sum(stat.num_writes for stat in named["column_stats"]) == len(found) * len(COLUMNS)


def test_stats_that_were_changed_since_its_plan_void_a_compaction(tmp_path: Path) -> None:
    life = lived(tmp_path)
    life.works = False
    lives_until(life, LivedTable.planned_services)
    define(life.storage, ("id",))
    life.works = True
    lives_until(life, LivedTable.ended)
    first = life.ended()[1]
    assert isinstance(first, ServiceVoided)
    assert "column stats were changed" in first.reason
    lives_until(life, compactions)
    found = records(life.storage, compactions(life)[0])
    assert {tuple(sorted(of)) for of in found.values()} == {(*sorted(STATS_META_COLUMNS), "id")}
