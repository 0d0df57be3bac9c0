"""Column stats of an existing table, made by the coordinator's offline door."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.files_with_stats import files_without_records
from tests.unit.table_files import existing_table, new_table, orders, table_schema, write_config
from tidemark.commit_coordinator.offline.column_stats import create_column_stats
from tidemark.config import load_config
from tidemark.hudi_format.column_stats_scan import ColumnStatsScan
from tidemark.hudi_format.metadata_table.own_stats import foreign_stats, own_stats_columns
from tidemark.hudi_format.metadata_table.stats_creation import StatsFailpoint
from tidemark.hudi_format.publication.locate import read_lock
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import read_table_config
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.ids import SystemIds


@pytest.fixture
def file(tmp_path: Path) -> Path:
    writer = new_table(tmp_path / "table")
    writer.commit(orders(("k1", "2026-01-01", 1), ("k2", "2026-01-02", 2)))
    writer.commit(orders(("k1", "2026-01-01", 3)))
    return write_config(tmp_path)


def storage_of(file: Path) -> LocalStorage:
    return LocalStorage(file.parent / "table")


def scan_of(file: Path, columns: list[str]) -> ColumnStatsScan:
    storage = storage_of(file)
    scan = ColumnStatsScan(storage, read_table_config(storage), table_schema(), columns)
    scan.scan()
    return scan


def test_all_files_have_right_records_and_the_table_lists_them(file: Path) -> None:
    created = create_column_stats(
        load_config(file), SystemClock(), SystemIds(), ["at", "note"], lambda text: None
    )
    assert (created.columns, created.files, created.records) == (["at", "note"], 3, 15)
    scan, storage = scan_of(file, ["at", "note"]), storage_of(file)
    assert not scan.wrong()
    assert not files_without_records(storage, table_schema(), ["at", "note"])
    assert own_stats_columns(storage) == ["at", "note"]
    assert foreign_stats(storage, read_table_config(storage)) is None
    assert read_lock(storage) is None


def test_what_is_committed_during_the_scan_is_scanned_under_the_lock(file: Path) -> None:
    committed: list[str] = []

    class CommitsMeanwhile(SystemClock):
        """The scan asks for the time before each file."""

        def now_ms(self) -> int:
            if not committed and read_lock(storage_of(file)) is None:
                committed.append(
                    existing_table(file.parent / "table").commit(orders(("k9", "2026-01-03", 9)))
                )
            return super().now_ms()

    create_column_stats(load_config(file), CommitsMeanwhile(), SystemIds(), ["at"], lambda text: None)
    assert committed
    assert not files_without_records(storage_of(file), table_schema(), ["at"])


@pytest.mark.parametrize("place", list(StatsFailpoint))
def test_killed_it_leaves_none_and_is_repeated(file: Path, place: StatsFailpoint) -> None:
    config, clock, ids = load_config(file), SystemClock(), SystemIds()

    def die(at: StatsFailpoint) -> None:
        if at is place:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        create_column_stats(config, clock, ids, ["at"], lambda text: None, die)
    assert read_table_config(storage_of(file)).metadata_partitions == {"files", "record_index"}
    create_column_stats(config, clock, ids, ["note"], lambda text: None)
    assert not files_without_records(storage_of(file), table_schema(), ["note"])
