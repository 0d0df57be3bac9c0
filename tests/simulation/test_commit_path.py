"""Epochs through the product's coordinator and writer tasks, with the coordinator dying at every step."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.commit_path import CommitPath, MemoryWorker
from tests.simulation.scripted_epochs import check_end, first_epoch, second_epoch
from tidemark.commit_coordinator.commit import commit_effects
from tidemark.commit_coordinator.failpoints import SERVICE_FAILPOINTS, CoordinatorFailpoint
from tidemark.hudi_format.commit.markers import Marker, create_marker_list, delete_markers, marker_folder
from tidemark.hudi_format.errors import FencedOutError
from tidemark.hudi_format.publication.posix import PosixAttempt, PosixTerm
from tidemark.hudi_format.storage.base import FolderStorage
from tidemark.hudi_format.table_config import TableType
from tidemark.stream_runtime.failpoint import FailpointAction, FailpointHitError
from tidemark.stream_writer.tasks import run_task

BOTH_TYPES = pytest.mark.parametrize("table_type", list(TableType))
BOTH_MODES = pytest.mark.parametrize("ordered", [True, False])


@BOTH_TYPES
@BOTH_MODES
def test_two_epochs_are_in_table_and_index(tmp_path: Path, table_type: TableType, ordered: bool) -> None:
    path = CommitPath(tmp_path, table_type, ordered=ordered)
    first_epoch(path)
    path.run_until_idle()
    assert set(path.rows()) == {"a", "b", "c"}
    second_epoch(path)
    path.run_until_idle()
    check_end(path)


@BOTH_TYPES
@pytest.mark.parametrize("epoch", [1, 2])
@pytest.mark.parametrize(
    "failpoint",
    [
        f
        for f in CoordinatorFailpoint
        if f not in (CoordinatorFailpoint.AFTER_VOIDED, CoordinatorFailpoint.AFTER_ROLLED_BACK)
        and f not in SERVICE_FAILPOINTS
    ],
)
def test_coordinator_dies_at_each_step_and_the_next_finishes(
    tmp_path: Path, table_type: TableType, failpoint: CoordinatorFailpoint, epoch: int
) -> None:
    path = CommitPath(tmp_path, table_type, ordered=True)
    for number, feed in ((1, first_epoch), (2, second_epoch)):
        feed(path)
        if number == epoch:
            path.failpoints.arm(failpoint, 1, FailpointAction.RAISE)
            with pytest.raises(FailpointHitError):
                path.run_until_idle()
            path.crash()
        path.run_until_idle()
    check_end(path)


@BOTH_TYPES
def test_epoch_is_written_again_after_its_attempt_was_voided(tmp_path: Path, table_type: TableType) -> None:
    path = CommitPath(tmp_path, table_type, ordered=True)
    first_epoch(path)
    path.start_coordinator().step(0.0)
    for task in path.run_open_attempt():
        run_task(task, MemoryWorker(path.client, path.clock))
    path.fail_open_attempt(rewind=False)
    path.run_until_idle()
    assert path.context is not None
    assert path.context.fold().state.committed.epoch == 1
    assert not path.storage.list(".hoodie/.temp")
    second_epoch(path)
    path.run_until_idle()
    check_end(path)


def test_a_task_that_announces_a_file_while_an_epoch_is_cleaned_up_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark ran it a second time, or froze it: its epoch is committed without it."""
    tokens, late = list[str](), list[str]()
    open_attempt = PosixTerm.open_attempt

    def opened(term: PosixTerm, epoch: int, attempt: int) -> str:
        tokens.append(open_attempt(term, epoch, attempt))
        return tokens[-1]

    def deleted(storage: FolderStorage, instant: str) -> int:
        count = delete_markers(storage, instant)
        marker = Marker(f"d0/f-0_9-0-0_{instant}.parquet", "CREATE")
        with pytest.raises(FencedOutError):
            create_marker_list(PosixAttempt(storage, tokens[-1]), instant, 9, [marker])
        late.append(instant)
        return count

    monkeypatch.setattr(PosixTerm, "open_attempt", opened)
    monkeypatch.setattr(commit_effects, "delete_markers", deleted)
    path = CommitPath(tmp_path, TableType.MERGE_ON_READ, ordered=True)
    first_epoch(path)
    path.run_until_idle()
    assert len(late) == 1
    assert not path.storage.exists(marker_folder(late[0]))
