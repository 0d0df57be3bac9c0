"""Verification of compacted, cleaned and archived tables: what is not read again, and each fault is found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testing.terms import begin_term
from tests.unit.table_files import existing_table, orders
from tests.unit.table_verification.compacting import Faults, Services
from tests.unit.table_verification.damage import DAYS, Damage, changed_table
from tidemark.hudi_format.file_group.names import BaseFileName
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.model import ShardId
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import TableType
from tidemark.hudi_format.table_services import archiving
from tidemark.hudi_format.table_services.archive_planning import (
    ArchiveBounds,
    ArchivedName,
    ArchivePlan,
    plan_data_archive,
    plan_metadata_archive,
)
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, load_timeline
from tidemark.table_verification import compactions, compare_changed, slice_check
from tidemark.table_verification.compactions import is_read_by_turn
from tidemark.table_verification.findings import Kind
from tidemark.table_verification.remembering import verify_and_remember
from tidemark.table_verification.report import document, lines
from tidemark.table_verification.verify import Verification, verify_table

ON_READ = TableType.MERGE_ON_READ


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Verified, with the state stored; no compacted file is read by turn."""
    monkeypatch.setattr(compactions, "READ_ONE_IN", 1 << 62)
    path = tmp_path / "table"
    changed_table(path, ON_READ)
    assert again(path).agrees
    return path


def again(path: Path, full: bool = False) -> Verification:
    return verify_and_remember(LocalStorage(path), full, lambda _: None, lambda _: None)


def found(path: Path) -> dict[Kind, int]:
    return dict(verify_table(LocalStorage(path), lambda _: None).findings.counts)


def read(result: Verification) -> tuple[int, int]:
    """Numbers of file groups and of whole shards that were read."""
    return result.compared.file_groups, result.compared.shards


# -- compactions


def test_compacted_groups_that_nobody_wrote_to_are_not_read_again(table: Path) -> None:
    Services(table).compact_data()
    result = again(table)
    assert result.agrees
    assert (result.since is not None, read(result)) == (True, (0, 0))
    assert again(table, full=True).agrees


def test_compacted_group_that_was_written_to_since_is_read(table: Path) -> None:
    Services(table).compact_data()
    existing_table(table).commit(orders(("k0", DAYS[0], 40)))
    result = again(table)
    assert (result.agrees, read(result)) == (True, (1, 0))


def test_compacted_group_whose_old_files_are_cleaned_is_read(table: Path) -> None:
    services = Services(table)
    services.compact_data()
    services.clean(services.superseded())
    result = again(table)
    assert (result.agrees, read(result)) == (True, (3, 0))


def test_compacted_index_is_not_read_again(table: Path) -> None:
    services = Services(table)
    for at in range(3):
        existing_table(table).commit(
            orders(("k4", DAYS[1], 30 + at), (f"new{at}", DAYS[0], 30)), [(f"k{5 + at}", 30)]
        )
        services = Services(table)
        services.compact_index()
    existing_table(table).commit(orders(("last", DAYS[2], 30)))
    result = again(table)
    assert result.agrees
    assert (result.since is not None, result.compared.shards) == (True, 0)
    assert result.entries == result.rows == 60
    assert again(table, full=True).agrees


def test_compaction_of_another_engine_says_nothing_and_is_believed_by_its_count(table: Path) -> None:
    Services(table).compact_index(Faults(silent=True))
    result = again(table)
    assert (result.agrees, read(result)) == (True, (0, 0))


@pytest.mark.parametrize("silent", [False, True], ids=["ours", "another engine's"])
def test_entry_that_a_compaction_lost_is_found_without_reading_the_base_file(
    table: Path, silent: bool
) -> None:
    Services(table).compact_index(Faults(loses=["k3"], silent=silent))
    result = again(table)
    assert dict(result.findings.counts) == {Kind.ROW_WITHOUT_ENTRY: 1}
    assert result.since is None, "a full comparison names it"


def test_index_digest_that_does_not_follow_has_the_index_read(table: Path) -> None:
    Services(table).compact_index(Faults(says=(1, 1)))
    result = again(table)
    assert (result.agrees, read(result)) == (True, (0, 2))


def test_row_that_a_compaction_lost_is_found_when_its_digest_differs(table: Path) -> None:
    Services(table).compact_data(Faults(loses=["k3"], says=(1, 1)))
    assert dict(again(table).findings.counts) == {Kind.ENTRY_WITHOUT_ROW: 1}


def test_lost_row_with_the_right_digest_is_found_by_a_full_run(table: Path) -> None:
    Services(table).compact_data(Faults(loses=["k3"]))
    assert again(table).agrees, "only the digest was compared"
    assert found(table) == {Kind.ENTRY_WITHOUT_ROW: 1}


def test_one_compacted_file_in_so_many_is_read_by_turn(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compactions, "READ_ONE_IN", 1)
    services = Services(table)
    services.compact_data(Faults(loses=["k3"]))
    assert dict(again(table).findings.counts) == {Kind.ENTRY_WITHOUT_ROW: 1}


def test_shard_is_read_by_turn(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compactions, "READ_ONE_IN", 1)
    asked: list[object] = []
    real = compare_changed._has_same_entries

    def counted(*arguments: Any) -> bool:
        asked.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(compare_changed, "_has_same_entries", counted)
    Services(table).compact_index()
    assert again(table).agrees
    assert len(asked) == 2


def test_turns_go_round() -> None:
    names = [f"f_0-0-0_20261128{number:09}.hfile" for number in range(5_000)]
    chosen = [name for name in names if is_read_by_turn(FileSlice("", "f", name, "0", ()))]
    assert 50 < len(chosen) < 200


def test_log_file_that_a_data_compaction_left_out_is_named(table: Path) -> None:
    existing_table(table).commit(orders(("k1", DAYS[2], 40)))
    left_out = max(Damage(table).files(log=True), key=lambda path: path.rpartition("_")[0])
    name = left_out.rpartition("/")[2]
    Services(table).compact_data(Faults(leaves_out=[name]))
    result = verify_table(LocalStorage(table), lambda _: None)
    assert result.findings.counts[Kind.COMPACTION_PLAN] == 1
    assert name in result.findings.examples[Kind.COMPACTION_PLAN][0]


def test_log_file_that_an_index_compaction_left_out_is_named(table: Path) -> None:
    shard = MetadataTableSnapshot.load(LocalStorage(table)).shard(ShardId(0)).file_slice
    Services(table).compact_index(Faults(leaves_out=[shard.log_files[-1]]))
    result = verify_table(LocalStorage(table), lambda _: None)
    assert result.findings.counts[Kind.COMPACTION_PLAN] == 1
    assert shard.log_files[-1] in result.findings.examples[Kind.COMPACTION_PLAN][0]


def test_second_completed_file_of_an_instant_is_named(table: Path) -> None:
    instant = Services(table).compact_data()
    storage = LocalStorage(table)
    (completed,) = (
        name
        for name in storage.names(".hoodie/timeline")
        if name.startswith(f"{instant}_") and name.endswith(".commit")
    )
    other = f"{instant}_{int(completed.partition('_')[2][:17]) + 1}.commit"
    storage.create(f".hoodie/timeline/{other}", storage.read(f".hoodie/timeline/{completed}"))
    result = verify_table(storage, lambda _: None)
    assert dict(result.findings.counts) == {Kind.COMPLETED_TWICE: 1}
    assert completed in result.findings.examples[Kind.COMPLETED_TWICE][0]


# -- cleans and archival


def test_files_of_a_clean_that_is_not_swept_are_to_be_deleted(table: Path) -> None:
    services = Services(table)
    services.compact_data()
    old = services.superseded()
    services.clean(old, sweeps=False)
    result = again(table)
    assert (result.agrees, result.to_be_deleted) == (True, len(old))
    assert f"cleaned   {len(old)} files that nobody lists are still to be deleted" in list(lines(result))
    services.sweep(old[:1])
    assert again(table).to_be_deleted == len(old) - 1
    services.sweep(old[1:])
    assert (again(table).agrees, again(table).to_be_deleted) == (True, 0)


def test_a_base_file_of_a_compaction_that_spark_carried_out_too_is_to_be_deleted(table: Path) -> None:
    """Ours is there, its coordinator died, and Spark wrote and listed one of its own for the same slice."""
    instant, storage = Services(table).compact_data(), LocalStorage(table)
    theirs = next(path for path in Damage(table).files(log=False) if instant in path)
    name = BaseFileName.parse(theirs.rpartition("/")[2])
    assert name is not None
    ours = theirs.replace(name.write_token, "9-9-9")
    assert ours != theirs
    storage.create(ours, storage.read(theirs))
    result = again(table)
    assert (result.agrees, result.to_be_deleted) == (True, 1)
    storage.delete(ours)
    storage.create(ours.replace(name.file_id, f"0{name.file_id[1:-2]}-7"), storage.read(theirs))
    assert again(table).findings.counts[Kind.FILE_NOT_LISTED] == 1


def test_a_second_base_file_of_a_slice_that_a_write_made_is_a_finding(table: Path) -> None:
    """A retried task of Spark left it: it goes with no compaction, and nobody deletes it."""
    instant, storage = Services(table).compact_data(), LocalStorage(table)
    listed = next(path for path in Damage(table).files(log=False) if instant not in path)
    name = BaseFileName.parse(listed.rpartition("/")[2])
    assert name is not None
    storage.create(listed.replace(name.write_token, "9-9-9"), storage.read(listed))
    result = again(table)
    assert (result.findings.counts.get(Kind.FILE_NOT_LISTED), result.to_be_deleted) == (1, 0)


def test_file_that_no_clean_names_is_still_missing_in_the_list(table: Path) -> None:
    services = Services(table)
    services.compact_data()
    old = services.superseded()
    services.clean(old[1:], sweeps=False)
    Damage(table).files_say(old[0], None)
    assert found(table) == {Kind.FILE_NOT_LISTED: 1}


def test_archived_instant_with_a_log_file_in_use_is_named(table: Path) -> None:
    storage = LocalStorage(table)
    first = next(
        each.requested
        for each in load_timeline(storage, METADATA_TABLE_ROOT).completed()
        if not each.requested.startswith("0000")
    )
    for name in storage.names(f"{METADATA_TABLE_ROOT}/timeline"):
        if name.startswith((first, "0000")):
            storage.delete(f"{METADATA_TABLE_ROOT}/timeline/{name}")
    result = verify_table(storage, lambda _: None)
    assert result.findings.counts[Kind.ARCHIVED_LOG] >= 1
    assert first in result.findings.examples[Kind.ARCHIVED_LOG][0]


@pytest.mark.parametrize("is_index", [False, True], ids=["data", "index"])
def test_archival_that_is_cut_anywhere_is_no_difference(table: Path, is_index: bool) -> None:
    services = Services(table)
    services.compact_data()
    services.compact_index()
    for at in (50, 60):
        existing_table(table).commit(orders(("k0", DAYS[0], at)))
    storage = LocalStorage(table)
    data, metadata = load_timeline(storage), load_timeline(storage, METADATA_TABLE_ROOT)
    bounds = ArchiveBounds(least=2)
    if is_index:
        going = plan_metadata_archive(
            metadata, data, bounds, in_slices=lambda _: (), under_slices=tuple, with_logs=tuple
        ).instants
    else:
        going = plan_data_archive(
            data, metadata, bounds, is_gone=lambda _: True, lies_behind=lambda _: False, with_logs=tuple
        ).instants
    names = tuple(ArchivedName(each.requested, str(each.completion), each.action.value) for each in going)
    assert names
    plan, term, found = ArchivePlan(is_index, names), begin_term(storage), []
    term.lock.acquire(0, ends_epoch=True)

    def look(_: str = "") -> None:
        found.append(verify_table(storage, lambda _: None).findings.examples)

    def delete(path: str) -> bool:
        gone = storage.delete(path)
        look()
        return gone

    archiving.publish_rows(term, plan, term.lock.lease(), delete, look)
    assert archiving.delete_instants(storage, plan, delete, lambda _: None, lambda: False)
    assert len(found) > 3 * len(names)
    assert [each for each in found if each] == []


def test_long_slices_are_a_warning_and_no_difference(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert again(table).warnings == ()
    monkeypatch.setattr(slice_check, "LOG_FILES_WARN", 0)
    result = again(table)
    assert result.agrees
    assert any("has 1 log files behind its base file" in text for text in result.warnings)
    assert document(result)["warnings"] == list(result.warnings)
    assert any(line.startswith("WARNING") for line in lines(result))
