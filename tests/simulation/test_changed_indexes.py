"""Another engine switches statistics on, or drops the record index, while Tidemark runs: it stops loudly."""

from __future__ import annotations

from pathlib import Path

import pytest

from hudi_format import table_keys
from hudi_format.commit.lock import read_lock
from hudi_format.table_config import TableType, update_properties
from tests.simulation.commit_path import CommitPath
from tests.simulation.scripted_epochs import check_end, first_epoch, second_epoch


@pytest.mark.parametrize(
    ("partitions", "remedy"),
    [("column_stats,files,record_index", "adopt --drop-stats"), ("files", "record level index")],
)
def test_tagging_stops_before_an_epoch_would_leave_an_index_stale(
    tmp_path: Path, partitions: str, remedy: str
) -> None:
    path = CommitPath(tmp_path, TableType.MERGE_ON_READ, ordered=True)
    first_epoch(path)
    path.run_until_idle()
    before = path.rows()
    update_properties(path.storage, {table_keys.METADATA_PARTITIONS: partitions})
    second_epoch(path)
    coordinator = path.coordinator
    assert coordinator is not None
    for _ in range(5):
        coordinator.step(0.0)
    assert coordinator.seen.halted is not None
    assert remedy in coordinator.seen.halted
    assert "`tidemark epoch retry 2`" in coordinator.seen.halted
    assert read_lock(path.storage) is None
    update_properties(path.storage, {table_keys.METADATA_PARTITIONS: "files,record_index"})
    assert path.rows() == before
    coordinator.retry(2)
    path.run_until_idle()
    assert path.coordinator is coordinator
    check_end(path)


def test_an_attempt_that_was_reported_is_not_decided_on_a_changed_table(tmp_path: Path) -> None:
    path = CommitPath(tmp_path, TableType.COPY_ON_WRITE, ordered=True)
    first_epoch(path)
    coordinator = path.start_coordinator()
    coordinator.step(0.0)
    path.write_open_attempt()
    update_properties(path.storage, {table_keys.METADATA_PARTITIONS: "column_stats,files,record_index"})
    path.step_coordinator()
    assert coordinator.seen.halted is not None
    assert path.context is not None
    assert path.context.fold().state.decided is None
    assert read_lock(path.storage) is None
