"""Column stats against the rows: what makes readers leave out rows is named with file and column."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.hudi_format.doubles import ManualClock
from tests.unit.table_files import existing_table, orders, table_schema
from tests.unit.table_verification.damage import DAYS, Damage, changed_table
from tests.unit.table_verification.test_verify_changes import believed, dropped_nothing
from tidemark.hudi_format.column_stats_scan import ColumnStatsScan
from tidemark.hudi_format.metadata_table.delta_commit import publish_log
from tidemark.hudi_format.metadata_table.partitions.column_stats import (
    COLUMN_STATS,
    ColumnStatsPartition,
    StatsChanges,
    column_stats_key,
    file_keys,
)
from tidemark.hudi_format.metadata_table.partitions.column_stats_codec import ColumnStats, encode_stats
from tidemark.hudi_format.metadata_table.scanned_ranges import RangeScan, files_of
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.model import ShardId
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import TableType, read_table_config
from tidemark.hudi_format.table_view import TableView
from tidemark.table_verification import stats_check
from tidemark.table_verification.findings import Kind
from tidemark.table_verification.remembering import verify_and_remember
from tidemark.table_verification.verified_state import VerifiedState
from tidemark.table_verification.verify import Verification, verify_table

COLUMNS = ["at", "id"]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table"
    changed_table(path, TableType.MERGE_ON_READ)
    storage = LocalStorage(path)
    scan = ColumnStatsScan(storage, read_table_config(storage), table_schema(), COLUMNS)
    scan.scan()
    scan.create(ManualClock())
    return path


def verified(path: Path, state: VerifiedState | None = None) -> Verification:
    return verify_table(LocalStorage(path), lambda _: None, state)


def a_file(path: Path, is_log: bool) -> tuple[str, str]:
    """(partition path, name) of a file of the table."""
    snapshot = MetadataTableSnapshot.load(LocalStorage(path))
    slices = TableView.of(snapshot.storage, snapshot.data_timeline).slices(snapshot.files.names())
    return next(found for found in files_of(slices) if found[1].startswith(".") == is_log)


def commit_stats(path: Path, changes: StatsChanges) -> None:
    """As an engine that is wrong."""
    damage, logs = Damage(path), []
    instant = damage.times.next()
    for group, of_group in changes.by_group(len(damage.snapshot.slices["column_stats"])).items():
        log, data = COLUMN_STATS.log_file(of_group, instant, ShardId(group))
        publish_log(Unfenced(damage.storage), log, data)
        logs.append(log)
    damage.metadata_commit(instant, [], logs)


def tight(path: Path, file: tuple[str, str], column: str, **changed: Any) -> StatsChanges:
    """The range of a column, changed, as a record that replaces the one that is there."""
    scan = RangeScan(LocalStorage(path), table_schema(), [column], "at")
    scan.scan(file)
    stats = ColumnStats(file[1], replace(scan.ranges[file][0], **changed), is_tight=True)
    return StatsChanges({column_stats_key(column, *file): encode_stats(stats)})


def test_stats_that_were_made_from_the_rows_agree(table: Path) -> None:
    result = verified(table)
    assert result.agrees, result.findings
    again = verified(table, result.state)
    assert again.agrees
    assert again.since is not None


@pytest.mark.parametrize("is_log", [False, True])
def test_a_range_that_leaves_out_rows_is_named(table: Path, is_log: bool) -> None:
    file = a_file(table, is_log)
    commit_stats(table, tight(table, file, "at", high=5, low=5))
    findings = verified(table).findings
    [text] = findings.examples[Kind.COLUMN_STATS_WRONG]
    assert "/".join(file) in text
    assert "column at: 5 to 5 leaves out rows" in text
    assert list(findings.counts) == [Kind.COLUMN_STATS_WRONG]


def test_a_wider_range_is_right(table: Path) -> None:
    commit_stats(table, tight(table, a_file(table, False), "at", low=-(10**6), high=10**6))
    assert verified(table).agrees


def test_a_column_without_a_record_is_named_in_files_that_did_not_change(table: Path) -> None:
    state = verified(table).state
    file = a_file(table, False)
    commit_stats(table, StatsChanges(deleted=file_keys(*file, ["id"])))
    result = verified(table, state)
    assert result.since is not None
    assert result.findings.examples == {Kind.COLUMN_STATS_MISSING: [f"{'/'.join(file)}: column id"]}


def test_a_new_file_with_rows_and_without_records_is_named(table: Path) -> None:
    state = verified(table).state
    existing_table(table).commit(orders(("k0", DAYS[0], 30)))
    result = verified(table, state)
    [text] = result.findings.examples[Kind.COLUMN_STATS_MISSING]
    assert text.endswith("it has rows, and no record of any column")
    assert text.startswith(f"{DAYS[0]}/.")


@pytest.mark.parametrize("at_once", [1, 11])
def test_records_are_held_in_parts_and_the_same_is_found(
    table: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    """Each part has the records of a slice at least."""
    commit_stats(table, tight(table, a_file(table, False), "at", high=5, low=5))
    commit_stats(table, StatsChanges(deleted=file_keys(*a_file(table, True), ["id"])))
    whole = verified(table).findings
    assert set(whole.counts) == {Kind.COLUMN_STATS_WRONG}
    held: list[int] = []
    real = COLUMN_STATS.living

    def living(parts: Any, wanted: Any = None) -> dict[str, bytes]:
        found = real(parts, wanted)
        held.append(len(found))
        return found

    monkeypatch.setattr(stats_check, "_AT_ONCE", at_once)
    monkeypatch.setattr(ColumnStatsPartition, "living", lambda _, *args: living(*args))
    found = verified(table).findings
    assert (found.counts, found.examples) == (whole.counts, whole.examples)
    assert len(held) > 1
    assert max(held) < sum(held)


def test_wrong_stats_do_not_put_the_record_index_in_doubt(table: Path) -> None:
    """Who stopped because of a replacecommit goes on by what is kept, whatever the stats are."""
    storage, replaced = LocalStorage(table), dropped_nothing(Damage(table))
    commit_stats(table, tight(table, a_file(table, False), "at", high=5, low=5))
    commit_stats(table, StatsChanges(deleted=file_keys(*a_file(table, True), ["_hoodie_record_key"])))
    found = verify_and_remember(storage, True, lambda _: None, lambda _: None).findings
    assert found.counts.keys() == {Kind.COLUMN_STATS_WRONG}
    assert believed(storage) == {replaced}
