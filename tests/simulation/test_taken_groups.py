"""File groups that another engine rewrites beside us: no committed row may become invisible.

Spark's clustering, delete_partition and insert_overwrite replace file groups; its compaction and clean take
the files away that an epoch was planned on.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.commit_path import ATTEMPTS_MAX, CommitPath
from tests.simulation.rewriting_engine import CLUSTERED, RewritingEngine
from tests.simulation.scripted_epochs import (
    EXPECTED,
    GROUP_A,
    GROUP_B,
    check_end,
    check_traces,
    first_epoch,
    row,
    second_epoch,
)
from tidemark.commit_coordinator.commit.index_at_rest import Rest
from tidemark.epoch_protocol.batches import DataOp
from tidemark.hudi_format.model import InstantGenerator
from tidemark.hudi_format.table_config import TableType

BOTH_TYPES = pytest.mark.parametrize("table_type", list(TableType))
A, B = ("d1", GROUP_A), ("d2", GROUP_B)


def after_first(folder: Path, table_type: TableType) -> tuple[CommitPath, RewritingEngine]:
    """The first epoch is committed."""
    path = CommitPath(folder, table_type, ordered=True)
    first_epoch(path)
    path.run_until_idle()
    return path, RewritingEngine(path.storage, path.clock, path.action)


def planned_second(folder: Path, table_type: TableType) -> tuple[CommitPath, RewritingEngine]:
    """The second epoch is planned, not written."""
    path, other = after_first(folder, table_type)
    second_epoch(path)
    path.step_coordinator()
    return path, other


def step_until(path: CommitPath, generation: int) -> None:
    """Steps until the rewind; what was tagged before does not count any more."""
    for _ in range(12):
        path.step()
        if path.state().generation == generation:
            break
    state = path.state()
    assert (state.generation, state.tagged) == (generation, [])
    path.tagger.claim_anew(state)


@BOTH_TYPES
@pytest.mark.parametrize("action", ["clustering", "compaction", "logcompaction"])
def test_a_plan_without_content_is_waited_for_as_long_as_its_writer_may_live(
    tmp_path: Path, table_type: TableType, action: str
) -> None:
    """Hudi makes the file in place; who dies between its name and its content stopped the stream for good."""
    path, _ = planned_second(tmp_path, table_type)
    assert path.write_open_attempt()
    instant = InstantGenerator(path.clock).next()
    path.storage.create(f".hoodie/timeline/{instant}.{action}.requested", b"")
    for _ in range(6):
        path.step()
        path.clock.advance(10.0)
    assert path.coordinator is not None
    assert (path.coordinator.seen.halted, path.state().committed.epoch) == (None, 1)
    assert f"{instant}.{action}.requested has no content" in str(path.coordinator.seen.trouble)
    path.crash()
    path.clock.advance(70.0)
    path.run_until_idle()
    assert path.state().committed.epoch == 2
    check_end(path)


def test_a_clustering_that_gets_its_content_while_it_is_waited_for_counts(tmp_path: Path) -> None:
    """Read once as empty, it is read again: the update would be lost."""
    path, other = planned_second(tmp_path, TableType.MERGE_ON_READ)
    assert path.write_open_attempt()
    instant = other.plan_clustering(A).inflight.requested
    plan = f".hoodie/timeline/{instant}.clustering.requested"
    content = path.storage.read(plan)
    path.storage.replace(plan, b"")
    path.step()
    assert "has no content" in str(path.coordinator and path.coordinator.seen.trouble)
    path.storage.replace(plan, content)
    path.clock.advance(3.0)
    for _ in range(2 * ATTEMPTS_MAX):
        path.step()
        path.clock.advance(3.0)
    assert path.state().committed.epoch == 1
    assert path.coordinator is not None
    assert path.coordinator.seen.awaited is not None
    assert path.coordinator.seen.awaited.instant == instant


@BOTH_TYPES
def test_rows_that_are_tagged_into_a_replaced_group_are_tagged_anew(
    tmp_path: Path, table_type: TableType
) -> None:
    """Whatever led there (a lease from before, a stale cache): the task itself refuses to write them."""
    path, other = after_first(tmp_path, table_type)
    other.cluster(A)
    path.tag([(row("e", 3, 3), DataOp.INSERT, GROUP_A)])
    step_until(path, 1)  # the commit of another engine
    path.tag([(row("e", 3, 3), DataOp.INSERT, GROUP_A)])
    path.step_coordinator()
    outcome = path.try_open_attempt()
    assert outcome is not None
    assert outcome.error == "FileGroupReplacedError"
    assert GROUP_A in outcome.message
    path.fail_open_attempt(rewind=True)
    step_until(path, 2)
    path.tag([(row("e", 3, 3), DataOp.INSERT, CLUSTERED)])
    path.run_until_idle()
    assert path.rows() == {key: row(key, 1, 1) for key in ("a", "b")} | {
        "c": row("c", 1, 1, "d2"),
        "e": row("e", 3, 3),
    }
    check_traces(path)


@BOTH_TYPES
def test_inserts_into_a_group_that_is_planned_to_be_clustered_are_tagged_anew(
    tmp_path: Path, table_type: TableType
) -> None:
    path, other = after_first(tmp_path, table_type)
    path.tag([(row("e", 3, 3), DataOp.INSERT, GROUP_A)])
    path.step_coordinator()
    path.write_open_attempt()
    planned = other.plan_clustering(A)
    step_until(path, 1)
    path.tag([(row("e", 3, 3), DataOp.INSERT, GROUP_B)])
    path.run_until_idle()
    other.execute_clustering(planned)
    assert {"a", "b", "c", "e"} == set(path.rows())
    check_traces(path)


@BOTH_TYPES
def test_updates_of_a_group_that_is_planned_to_be_clustered_wait_for_it(
    tmp_path: Path, table_type: TableType
) -> None:
    """Hudi refuses such an update (SparkRejectUpdateStrategy): the clustering would lose it."""
    path, other = planned_second(tmp_path, table_type)
    planned = other.plan_clustering(A)
    for _ in range(3 * ATTEMPTS_MAX):
        path.step()
        path.clock.advance(3.0)
    assert path.coordinator is not None
    assert path.state().committed.epoch == 1
    assert path.coordinator.seen.halted is None
    assert path.coordinator.seen.awaited is not None
    assert planned.inflight.requested in path.coordinator.seen.awaited.reason
    assert path.state().attempts == 1, "waiting costs no further attempt"
    assert not path.storage.exists(".hoodie/lock"), "the clustering needs the lock to complete"
    rest = Rest(path.storage, "by_city", "nonce")
    for _ in range(6):
        rest.ask()
        path.clock.advance(3.0)
        path.step()
    rest.end()
    for _ in range(6):
        path.clock.advance(3.0)
        path.step()
    assert path.state().attempts == 1, "a command that asks for rest does not make it forget the clustering"
    other.execute_clustering(planned)
    path.clock.advance(3.0)
    step_until(path, 1)
    path.tag([(row("a", 2, 2), DataOp.UPDATE, CLUSTERED), (row("b", 2, 0), DataOp.DELETE, CLUSTERED)])
    path.tag([(row("a", 3, 3), DataOp.UPDATE, CLUSTERED), (row("e", 3, 3), DataOp.INSERT, CLUSTERED)])
    path.run_until_idle()
    assert path.rows() == EXPECTED
    assert path.record_index() == {"a": ("d1", CLUSTERED), "c": B, "e": ("d1", CLUSTERED)}
    check_traces(path)


def test_the_wait_for_a_clustering_ends_when_it_is_rolled_back(tmp_path: Path) -> None:
    path, other = planned_second(tmp_path, TableType.MERGE_ON_READ)
    planned = other.plan_clustering(A)
    for _ in range(6):
        path.step()
    assert path.state().committed.epoch == 1
    path.crash()  # a new coordinator finds out by itself
    for _ in range(6):
        path.step()
    assert path.state().committed.epoch == 1
    timeline = f".hoodie/timeline/{planned.inflight.requested}.clustering"
    path.storage.delete(f"{timeline}.inflight")
    path.storage.delete(f"{timeline}.requested")
    path.clock.advance(3.0)
    path.run_until_idle()
    check_end(path)


def test_epochs_that_touch_other_groups_do_not_wait_for_a_clustering(tmp_path: Path) -> None:
    path, other = after_first(tmp_path, TableType.MERGE_ON_READ)
    other.plan_clustering(B)
    second_epoch(path)
    path.run_until_idle()
    assert path.state().voided == []
    assert path.rows() == EXPECTED


def test_compaction_and_clean_between_plan_and_write_lose_no_row(tmp_path: Path) -> None:
    """The files that the epoch was planned on are gone: the group is not new, and gets no first base file."""
    path, other = planned_second(tmp_path, TableType.MERGE_ON_READ)
    other.clean(other.compact(A))
    outcome = path.try_open_attempt()
    assert outcome is not None
    assert outcome.error == "FileGroupChangedError"
    assert GROUP_A in outcome.message
    path.fail_open_attempt(rewind=False)
    path.run_until_idle()
    assert path.state().generation == 0, "the tags hold"
    check_end(path)


@BOTH_TYPES
def test_a_group_that_the_index_knows_and_that_has_no_file_gets_no_first_base_file(
    tmp_path: Path, table_type: TableType
) -> None:
    path, _ = planned_second(tmp_path, table_type)
    for info in path.storage.list("d1"):
        if GROUP_A in info.name:
            path.storage.delete(info.path)
    outcome = path.try_open_attempt()
    assert outcome is not None
    assert outcome.error == "FileGroupChangedError"


@BOTH_TYPES
def test_deleted_groups_are_replaced_too(tmp_path: Path, table_type: TableType) -> None:
    path, other = planned_second(tmp_path, table_type)
    path.write_open_attempt()
    other.delete_groups(A)
    step_until(path, 1)
    path.tag([(row("a", 3, 3), DataOp.INSERT, CLUSTERED), (row("e", 3, 3), DataOp.INSERT, CLUSTERED)])
    path.run_until_idle()
    assert path.rows() == EXPECTED
    check_traces(path)
