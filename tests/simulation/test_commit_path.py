"""Epochs through the product's coordinator and writer tasks, with the coordinator dying at every step."""

from __future__ import annotations

from pathlib import Path

import pytest

from commit_coordinator.failpoints import CoordinatorFailpoint
from epoch_protocol.batches import DataOp
from hudi_format.table_config import TableType
from stream_runtime.failpoint import FailpointAction, FailpointHitError
from tests.simulation.commit_path import CommitPath

GROUP_A = "00000000-0000-4000-8000-00000000000a-0"
GROUP_B = "00000000-0000-4000-8000-00000000000b-0"
BOTH_TYPES = pytest.mark.parametrize("table_type", list(TableType))
BOTH_MODES = pytest.mark.parametrize("ordered", [True, False])


def row(key: str, ts: int, value: int, day: str = "d1") -> dict[str, object]:
    return {"id": key, "day": day, "ts": ts, "v": value}


def first_epoch(path: CommitPath) -> None:
    path.tag([(row("a", 1, 1), DataOp.INSERT, GROUP_A), (row("b", 1, 1), DataOp.INSERT, GROUP_A)])
    path.tag([(row("c", 1, 1, "d2"), DataOp.INSERT, GROUP_B)])


def second_epoch(path: CommitPath) -> None:
    path.tag([(row("a", 2, 2), DataOp.UPDATE, GROUP_A), (row("b", 2, 0), DataOp.DELETE, GROUP_A)])
    path.tag([(row("a", 3, 3), DataOp.UPDATE, GROUP_A), (row("e", 3, 3), DataOp.INSERT, GROUP_A)])


EXPECTED = {"a": row("a", 3, 3), "c": row("c", 1, 1, "d2"), "e": row("e", 3, 3)}
EXPECTED_INDEX = {"a": ("d1", GROUP_A), "c": ("d2", GROUP_B), "e": ("d1", GROUP_A)}


def check_end(path: CommitPath) -> None:
    assert path.rows() == EXPECTED
    assert path.record_index() == EXPECTED_INDEX
    assert not path.storage.exists(".hoodie/lock")
    assert path.storage.list(".hoodie/.heartbeat") == []
    assert path.storage.walk(".hoodie/.temp") == []


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
    coordinator = path.start_coordinator()
    coordinator.step(0.0)
    view = path.desk.wait_for_unreported(0.0)
    assert view is not None
    tasks = path.write_open_attempt()
    assert tasks is not None
    coordinator.seen.problem = (
        (1, 1),
        __import__("commit_coordinator.domain.next_action", fromlist=["x"]).AttemptProblem(
            "disk full", False
        ),
    )
    path.run_until_idle()
    assert path.context is not None
    assert path.context.fold().state.committed.epoch == 1
    assert not path.storage.list(".hoodie/.temp")
    second_epoch(path)
    path.run_until_idle()
    check_end(path)
