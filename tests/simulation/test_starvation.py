"""Another engine that commits more often than we plan does not keep our epochs out."""

from __future__ import annotations

from pathlib import Path

from tests.simulation.commit_path import CommitPath
from tests.simulation.other_engine import OtherEngine
from tests.simulation.scripted_epochs import check_end, check_traces, first_epoch, second_epoch
from tidemark.commit_coordinator.domain.actions import FreeLock
from tidemark.commit_coordinator.domain.next_action import KEEP_LOCK_MS_MAX
from tidemark.hudi_format.publication.locate import read_lock
from tidemark.hudi_format.table_config import TableType

STEPS_MAX = 60


def busy(folder: Path) -> tuple[CommitPath, OtherEngine]:
    """One epoch is committed, the next one is tagged."""
    path = CommitPath(folder, TableType.MERGE_ON_READ, ordered=True)
    first_epoch(path)
    path.run_until_idle()
    second_epoch(path)
    return path, OtherEngine(path.storage, path.clock, path.action)


def commit_if_free(path: CommitPath, other: OtherEngine) -> bool:
    if read_lock(path.storage) is not None:
        return False
    other.commit()
    return True


def test_foreign_commits_before_every_step_still_let_epochs_through(tmp_path: Path) -> None:
    path, other = busy(tmp_path)
    generation = commits = 0
    for _ in range(STEPS_MAX):
        commits += commit_if_free(path, other)
        path.step()
        state = path.state()
        if state.committed.epoch == 2:
            break
        if state.generation > generation:
            generation = state.generation
            path.tagger.claim_anew(state)
            second_epoch(path)
    assert path.state().committed.epoch == 2, f"{generation} rewinds, {commits} commits of the other engine"
    assert generation == 3
    assert read_lock(path.storage) is None
    assert commit_if_free(path, other)
    check_end(path)


def rewound_until_the_lock_is_kept(folder: Path) -> tuple[CommitPath, OtherEngine]:
    """Another engine has committed before each plan: the third rewind keeps the lock."""
    path, other = busy(folder)
    for generation in range(1, 4):
        other.commit()
        for _ in range(6):
            path.step_coordinator()
            if path.state().generation == generation:
                break
        if generation < 3:
            path.tagger.claim_anew(path.state())
            second_epoch(path)
    assert read_lock(path.storage) is not None
    return path, other


def test_a_lock_that_a_rewind_kept_is_given_back_when_nothing_is_tagged_anew(tmp_path: Path) -> None:
    path, _ = rewound_until_the_lock_is_kept(tmp_path)
    path.step_coordinator()
    assert read_lock(path.storage) is not None
    path.clock.advance(KEEP_LOCK_MS_MAX / 1000)
    path.step_coordinator()
    assert path.coordinator is not None
    assert isinstance(path.coordinator.doing, FreeLock)
    check_traces(path)


def test_a_lock_that_a_rewind_kept_is_given_back_by_an_epoch_without_rows(tmp_path: Path) -> None:
    """Another engine has deleted what the rows were about: they are tagged anew, and nothing is left."""
    path, other = rewound_until_the_lock_is_kept(tmp_path)
    path.tagger.claim_anew(path.state())
    path.tagger.tag([], consumed=4)
    path.run_until_idle()
    assert path.state().committed.epoch == 2
    assert read_lock(path.storage) is None
    assert commit_if_free(path, other)
    check_traces(path)


def test_a_retry_that_an_operator_asks_for_forgets_no_kept_lock(tmp_path: Path) -> None:
    """It may come between the error that halts the coordinator and the step that frees the lock."""
    path, _ = rewound_until_the_lock_is_kept(tmp_path)
    assert path.coordinator is not None
    path.coordinator.seen.halted = "another engine dropped the record index"
    path.coordinator.retry(2)
    path.clock.advance(KEEP_LOCK_MS_MAX / 1000)
    path.step_coordinator()
    assert read_lock(path.storage) is None


def test_a_rewind_that_no_other_preceded_keeps_no_lock(tmp_path: Path) -> None:
    path, other = busy(tmp_path)
    other.commit()
    for _ in range(4):
        path.step_coordinator()
    assert path.state().generation == 1
    assert read_lock(path.storage) is None
