"""A coordinator that dies or is frozen at any place: its successor finishes; thawed, it changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.simulation.commit_path import CommitPath
from tests.simulation.scripted_epochs import check_end, first_epoch, second_epoch
from tidemark.hudi_format.table_config import TableType
from tidemark.ledger_client.errors import SupersededError
from tidemark.stream_runtime.failpoint import FailpointHitError

PLACES_MAX = 200


def plain(path: CommitPath) -> None:
    """The second epoch is written and committed."""
    path.run_until_idle()


def voided(path: CommitPath) -> None:
    """The second epoch's first attempt fails at the writer."""
    path.step_coordinator()
    if path.attempts.wait_for_unreported(0.0) is not None:  # no successor has finished it meanwhile
        path.fail_open_attempt(rewind=False)
    path.run_until_idle()


SCENARIOS = pytest.mark.parametrize("scenario", [plain, voided])


def prepared(folder: Path, table_type: TableType) -> CommitPath:
    path = CommitPath(folder, table_type, ordered=True)
    first_epoch(path)
    path.run_until_idle()
    second_epoch(path)
    return path


def die() -> None:
    raise FailpointHitError("here")


@SCENARIOS
def test_a_coordinator_dies_at_every_place(tmp_path: Path, scenario: Callable[[CommitPath], None]) -> None:
    for nth in range(1, PLACES_MAX):
        path = prepared(tmp_path / str(nth), TableType.MERGE_ON_READ)
        path.points.arm(nth, die)
        try:
            scenario(path)
        except FailpointHitError:
            path.crash()
            path.run_until_idle()
            check_end(path)
            continue
        assert path.points.is_armed
        check_end(path)
        assert nth > 25, f"only {path.points.passed}"
        return
    raise AssertionError("the scenario has no end")


@SCENARIOS
def test_a_thawed_coordinator_changes_nothing(tmp_path: Path, scenario: Callable[[CommitPath], None]) -> None:
    """Frozen before every place in turn, thawed when its successor has finished."""
    for nth in range(1, PLACES_MAX):
        path = prepared(tmp_path / str(nth), TableType.MERGE_ON_READ)
        old, points, after = path.coordinator, path.points, dict[str, str]()
        assert old is not None

        def successor_finishes(path: CommitPath = path, after: dict[str, str] = after) -> None:
            path.crash()
            path.run_until_idle()
            after.update(path.files())

        points.arm(nth, successor_finishes)
        try:
            scenario(path)
        except SupersededError:
            assert not points.is_armed
        if points.is_armed:
            assert nth > 25, f"only {points.passed}"
            return
        with pytest.raises(SupersededError):
            old.step(0.0)
        place = points.passed[-1] if points.passed else "?"
        assert path.files() == after, f"frozen at place {nth}, last at {place}"
        check_end(path)
    raise AssertionError("the scenario has no end")
