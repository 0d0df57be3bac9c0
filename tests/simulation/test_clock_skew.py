"""Other writers' clocks are late by up to 200 ms, and epochs come without a pause."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.simulation.commit_path import CommitPath
from tests.simulation.scripted_epochs import GROUP_A, first_epoch, row
from tidemark.commit_coordinator.commit.attempt_effects import free_lock
from tidemark.epoch_protocol.batches import DataOp
from tidemark.hudi_format.commit.foreign_writers import foreign_writer_options
from tidemark.hudi_format.model import instant_to_ms, is_bootstrap_instant
from tidemark.hudi_format.publication.locate import read_lock
from tidemark.hudi_format.publication.table_lock import CLOCK_SKEW_MS, FREE_MS, LOCK_PATH
from tidemark.hudi_format.table_config import TableType
from tidemark.hudi_format.timeline import load_timeline

TRY_MS = int(foreign_writer_options("")["hoodie.write.lock.client.wait_time_ms_between_retry"])
EPOCHS = 8
STEP_MS = 5


class BusyTable:
    """Epochs follow on each other without a pause; another writer tries to get the lock all the time."""

    def __init__(self, folder: Path, writes_ms: int) -> None:
        self.path = CommitPath(folder, TableType.MERGE_ON_READ, ordered=True)
        self.coordinator = self.path.start_coordinator()
        self.writes_ms = writes_ms
        self.free: list[int] = []
        self.late: list[int] = []

    def pass_time(self, duration_ms: int) -> None:
        for _ in range(duration_ms // STEP_MS):
            self.path.clock.advance(STEP_MS / 1000)
            self.coordinator.step(0.0)
            if read_lock(self.path.storage) is None:
                self.free.append(self.path.clock.now_ms())

    def newest_ms(self) -> int:
        """The newest time on the data timeline."""
        times = load_timeline(self.path.storage).times()
        return max((instant_to_ms(each) for each in times if not is_bootstrap_instant(each)), default=0)

    def commit(self, number: int) -> None:
        """One epoch from what is tagged to its commit; with the next epoch's input there at once."""
        self.path.tag([(row("a", number, number), DataOp.UPDATE, GROUP_A)])
        assert self.path.context is not None
        before = self.path.context.fold().state.committed.epoch
        opened = False
        for _ in range(200):
            self.pass_time(STEP_MS)
            state = self.path.context.fold().state
            if state.committed.epoch > before:
                return
            if state.planned is not None and not opened:
                opened = True
                self.pass_time(self.writes_ms)
                self.path.write_open_attempt()
        raise AssertionError(f"epoch {before + 1} is not committed: {self.coordinator.doing}")


@pytest.mark.parametrize("writes_ms", [0, 120, 250, 400])
def test_another_writer_gets_the_lock_and_its_late_clock_shows_a_later_time_than_ours(
    tmp_path: Path, writes_ms: int
) -> None:
    table = BusyTable(tmp_path, writes_ms)
    first_epoch(table.path)
    began_ms = table.path.clock.now_ms()
    for number in range(EPOCHS):
        table.commit(10 + number)
        seen = len(table.free)
        # Whoever is 200 ms late and gets the lock from now on takes a later time than our commit has.
        newest_ms = table.newest_ms()
        table.path.tag([(row("a", 50 + number, 1), DataOp.UPDATE, GROUP_A)])
        table.pass_time(STEP_MS)
        assert all(at - CLOCK_SKEW_MS > newest_ms for at in table.free[seen:]), number
    ended_ms = table.path.clock.now_ms()
    epoch_ms = CLOCK_SKEW_MS + FREE_MS + writes_ms + 20 * STEP_MS
    free = set(table.free)
    for phase in range(0, TRY_MS, STEP_MS):
        tries = range(began_ms + phase, ended_ms - epoch_ms, TRY_MS)
        got = [began_ms, *(at for at in tries if at in free)]
        assert max(b - a for a, b in itertools.pairwise(got)) <= 2 * epoch_ms + TRY_MS, phase


def lingering(folder: Path) -> CommitPath:
    """An epoch is committed, its lock waits for the clocks."""
    path = CommitPath(folder, TableType.COPY_ON_WRITE, ordered=True)
    first_epoch(path)
    coordinator = path.start_coordinator()
    for _ in range(10):
        coordinator.step(0.0)
        path.write_open_attempt()
        if path.is_idle():
            break
    assert path.context is not None
    assert not path.context.lock.is_held
    assert read_lock(path.storage) is not None
    return path


def test_a_clean_stop_waits_for_the_rest_of_the_time_and_gives_the_lock_back(tmp_path: Path) -> None:
    path = lingering(tmp_path)
    assert path.context is not None
    before_ms = path.clock.now_ms()
    free_lock(path.context)
    assert read_lock(path.storage) is None
    assert 0 < path.clock.now_ms() - before_ms <= CLOCK_SKEW_MS + 11


def test_a_coordinator_that_dies_with_a_waiting_lock_leaves_it_to_its_successor(tmp_path: Path) -> None:
    path = lingering(tmp_path)
    path.crash()
    path.start_coordinator()
    assert path.context is not None
    before_ms = path.clock.now_ms()
    free_lock(path.context)
    assert read_lock(path.storage) is None
    assert path.clock.now_ms() - before_ms > CLOCK_SKEW_MS, "nobody knows when its last time was taken"
    path.tag([(row("a", 9, 9), DataOp.UPDATE, GROUP_A)])
    path.run_until_idle()
    assert path.rows()["a"]["ts"] == 9


@pytest.mark.parametrize("taken_by_another", [False, True])
def test_a_waiting_lock_that_is_lost_harms_nothing(tmp_path: Path, taken_by_another: bool) -> None:
    path = lingering(tmp_path)
    path.storage.delete_tree(LOCK_PATH)
    if taken_by_another:
        path.storage.create(LOCK_PATH, b"theirs")
    path.step_coordinator()
    if taken_by_another:
        assert path.storage.read(LOCK_PATH) == b"theirs"
        path.storage.delete(LOCK_PATH)
    path.tag([(row("a", 9, 9), DataOp.UPDATE, GROUP_A)])
    path.run_until_idle()
    assert path.rows()["a"]["ts"] == 9
    assert read_lock(path.storage) is None
