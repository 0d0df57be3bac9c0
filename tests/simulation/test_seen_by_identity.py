"""Another engine with a clock of its own: what it did is found by identity, whatever its times say."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from testing.clock import ManualClock
from tests.simulation.commit_path import CommitPath
from tests.simulation.other_engine import OtherEngine
from tests.simulation.scripted_epochs import check_end, first_epoch, second_epoch
from tests.simulation.test_other_engines import planned_second, tag_anew
from tidemark.commit_coordinator.commit.table_state import load_timelines
from tidemark.commit_coordinator.commit.timeline_look import look
from tidemark.commit_coordinator.failpoints import CoordinatorFailpoint
from tidemark.epoch_protocol.entries import (
    BatchShuffled,
    EpochCommitted,
    LanesClaimed,
    TimelineSeen,
    TransactionBegun,
    TransactionTagged,
)
from tidemark.epoch_protocol.fold import Fold
from tidemark.epoch_protocol.seen import completion_of
from tidemark.epoch_protocol.state import FoldState
from tidemark.hudi_format.commit.instants import instant_path
from tidemark.hudi_format.table_config import TableType
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, load_timeline
from tidemark.hudi_format.timeline.identity import judged_instants
from tidemark.stream_runtime.failpoint import FailpointAction, FailpointHitError

BOTH_TYPES = pytest.mark.parametrize("table_type", list(TableType))


def first_committed(folder: Path, table_type: TableType = TableType.MERGE_ON_READ) -> CommitPath:
    path = CommitPath(folder, table_type, ordered=True)
    first_epoch(path)
    path.run_until_idle()
    return path


def behind(path: CommitPath) -> OtherEngine:
    """Its clock shows what ours shows now, for ever."""
    return OtherEngine(path.storage, ManualClock(path.clock.now_ms()), path.action, follows=False)


def one_more_epoch(path: CommitPath) -> None:
    """Nothing of it is left in the rows."""
    path.tagger.tag([], consumed=1)
    path.run_until_idle()


@BOTH_TYPES
def test_a_commit_that_completed_below_what_was_seen_rewinds_and_ends_all_stamps(
    tmp_path: Path, table_type: TableType
) -> None:
    path = first_committed(tmp_path, table_type)
    other = behind(path)
    path.clock.advance(15.0)
    second_epoch(path)
    path.run_until_idle()
    newest = path.state().handled
    assert other.commit() < newest
    path.tagger.tag([], consumed=1)
    for _ in range(5):
        path.step()
    state = path.state()
    assert (state.generation, state.stamps_from, state.committed.epoch) == (1, 1, 2)
    assert state.handled == newest
    path.tagger.claim_anew(state)
    one_more_epoch(path)
    assert (path.state().generation, path.state().committed.epoch) == (1, 3)


def test_a_commit_between_plan_and_decision_with_an_older_time_voids_the_attempt(tmp_path: Path) -> None:
    path = first_committed(tmp_path)
    other = behind(path)
    path.clock.advance(15.0)
    second_epoch(path)
    path.step_coordinator()
    path.write_open_attempt()
    assert other.commit() < (path.state().planned.instant or "")
    tag_anew(path, 1)
    path.run_until_idle()
    check_end(path)


def test_a_commit_above_all_that_was_seen_leaves_the_stamps(tmp_path: Path) -> None:
    path, other = planned_second(tmp_path, TableType.MERGE_ON_READ)
    path.write_open_attempt()
    other.commit()
    tag_anew(path, 1)
    assert path.state().stamps_from == 0
    path.run_until_idle()
    check_end(path)


def test_a_foreign_commit_is_handled_once_and_the_next_epochs_pass(tmp_path: Path) -> None:
    """Also by a coordinator that starts anew, and reads what was seen from the topics."""
    path, other = planned_second(tmp_path, TableType.MERGE_ON_READ)
    path.write_open_attempt()
    other.commit()
    tag_anew(path, 1)
    path.run_until_idle()
    path.crash()
    one_more_epoch(path)
    state = path.state()
    assert (state.generation, state.committed.epoch) == (1, 3)
    assert state.seen is not None
    assert state.seen.names == set(judged_instants(load_timeline(path.storage)))


@pytest.mark.parametrize("coordinator", ["lives", "dies"])
def test_a_completed_commit_that_another_engine_rolls_back_rewinds(tmp_path: Path, coordinator: str) -> None:
    path, other = planned_second(tmp_path, TableType.MERGE_ON_READ)
    path.write_open_attempt()
    completion = other.commit()
    tag_anew(path, 1)
    path.run_until_idle()
    [foreign] = [i for i in load_timeline(path.storage).completed() if i.completion == completion]
    other.undo(foreign.requested)
    if coordinator == "dies":
        path.crash()
    path.tagger.tag([], consumed=1)
    for _ in range(5):
        path.step()
    state = path.state()
    assert (state.generation, state.stamps_from, state.committed.epoch) == (2, 2, 2)
    path.tagger.claim_anew(state)
    one_more_epoch(path)
    assert path.state().generation == 2


def test_a_commit_that_nobody_saw_before_it_was_rolled_back_rewinds_all_the_same(tmp_path: Path) -> None:
    """An assigner may have opened its lanes in between."""
    path = first_committed(tmp_path)
    other = OtherEngine(path.storage, path.clock, path.action)
    completion = other.commit()
    [foreign] = [i for i in load_timeline(path.storage).completed() if i.completion == completion]
    other.undo(foreign.requested)
    second_epoch(path)
    tag_anew(path, 1)
    assert path.state().stamps_from == 1
    path.run_until_idle()
    check_end(path)


def test_our_own_rollback_of_a_voided_attempt_is_no_surprise(tmp_path: Path) -> None:
    path, _ = planned_second(tmp_path, TableType.MERGE_ON_READ)
    path.fail_open_attempt(rewind=False)
    path.run_until_idle()
    path.crash()
    one_more_epoch(path)
    assert path.state().generation == 0
    check_end(path)


def test_compactions_and_cleans_rewind_nothing(tmp_path: Path) -> None:
    path, other = planned_second(tmp_path, TableType.MERGE_ON_READ)
    other.clean()
    path.run_until_idle()
    other.clean()
    one_more_epoch(path)
    assert path.state().generation == 0


def as_folded_before(path: CommitPath) -> FoldState:
    """What the same topics come to when a version wrote them that kept no identities."""
    fold = Fold()
    for each in path.fold_reader().catch_up():
        entry = each.entry
        if isinstance(entry, EpochCommitted):
            entry = msgspec.structs.replace(entry, action="")
        if isinstance(entry, LanesClaimed | TransactionBegun | BatchShuffled | TransactionTagged):
            fold.apply_ledger(each.offset, entry)
        elif not isinstance(entry, TimelineSeen):
            fold.apply_decision(each.offset, entry)
    return fold.state


def test_a_ledger_of_a_version_without_identities_takes_over_what_it_had_handled(tmp_path: Path) -> None:
    path, other = planned_second(tmp_path, TableType.MERGE_ON_READ)
    path.write_open_attempt()
    other.commit()
    tag_anew(path, 1)
    path.run_until_idle()
    state = as_folded_before(path)
    assert (state.committed, state.seen) == (path.state().committed, None)
    found = look(path.storage, load_timelines(path.storage), state)
    assert (found.surprises, found.forget_stamps, len(found.known or ())) == ((), False, 4)
    later = other.commit()
    found = look(path.storage, load_timelines(path.storage), state)
    assert [completion_of(name) for name in found.surprises] == [later]
    assert len(found.known or ()) == 4


@pytest.mark.parametrize("failpoint", ["AFTER_METADATA_COMMIT", "AFTER_DATA_COMMIT"])
def test_a_version_that_writes_other_bytes_finishes_what_another_began(
    tmp_path: Path, failpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = planned_second(tmp_path, TableType.MERGE_ON_READ)
    path.write_open_attempt()
    path.failpoints.arm(CoordinatorFailpoint[failpoint], 1, FailpointAction.RAISE)
    with pytest.raises(FailpointHitError):
        path.run_until_idle()
    path.crash()
    planned = path.state().planned
    assert planned is not None
    for root in (METADATA_TABLE_ROOT, ".hoodie"):
        found = load_timeline(path.storage, root).find(planned.instant or "")
        if found is not None:
            name = instant_path(found, root)
            path.storage.replace(name, path.storage.read(name) + b" ")
    path.run_until_idle()
    assert path.state().committed.epoch == 2


def test_a_half_made_metadata_commit_of_another_version_is_taken_back(tmp_path: Path) -> None:
    """Nothing is completed: readers saw nothing of it."""
    path, _ = planned_second(tmp_path, TableType.MERGE_ON_READ)
    path.write_open_attempt()
    path.failpoints.arm(CoordinatorFailpoint.BEFORE_METADATA_COMPLETED, 1, FailpointAction.RAISE)
    with pytest.raises(FailpointHitError):
        path.run_until_idle()
    path.crash()
    planned = path.state().planned
    assert planned is not None
    for info in path.storage.list(".hoodie/metadata/files"):
        if planned.instant and planned.instant in info.name:
            path.storage.replace(info.path, path.storage.read(info.path) + b" ")
    tag_anew(path, 1)
    path.run_until_idle()
    check_end(path)
