"""Other engines beside us: their commits and rollbacks void the attempt, and the epoch is tagged anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from testing.clock import ManualClock
from tests.simulation.commit_path import ATTEMPTS_MAX, CommitPath
from tests.simulation.other_engine import OtherEngine
from tests.simulation.scripted_epochs import (
    GROUP_A,
    check_end,
    check_traces,
    first_epoch,
    row,
    second_epoch,
)
from tidemark.epoch_protocol.batches import DataOp
from tidemark.hudi_format.publication.locate import read_lock
from tidemark.hudi_format.publication.table_lock import LOCK_PATH
from tidemark.hudi_format.table_config import TableType
from tidemark.hudi_format.timeline import Action, load_timeline

BOTH_TYPES = pytest.mark.parametrize("table_type", list(TableType))


def planned_second(folder: Path, table_type: TableType) -> tuple[CommitPath, OtherEngine]:
    """The second epoch is planned and written, not yet reported."""
    path = CommitPath(folder, table_type, ordered=True)
    first_epoch(path)
    path.run_until_idle()
    second_epoch(path)
    path.step_coordinator()
    return path, OtherEngine(path.storage, path.clock, path.action)


def tag_anew(path: CommitPath, generation: int) -> None:
    """What assigners do after a rewind."""
    for _ in range(10):
        path.step()
        state = path.state()
        if state.generation == generation:
            break
    assert state.generation == generation
    assert state.tagged == []
    path.tagger.claim_anew(state)
    second_epoch(path)


def lose_three_attempts(path: CommitPath, other: OtherEngine) -> None:
    """To commits of another engine; the fourth is planned then."""
    for generation in range(1, 4):
        assert read_lock(path.storage) is None
        path.write_open_attempt()
        other.commit()
        tag_anew(path, generation)
        while path.state().planned is None:
            path.step_coordinator()


@BOTH_TYPES
def test_a_foreign_commit_between_plan_and_decision_rewinds(tmp_path: Path, table_type: TableType) -> None:
    path, other = planned_second(tmp_path, table_type)
    path.write_open_attempt()
    completion = other.commit()
    tag_anew(path, 1)
    assert path.state().handled == completion
    path.run_until_idle()
    state = path.state()
    assert (state.committed.epoch, state.attempts, state.generation) == (2, 0, 1)
    check_end(path)


def test_a_foreign_commit_before_the_plan_rewinds_first(tmp_path: Path) -> None:
    path = CommitPath(tmp_path, TableType.MERGE_ON_READ, ordered=True)
    first_epoch(path)
    path.run_until_idle()
    OtherEngine(path.storage, path.clock, path.action).commit()
    second_epoch(path)
    tag_anew(path, 1)
    path.run_until_idle()
    assert path.state().voided == []
    check_end(path)


@BOTH_TYPES
@pytest.mark.parametrize("how", ["rolled back", "rollback scheduled"])
@pytest.mark.parametrize("coordinator", ["lives", "dies"])
def test_our_pending_instant_is_rolled_back_by_another_engine(
    tmp_path: Path, table_type: TableType, how: str, coordinator: str
) -> None:
    path, other = planned_second(tmp_path, table_type)
    planned = path.state().planned
    assert planned is not None
    assert planned.instant is not None
    (other.roll_back if how == "rolled back" else other.schedule_rollback)(planned.instant)
    if coordinator == "dies":
        path.crash()
    tag_anew(path, 1)
    path.run_until_idle()
    committed = path.state().committed
    assert committed.epoch == 2
    assert committed.instant != planned.instant
    check_end(path)


@BOTH_TYPES
def test_a_rollback_whose_time_lies_before_the_instant_that_it_names_counts(
    tmp_path: Path, table_type: TableType
) -> None:
    """The other engine's clock is five seconds behind ours. Were our instant completed below its rollback,
    whoever finishes that rollback would delete the rows.
    """
    path, _ = planned_second(tmp_path, table_type)
    planned = path.state().planned
    assert planned is not None
    assert planned.instant is not None
    behind = ManualClock(path.clock.now_ms() - 5_000)
    OtherEngine(path.storage, behind, path.action, follows=False).schedule_rollback(planned.instant)
    (rollback,) = load_timeline(path.storage).pending(Action.ROLLBACK)
    assert rollback.requested < planned.instant
    tag_anew(path, 1)
    path.run_until_idle()
    assert path.state().committed.epoch == 2
    assert path.state().committed.instant != planned.instant
    check_end(path)


@pytest.mark.parametrize("left", [["rollback.requested"], ["rollback.requested", "rollback.inflight"]])
def test_a_rollback_whose_plan_was_never_written_is_passed_over(tmp_path: Path, left: list[str]) -> None:
    """Its writer died years ago, between the file's name and its content. Hudi passes it over as well."""
    path, _ = planned_second(tmp_path, TableType.MERGE_ON_READ)
    for suffix in left:
        path.storage.create(f".hoodie/timeline/20200101000000000.{suffix}", b"")
    path.crash()
    path.run_until_idle()
    assert path.state().committed.epoch == 2
    for suffix in left:
        path.storage.delete(f".hoodie/timeline/20200101000000000.{suffix}")
    check_end(path)


def test_from_the_fourth_attempt_on_the_lock_is_held_from_plan_to_commit(tmp_path: Path) -> None:
    path, other = planned_second(tmp_path, TableType.MERGE_ON_READ)
    lose_three_attempts(path, other)
    state = path.state()
    assert state.planned is not None
    assert state.planned.attempt == 4
    assert path.storage.exists(LOCK_PATH)
    path.run_until_idle()
    check_end(path)


def test_the_held_lock_is_given_back_when_its_attempt_is_lost(tmp_path: Path) -> None:
    """Tagging anew may take long: other engines must not wait for it."""
    path, other = planned_second(tmp_path, TableType.MERGE_ON_READ)
    lose_three_attempts(path, other)
    assert path.storage.exists(LOCK_PATH)
    path.fail_open_attempt(rewind=True)
    for _ in range(5):
        path.step()
    assert path.state().generation == 4
    check_traces(path)
    tag_anew(path, 4)
    path.run_until_idle()
    check_end(path)


def test_after_too_many_attempts_it_halts_clean_and_a_restart_goes_on(tmp_path: Path) -> None:
    path, _ = planned_second(tmp_path, TableType.MERGE_ON_READ)
    for _ in range(ATTEMPTS_MAX):
        path.fail_open_attempt(rewind=False)
        for _ in range(3):
            path.step_coordinator()
    assert path.coordinator is not None
    assert "attempts" in (path.coordinator.seen.halted or "")
    assert path.state().planned is None
    check_traces(path)
    path.step()
    assert path.state().planned is None
    path.crash()
    path.run_until_idle()
    check_end(path)


def test_another_writers_lock_is_waited_for(tmp_path: Path) -> None:
    path, _ = planned_second(tmp_path, TableType.MERGE_ON_READ)
    path.write_open_attempt()
    path.storage.create(LOCK_PATH, b"")
    for _ in range(3):
        path.step_coordinator()
    assert path.state().decided is None
    path.storage.delete(LOCK_PATH)
    path.run_until_idle()
    check_end(path)


def test_a_commit_beside_the_lock_after_the_decision_takes_it_back(tmp_path: Path) -> None:
    """Whoever ignores the lock: as long as nothing is committed under the decision, tagging anew is right."""
    path, other = planned_second(tmp_path, TableType.MERGE_ON_READ)
    path.write_open_attempt()
    path.step_coordinator()
    assert path.state().decided is not None
    path.crash()
    other.commit()
    tag_anew(path, 1)
    path.run_until_idle()
    check_end(path)


def test_epochs_without_rows_are_closed_by_the_decisions_alone(tmp_path: Path) -> None:
    path = CommitPath(tmp_path, TableType.MERGE_ON_READ, ordered=True)
    path.tagger.tag([], consumed=3)
    path.run_until_idle()
    assert path.state().committed.epoch == 1
    assert path.state().committed.instant is None
    assert not [i for i in path.storage.list(".hoodie/timeline") if not i.is_dir]
    first_epoch(path)
    path.run_until_idle()
    instant = path.state().committed.instant
    path.tagger.tag([], consumed=4)
    path.run_until_idle()
    state = path.state()
    assert (state.committed.epoch, state.committed.instant) == (3, instant)
    assert state.committed.keyed_next == {"0": 10}
    second_epoch(path)
    path.run_until_idle()
    check_end(path)


def test_a_key_that_comes_and_goes_within_an_epoch_leaves_no_file(tmp_path: Path) -> None:
    path = CommitPath(tmp_path, TableType.COPY_ON_WRITE, ordered=True)
    path.tag([(row("x", 1, 1), DataOp.INSERT, GROUP_A), (row("x", 2, 0), DataOp.DELETE, GROUP_A)])
    path.run_until_idle()
    assert path.rows() == {}
    assert path.record_index() == {}
    check_traces(path)


def test_tags_of_an_older_generation_do_not_count(tmp_path: Path) -> None:
    path, other = planned_second(tmp_path, TableType.MERGE_ON_READ)
    path.write_open_attempt()
    other.commit()
    for _ in range(4):
        path.step()
    assert path.state().generation == 1
    second_epoch(path)
    assert path.state().tagged == []
    tag_anew(path, 1)
    path.run_until_idle()
    check_end(path)
