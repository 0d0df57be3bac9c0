"""Epochs of a table that keeps a secondary index: which entries they write, and what happens when somebody
changes the index between plan and decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.simulation.commit_path import CommitPath, MemoryWorker
from tests.simulation.kept_secondary import NAME, changes, define, live, logs, switch_on
from tests.simulation.kept_stats import switch_on as switch_stats_on
from tests.simulation.scripted_epochs import GROUP_A, GROUP_B, check_end, first_epoch, row, second_epoch
from tests.simulation.scripted_tagger import SHARDS
from tidemark.commit_coordinator.calls.service import begin_response
from tidemark.commit_coordinator.commit.stored_report import read_report, report_document
from tidemark.commit_coordinator.errors import EntriesLeftOutError
from tidemark.commit_coordinator.failpoints import CoordinatorFailpoint
from tidemark.epoch_protocol.batches import DataOp
from tidemark.epoch_protocol.kept_indexes import KeptSecondary
from tidemark.hudi_format.errors import FencedOutError
from tidemark.hudi_format.metadata_table.index_life import partition_life
from tidemark.hudi_format.model import InstantGenerator
from tidemark.hudi_format.table_config import TableType
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, load_timeline
from tidemark.hudi_format.timeline.avro_records import decode_commit_metadata
from tidemark.stream_runtime.failpoint import FailpointHitError
from tidemark.stream_writer.epoch_tasks import index_tasks
from tidemark.stream_writer.task_outcome import TaskSucceeded
from tidemark.stream_writer.tasks import run_task

BOTH_TYPES = pytest.mark.parametrize("table_type", list(TableType))
GROUPS = 2
NULL = "\0"


def with_index(folder: Path, table_type: TableType, groups: int = GROUPS) -> CommitPath:
    path = CommitPath(folder, table_type, ordered=True)
    switch_on(path.storage, groups)
    return path


def committed(path: CommitPath, *rows: tuple[Mapping[str, object], DataOp, str]) -> set[tuple[str, str]]:
    """Commits the rows as one epoch; returns the entries that it wrote."""
    path.tag(list(rows))
    path.run_until_idle()
    return changes(path.storage, str(path.state().committed.instant))


def entries_of_rows(path: CommitPath) -> set[str]:
    """What the index should hold, by the rows as hudi-rs reads them."""
    values = {key: each["v"] for key, each in path.rows().items()}
    return {f"{NULL if value is None else value}${key}" for key, value in values.items()}


@BOTH_TYPES
def test_entries_are_those_of_the_live_rows_after_each_epoch(tmp_path: Path, table_type: TableType) -> None:
    path = with_index(tmp_path, table_type)
    first_epoch(path)
    path.run_until_idle()
    assert live(path.storage) == {"1$a", "1$b", "1$c"} == entries_of_rows(path)
    second_epoch(path)
    path.run_until_idle()
    instant = str(path.state().committed.instant)
    assert changes(path.storage, instant) == {
        ("put", "3$a"),
        ("put", "3$e"),
        ("delete", "1$a"),
        ("delete", "1$b"),
    }
    assert live(path.storage) == entries_of_rows(path)
    found = load_timeline(path.storage, METADATA_TABLE_ROOT).find(instant)
    assert found is not None
    content = path.storage.read(f"{METADATA_TABLE_ROOT}/timeline/{found.file_name}")
    named = decode_commit_metadata(content, instant).write_stats[NAME]
    assert sorted(stat.path.rpartition("/")[2] for stat in named) == logs(path.storage, instant)
    assert (sum(s.num_writes for s in named), sum(s.num_deletes for s in named)) == (2, 2)
    check_end(path)


@BOTH_TYPES
def test_only_what_readers_see_changes_entries(tmp_path: Path, table_type: TableType) -> None:
    """Counterexamples 1 to 4 of the design: bounds that lose the merge, two updates of a key in an epoch, a
    value that comes back, and a move with its value.
    """
    path = with_index(tmp_path, table_type)
    a, b = GROUP_A, GROUP_B
    assert committed(path, (row("k", 10, 0), DataOp.INSERT, a)) == {("put", "0$k")}
    assert committed(path, (row("k", 9, 1), DataOp.UPDATE, a)) == set()
    assert committed(path, (row("k", 9, 0), DataOp.DELETE, a)) == set()
    twice = [(row("k", 11, 1), DataOp.UPDATE, a), (row("k", 12, 2), DataOp.UPDATE, a)]
    assert committed(path, *twice) == {("delete", "0$k"), ("put", "2$k")}
    back = [(row("k", 13, 3), DataOp.UPDATE, a), (row("k", 14, 2), DataOp.UPDATE, a)]
    assert committed(path, *back) == set()
    moved = [(row("k", 15, 2), DataOp.DELETE, a), (row("k", 15, 2, "d2"), DataOp.INSERT, b)]
    assert committed(path, *moved) == {("put", "2$k")}
    assert committed(path, (row("k", 16, 2, "d2"), DataOp.DELETE, b)) == {("delete", "2$k")}
    null = {**row("k", 17, 0, "d2"), "v": None}
    assert committed(path, (null, DataOp.INSERT, b)) == {("put", "\0$k")}
    assert live(path.storage) == {"\0$k"} == entries_of_rows(path)


def test_the_plan_names_index_column_and_groups(tmp_path: Path) -> None:
    path = with_index(tmp_path, TableType.MERGE_ON_READ, groups=3)
    first_epoch(path)
    path.step_coordinator()
    planned = path.state().planned
    assert planned is not None
    build = partition_life(path.storage, NAME)
    assert build
    assert planned.secondary == [KeptSecondary(NAME, "v", 3, build)]


@BOTH_TYPES
def test_an_index_that_was_made_anew_since_the_plan_voids_the_attempt(
    tmp_path: Path, table_type: TableType
) -> None:
    """Of the same column, with as many file groups, from the rows of before: the log files of the epoch went
    with the folder of the former one, and its commit would name files that are not there.
    """
    path = with_index(tmp_path, table_type)
    first_epoch(path)
    path.run_until_idle()
    second_epoch(path)
    path.step_coordinator()
    path.write_open_attempt()
    planned = path.state().planned
    assert planned is not None
    assert logs(path.storage, str(planned.instant)) != []
    path.clock.advance(1.0)
    switch_on(path.storage, 2)
    path.run_until_idle()
    committed_at = str(path.state().committed.instant)
    assert committed_at != planned.instant
    assert changes(path.storage, committed_at) == {
        ("put", "3$a"), ("put", "3$e"), ("delete", "1$a"), ("delete", "1$b"),
    }  # fmt: skip
    assert path.state().generation == 0, "no key moved"
    check_end(path)


@BOTH_TYPES
def test_a_second_run_of_all_tasks_changes_nothing(tmp_path: Path, table_type: TableType) -> None:
    """The driver that died after it wrote the logs. Column stats are kept, too."""
    path = with_index(tmp_path, table_type)
    switch_stats_on(path.storage, ("id", "v"), 2)
    first_epoch(path)
    path.run_until_idle()
    second_epoch(path)
    path.step_coordinator()
    view = path.open_attempt()
    tasks = path.run_open_attempt()
    first = path.outcomes_of(view, tasks)
    files = path.files()
    path.clock.advance(5.0)
    again = path.outcomes_of(view, tasks)
    assert [outcome.metadata_logs for outcome in again] == [outcome.metadata_logs for outcome in first]
    assert path.files() == files


def test_logs_of_a_void_attempt_are_rolled_back_and_its_tasks_publish_nothing(tmp_path: Path) -> None:
    path = with_index(tmp_path, TableType.MERGE_ON_READ)
    first_epoch(path)
    path.step_coordinator()
    view = path.open_attempt()
    worker, tasks = MemoryWorker(path.client, path.clock), path.run_open_attempt()
    losing = index_tasks(begin_response(view, SHARDS), tasks, [run_task(task, worker) for task in tasks])
    for task in losing:
        run_task(task, worker)
    voided = str(view.planned.instant)
    assert logs(path.storage, voided)
    path.fail_open_attempt(rewind=False)
    while path.state().committed.epoch == 0:
        path.step()
    assert not logs(path.storage, voided)
    files = path.files()
    for task in losing:
        with pytest.raises(FencedOutError):
            run_task(task, worker)
    assert path.files() == files
    assert live(path.storage) == {"1$a", "1$b", "1$c"}


@pytest.mark.parametrize("change", ["column", "groups"])
def test_an_index_that_was_changed_since_the_plan_voids_the_attempt(tmp_path: Path, change: str) -> None:
    """Without a rewind, and the next attempt writes what the table keeps now."""
    path = with_index(tmp_path, TableType.MERGE_ON_READ)
    first_epoch(path)
    path.step_coordinator()
    assert path.write_open_attempt()
    if change == "column":
        define(path.storage, "id")
    else:
        switch_on(path.storage, 1)
    path.run_until_idle()
    state = path.state()
    assert (state.committed.epoch, state.generation) == (1, 0)
    expected = {"a$a", "b$b", "c$c"} if change == "column" else {"1$a", "1$b", "1$c"}
    assert live(path.storage) == expected
    assert len(logs(path.storage, str(state.committed.instant))) == (2 if change == "column" else 1)


def test_an_index_that_appeared_after_the_decision_takes_it_back(tmp_path: Path) -> None:
    """The coordinator dies, its lock is broken, another engine builds the index from the committed slices:
    the successor does not finish what has no entries in it.
    """
    path = CommitPath(tmp_path, TableType.MERGE_ON_READ, ordered=True)
    first_epoch(path)
    path.step_coordinator()
    assert path.write_open_attempt()
    path.failpoints.arm(CoordinatorFailpoint.AFTER_COMMIT_DECIDED)
    with pytest.raises(FailpointHitError):
        path.run_until_idle()
    path.crash()
    path.clock.advance(1.0)
    switch_on(path.storage, GROUPS, at=InstantGenerator(path.clock).next())
    path.run_until_idle()
    assert path.state().committed.epoch == 1
    assert live(path.storage) == {"1$a", "1$b", "1$c"}


def test_a_column_that_the_table_does_not_have_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    path = with_index(tmp_path, TableType.MERGE_ON_READ)
    define(path.storage, "gone")
    first_epoch(path)
    path.step_coordinator()
    assert path.state().planned is None
    assert path.coordinator is not None
    assert "column gone" in str(path.coordinator.seen.halted)


def test_a_report_without_the_entries_that_were_asked_for_is_refused(tmp_path: Path) -> None:
    """As a writer of a former version sends it, and one that left out a group."""
    path = with_index(tmp_path, TableType.MERGE_ON_READ)
    path.tag([(row(key, 1, number), DataOp.INSERT, GROUP_A) for number, key in enumerate("abcdefgh")])
    path.step_coordinator()
    view = path.open_attempt()
    planned = view.planned
    outcomes = path.outcomes_of(view, path.run_open_attempt())
    assert len(logs(path.storage, str(planned.instant))) == GROUPS
    former = [TaskSucceeded(outcome.write_stats, outcome.metadata_logs) for outcome in outcomes[:-2]]
    for wrong in (former, outcomes[:-2], outcomes[:-1]):
        with pytest.raises(EntriesLeftOutError, match="same Tidemark version"):
            path.report(planned.epoch, planned.attempt, str(planned.instant), wrong)
    assert path.report(planned.epoch, planned.attempt, str(planned.instant), outcomes)
    report = path.attempts.report_of(planned)
    assert read_report(report_document(report), str(planned.instant)) == report
