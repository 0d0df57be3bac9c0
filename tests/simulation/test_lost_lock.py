"""The lock vanishes after the decision, and another engine uses the gap: take back, or stop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from testing.clock import ManualClock
from tests.simulation.commit_path import CommitPath
from tests.simulation.other_engine import OtherEngine
from tests.simulation.scripted_epochs import check_end
from tests.simulation.test_other_engines import planned_second, tag_anew
from tests.simulation.world.script import parse
from tests.simulation.world.world import run_script
from tidemark.commit_coordinator.errors import DivergedError
from tidemark.commit_coordinator.failpoints import CoordinatorFailpoint
from tidemark.epoch_protocol.entries import AttemptVoided, CommitDecided
from tidemark.epoch_protocol.fold import Verdict
from tidemark.hudi_format.publication.table_lock import LOCK_PATH
from tidemark.hudi_format.table_config import TableType
from tidemark.hudi_format.timeline import DATA_ROOT, METADATA_TABLE_ROOT, load_timeline
from tidemark.ledger_client.errors import SupersededError
from tidemark.stream_runtime.failpoint import FailpointAction, FailpointHitError

PLACES_MAX = 60
BOTH_TABLES = pytest.mark.parametrize("root", [DATA_ROOT, METADATA_TABLE_ROOT])
LIVES = pytest.mark.parametrize("coordinator", ["lives", "dies"])


def decided_second(folder: Path) -> tuple[CommitPath, OtherEngine]:
    """The second epoch is decided, nothing of it is committed; then somebody deletes the lock."""
    path, other = planned_second(folder, TableType.MERGE_ON_READ)
    path.write_open_attempt()
    path.step_coordinator()
    assert path.state().decided is not None
    lose_lock(path)
    return path, other


def lose_lock(path: CommitPath) -> None:
    """As somebody does who takes it for a dead writer's."""
    path.storage.delete_tree(LOCK_PATH)
    path.clock.advance(1.0)


def applied(path: CommitPath) -> list[CommitDecided | AttemptVoided]:
    """What was decided and taken back of the second epoch, in order."""
    return [
        each.entry
        for each in path.fold_reader().catch_up()
        if isinstance(each.entry, CommitDecided | AttemptVoided)
        and each.verdict is Verdict.APPLIED
        and each.entry.epoch == 2
    ]


def decisions(path: CommitPath) -> list[CommitDecided]:
    """The decisions about the second epoch, in order."""
    return [each for each in applied(path) if isinstance(each, CommitDecided)]


def committed_behind(path: CommitPath, scheduled: str) -> None:
    """Both commits of the second epoch complete after what was scheduled, each once."""
    instant = path.state().committed.instant
    assert instant is not None
    for root in (DATA_ROOT, METADATA_TABLE_ROOT):
        found = load_timeline(path.storage, root).find(instant)
        assert found is not None
        assert found.completion is not None
        assert found.completion > scheduled


@LIVES
def test_a_lock_that_vanished_is_taken_again_and_the_decision_stands(
    tmp_path: Path, coordinator: str
) -> None:
    path, _ = decided_second(tmp_path)
    if coordinator == "dies":
        path.crash()
    path.run_until_idle()
    assert len(decisions(path)) == 1
    check_end(path)


@BOTH_TABLES
@LIVES
def test_a_compaction_that_was_scheduled_in_the_gap_takes_the_decision_back(
    tmp_path: Path, coordinator: str, root: str
) -> None:
    """A log that completes before a compaction was scheduled would lie in the slice that this replaces. The
    tags hold.
    """
    path, other = decided_second(tmp_path)
    scheduled = other.schedule_compaction(root)
    if coordinator == "dies":
        path.crash()
    path.run_until_idle()
    assert path.state().generation == 0
    first, second = decisions(path)
    assert first.data_completion < scheduled < second.metadata_completion
    committed_behind(path, scheduled)
    check_end(path)


def test_a_compaction_scheduled_before_the_decided_times_lets_them_stand(tmp_path: Path) -> None:
    """By a clock that is behind ours: our files belong to the slice that it began all the same."""
    path, _ = planned_second(tmp_path, TableType.MERGE_ON_READ)
    behind = OtherEngine(path.storage, ManualClock(path.clock.now_ms()), path.action)
    path.write_open_attempt()
    path.clock.advance(5.0)
    path.step_coordinator()
    path.storage.delete_tree(LOCK_PATH)
    scheduled = behind.schedule_compaction(DATA_ROOT)
    decided = path.state().decided
    assert decided is not None
    assert scheduled < decided.metadata_completion
    path.run_until_idle()
    assert len(decisions(path)) == 1
    committed_behind(path, scheduled)
    check_end(path)


def test_a_metadata_commit_that_was_begun_is_taken_back_with_its_files(tmp_path: Path) -> None:
    """The metadata commit was begun, its `files` log written, before the lock vanished."""
    path, other = planned_second(tmp_path, TableType.MERGE_ON_READ)
    path.write_open_attempt()
    path.failpoints.arm(CoordinatorFailpoint.BEFORE_METADATA_COMPLETED, 1, FailpointAction.RAISE)
    with pytest.raises(FailpointHitError):
        path.run_until_idle()
    planned = path.state().planned
    assert planned is not None
    path.crash()
    lose_lock(path)
    scheduled = other.schedule_compaction(METADATA_TABLE_ROOT)
    path.run_until_idle()
    assert len(decisions(path)) == 2
    assert not [name for name in path.files() if str(planned.instant) in name and "/timeline/" not in name]
    committed_behind(path, scheduled)
    check_end(path)


def test_the_gap_may_be_used_again_and_again(tmp_path: Path) -> None:
    path, other = decided_second(tmp_path)
    for _ in range(3):
        other.schedule_compaction(DATA_ROOT)
        path.failpoints.arm(CoordinatorFailpoint.BEFORE_METADATA_COMPLETED, 1, FailpointAction.RAISE)
        with pytest.raises(FailpointHitError):
            path.run_until_idle()
        path.crash()
        lose_lock(path)
    path.run_until_idle()
    times = [each.data_completion for each in decisions(path)]
    assert len(times) == 4
    assert times == sorted(set(times))
    check_end(path)


@LIVES
def test_a_commit_of_another_engine_in_the_gap_takes_the_decision_back(
    tmp_path: Path, coordinator: str
) -> None:
    """Its rows may be those that our tags were made of: finishing would lose or double them."""
    path, other = decided_second(tmp_path)
    completion = other.commit()
    if coordinator == "dies":
        path.crash()
    tag_anew(path, 1)
    [voided] = [each for each in applied(path) if isinstance(each, AttemptVoided)]
    assert voided.undecides != ""
    assert "lock was lost" in voided.reason
    state = path.state()
    assert (state.decided, state.handled) == (None, completion)
    path.run_until_idle()
    check_end(path)


def test_our_instant_rolled_back_in_the_gap_takes_the_decision_back(tmp_path: Path) -> None:
    """Completing the metadata commit alone would make its entries count: no pending instant hides them."""
    path, other = decided_second(tmp_path)
    planned = path.state().planned
    assert planned is not None
    other.roll_back(planned.instant or "")
    path.crash()
    tag_anew(path, 1)
    path.run_until_idle()
    assert path.state().committed.instant != planned.instant
    check_end(path)


@pytest.mark.parametrize("what", ["compaction", "commit", "rollback"])
def test_once_the_metadata_commit_is_completed_it_stops_loudly_and_changes_nothing(
    tmp_path: Path, what: str
) -> None:
    path, other = planned_second(tmp_path, TableType.MERGE_ON_READ)
    path.write_open_attempt()
    path.failpoints.arm(CoordinatorFailpoint.AFTER_METADATA_COMMIT, 1, FailpointAction.RAISE)
    with pytest.raises(FailpointHitError):
        path.run_until_idle()
    path.crash()
    lose_lock(path)
    if what == "compaction":
        other.schedule_compaction(DATA_ROOT)
    elif what == "commit":
        other.commit()
    else:
        planned = path.state().planned
        assert planned is not None
        other.schedule_rollback(planned.instant or "")
    path.start_coordinator()
    before = {name: digest for name, digest in path.files().items() if "/tidemark/" not in name}
    with pytest.raises(DivergedError, match="--new-ledger"):
        path.run_until_idle()
    after = {name: digest for name, digest in path.files().items() if "/tidemark/" not in name}
    assert {name for name in after if not name.startswith(LOCK_PATH)} == set(before)
    assert path.state().committed.epoch == 1


def act_on(other: OtherEngine, what: str) -> None:
    if what == "compaction":
        other.schedule_compaction(DATA_ROOT)
    else:
        other.commit()


def finish_after(what: str, path: CommitPath) -> None:
    """Only a commit has all tagged anew."""
    state = path.state()
    is_gone = state.generation == 0 or (state.committed.epoch == 1 and not state.tagged)
    if what == "commit" and is_gone:
        tag_anew(path, 1)
    path.run_until_idle()


@pytest.mark.parametrize("what", ["compaction", "commit"])
def test_taking_back_may_be_cut_anywhere(tmp_path: Path, what: str) -> None:
    """The coordinator that takes a decision back dies before every change that it makes."""

    def die() -> None:
        raise FailpointHitError("here")

    for nth in range(1, PLACES_MAX):
        path, other = decided_second(tmp_path / str(nth))
        act_on(other, what)
        path.points.arm(nth, die)
        try:
            finish_after(what, path)
        except FailpointHitError:
            path.crash()
            finish_after(what, path)
            check_end(path)
            continue
        assert path.points.is_armed
        check_end(path)
        assert nth > 10, path.points.passed
        return
    raise AssertionError("the scenario has no end")


def test_a_coordinator_frozen_under_the_former_decision_changes_nothing(tmp_path: Path) -> None:
    """Frozen before each of its changes, thawed when its successor has taken back and finished."""
    for nth in range(1, PLACES_MAX):
        path, other = planned_second(tmp_path / str(nth), TableType.MERGE_ON_READ)
        path.write_open_attempt()
        path.step_coordinator()
        old, points, after = path.coordinator, path.points, dict[str, str]()
        assert old is not None

        def successor(
            path: CommitPath = path, other: OtherEngine = other, after: dict[str, str] = after
        ) -> None:
            path.crash()
            instant = path.state().planned
            begun = (
                load_timeline(path.storage, METADATA_TABLE_ROOT).find(instant.instant or "")
                if instant
                else None
            )
            if begun is None or not begun.is_completed:
                if path.storage.exists(LOCK_PATH):
                    lose_lock(path)
                other.schedule_compaction(DATA_ROOT)
            path.run_until_idle()
            after.update(path.files())

        points.arm(nth, successor)
        stopped = _run_until_fenced(path.run_until_idle)
        if points.is_armed:
            assert nth > 10, points.passed
            return
        assert stopped or path.coordinator is not old
        with pytest.raises(SupersededError):
            old.step(0.0)
        assert path.files() == after, f"frozen before {points.passed[-1]}"
        check_end(path)
    raise AssertionError("the scenario has no end")


def _run_until_fenced(run: Callable[[], None]) -> bool:
    try:
        run()
    except SupersededError:
        return True
    return False


@pytest.mark.parametrize("cut", ["fail-before", "fail-after", "crash"])
def test_nobody_gets_in_while_an_epoch_that_is_committed_in_the_metadata_table_only_is_taken_over(
    cut: str,
) -> None:
    """The successor takes the lock over, and the storage refuses, or it dies itself."""
    rounds = 6 * "round\n"
    outcome = run_script(
        parse(
            f"""
setup shards=1 lanes=1 inputs=1 assigners=1 interval_ms=0
round
feed up k1 d0 5
hurry
crash coordinator 1 after_metadata_commit
{rounds}
step coordinator
step coordinator
{cut} coordinator 1 rename_over
step coordinator
foreign empty
"""
        )
    )
    assert outcome.violations == ()
    assert "foreign empty" not in outcome.reached
