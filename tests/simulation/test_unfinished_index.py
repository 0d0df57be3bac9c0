"""Another writer builds a secondary index while epochs are written: none is committed until it is listed, and
what a dead builder left is taken out.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.simulation.commit_path import ATTEMPTS_MAX, CommitPath
from tests.simulation.kept_secondary import NAME, changes, define, switch_on
from tests.simulation.scripted_epochs import check_end, first_epoch, second_epoch
from tidemark.commit_coordinator.commit.unfinished_index import BUILDER_IS_DEAD_MS, NOBODY_BUILDS_MS
from tidemark.hudi_format import table_keys as keys
from tidemark.hudi_format.index_definitions import read_index_definitions
from tidemark.hudi_format.model import InstantGenerator
from tidemark.hudi_format.table_config import TableType, update_properties

SOON_S = 3.0


def second_written(folder: Path) -> CommitPath:
    """The first epoch is committed, the second is written and not decided."""
    path = CommitPath(folder, TableType.MERGE_ON_READ, ordered=True)
    first_epoch(path)
    path.run_until_idle()
    second_epoch(path)
    path.step_coordinator()
    assert path.write_open_attempt()
    return path


def waits(path: CommitPath, steps: int = 3 * ATTEMPTS_MAX) -> None:
    """Steps; nothing is committed, and what a builder needs is free."""
    for _ in range(steps):
        path.step()
        path.clock.advance(SOON_S)
    assert path.coordinator is not None
    seen = path.coordinator.seen
    assert (seen.halted, path.state().committed.epoch, path.state().attempts) == (None, 1, 1)
    assert seen.awaited is not None
    assert seen.awaited.index is not None
    assert seen.awaited.index in seen.awaited.reason
    assert not path.storage.exists(".hoodie/lock"), "a builder needs the lock"
    assert path.storage.list(".hoodie/.heartbeat") == [], "CREATE INDEX waits for pending instants"


def test_no_epoch_is_committed_until_the_index_is_listed(tmp_path: Path) -> None:
    """CREATE INDEX has begun with the table as it is: the epoch that was written would be in no index."""
    path = second_written(tmp_path)
    define(path.storage, "v")
    waits(path)
    path.crash()
    waits(path, 2)
    switch_on(path.storage, 2, at=InstantGenerator(path.clock).next())
    path.clock.advance(SOON_S)
    path.run_until_idle()
    entries = {("put", "3$a"), ("put", "3$e"), ("delete", "1$a"), ("delete", "1$b")}
    assert changes(path.storage, str(path.state().committed.instant)) == entries
    assert path.state().generation == 0, "no key moved"
    check_end(path)


def test_the_second_in_which_an_index_is_being_finished_halts_nothing(tmp_path: Path) -> None:
    path = second_written(tmp_path)
    update_properties(path.storage, {keys.METADATA_PARTITIONS_INFLIGHT: NAME})
    waits(path, 4)
    update_properties(path.storage, {}, [keys.METADATA_PARTITIONS_INFLIGHT])
    path.clock.advance(SOON_S)
    path.run_until_idle()
    check_end(path)


@pytest.mark.parametrize("is_indexing", [False, True])
def test_what_a_dead_builder_left_is_taken_out(tmp_path: Path, is_indexing: bool) -> None:
    """A pending indexing instant has no heartbeat, so its writer is given an hour."""
    path = second_written(tmp_path)
    define(path.storage, "v")
    if is_indexing:
        instant = InstantGenerator(path.clock).next()
        path.storage.create(f".hoodie/timeline/{instant}.indexing.requested", b"")
    before: Mapping[str, object] = read_index_definitions(path.storage)
    waits(path, 4)
    limit_s = (BUILDER_IS_DEAD_MS if is_indexing else NOBODY_BUILDS_MS) / 1_000
    path.clock.advance(limit_s - 60.0)
    waits(path, 4)
    assert read_index_definitions(path.storage) == before
    path.clock.advance(60.0)
    path.run_until_idle()
    assert read_index_definitions(path.storage) == {
        name: definition for name, definition in before.items() if name != NAME
    }
    assert path.state().committed.epoch == 2
