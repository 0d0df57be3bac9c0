"""What was judged by a table that another engine has changed since is judged anew, or stops loudly."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.commit_path import CommitPath
from tests.simulation.other_engine import OtherEngine
from tests.simulation.scripted_epochs import check_end, check_traces, first_epoch, second_epoch
from tidemark.commit_coordinator.calls.placement import Placement, SuspendedError, Want
from tidemark.commit_coordinator.commit.input_positions import InputPositions
from tidemark.commit_coordinator.commit.trimming import Trimmer
from tidemark.commit_coordinator.domain.actions import Wait
from tidemark.commit_coordinator.errors import DivergedError
from tidemark.commit_coordinator.listeners import CommitFollowUp
from tidemark.commit_coordinator.status.history import EpochHistory
from tidemark.hudi_format import table_keys
from tidemark.hudi_format.commit.instants import instant_path
from tidemark.hudi_format.publication.locate import read_lock
from tidemark.hudi_format.table_config import TableType, update_properties
from tidemark.hudi_format.timeline import load_timeline


def committed_once(folder: Path) -> CommitPath:
    path = CommitPath(folder, TableType.MERGE_ON_READ, ordered=True)
    first_epoch(path)
    path.run_until_idle()
    return path


def test_an_epoch_without_rows_is_not_closed_over_a_foreign_commit(tmp_path: Path) -> None:
    """Deletes of unknown keys are all that such an epoch may hold: the keys may be known now."""
    path = committed_once(tmp_path)
    completion = OtherEngine(path.storage, path.clock, path.action).commit()
    path.tagger.tag([], consumed=2)
    for _ in range(5):
        path.step()
    state = path.state()
    assert (state.generation, state.committed.epoch) == (1, 1)
    assert state.handled == completion
    assert state.tagged == []
    path.tagger.claim_anew(state)
    second_epoch(path)
    path.run_until_idle()
    check_end(path)


@pytest.mark.parametrize("rows", [True, False])
def test_a_commit_of_ours_that_was_undone_stops_loudly_while_running(tmp_path: Path, rows: bool) -> None:
    path = committed_once(tmp_path)
    [ours] = load_timeline(path.storage).completed(path.action)
    path.storage.delete(instant_path(ours))
    if rows:
        second_epoch(path)
    else:
        path.tagger.tag([], consumed=2)
    with pytest.raises(DivergedError, match="a commit of ours was undone"):
        path.step()
    assert path.state().planned is None
    assert read_lock(path.storage) is None


def test_a_reported_attempt_on_a_table_with_changed_indexes_ends_clean(tmp_path: Path) -> None:
    path = committed_once(tmp_path)
    second_epoch(path)
    path.step()
    update_properties(path.storage, {table_keys.METADATA_PARTITIONS: "bloom_filters,files,record_index"})
    for _ in range(6):
        path.step()
    assert path.coordinator is not None
    assert isinstance(path.coordinator.doing, Wait)
    assert "DROP INDEX" in path.coordinator.doing.reason
    assert path.state().planned is None
    check_traces(path)
    update_properties(path.storage, {table_keys.METADATA_PARTITIONS: "files,record_index"})
    path.crash()
    path.run_until_idle()
    check_end(path)


@pytest.mark.parametrize("attempt_is_open", [True, False])
def test_no_file_group_is_handed_out_from_a_rewind_to_the_next_listing(
    tmp_path: Path, attempt_is_open: bool
) -> None:
    """A foreign commit may have replaced file groups: rows that go to one afterwards are never read."""
    path = committed_once(tmp_path)
    placement = Placement(1_000_000, path.ids)
    trimmer = Trimmer(path.client.admin(), {}, path.topics.ledger_partition, path.topics.epochs_partition)
    coordinator = path.start_coordinator()
    coordinator._listeners = [CommitFollowUp(EpochHistory(), placement, trimmer, InputPositions())]
    second_epoch(path)
    if attempt_is_open:
        path.step()
    OtherEngine(path.storage, path.clock, path.action).commit()
    want = [Want("p", 1, 100)]
    while path.state().generation == 0:
        placement.lease(want)
        path.step()
    with pytest.raises(SuspendedError):
        placement.lease(want)


def test_a_wanted_rewind_is_made_once_per_generation(tmp_path: Path) -> None:
    path = committed_once(tmp_path)
    second_epoch(path)
    coordinator = path.start_coordinator()
    coordinator._limits = coordinator._limits.__class__(10_000, 1 << 30, 8)
    coordinator.seen.planned_at_ms = path.clock.now_ms()
    for _ in range(2):
        coordinator.want_rewind("an index range is not there", 0)
    coordinator.step(0.0)
    assert path.state().generation == 1
    coordinator.want_rewind("an index range is not there", 0)
    coordinator.step(0.0)
    assert path.state().generation == 1


def test_who_misses_what_a_later_epoch_has_committed_gets_no_rewind(tmp_path: Path) -> None:
    path = committed_once(tmp_path)
    second_epoch(path)
    coordinator = path.start_coordinator()
    coordinator._limits = coordinator._limits.__class__(10_000, 1 << 30, 8)
    coordinator.seen.planned_at_ms = path.clock.now_ms()
    for epoch, generation in ((0, 0), (1, 1)):
        coordinator.want_rewind("an index range is not there", 0, epoch)
        coordinator.step(0.0)
        assert path.state().generation == generation


def test_a_rewind_that_was_wanted_is_served_by_the_one_that_an_attempt_is_given_up_with(
    tmp_path: Path,
) -> None:
    path = committed_once(tmp_path)
    second_epoch(path)
    coordinator = path.start_coordinator()
    path.step_coordinator()
    coordinator.want_rewind("an index range is not there", 0)
    path.fail_open_attempt(rewind=True)
    for _ in range(6):
        path.step_coordinator()
    assert path.state().generation == 1
