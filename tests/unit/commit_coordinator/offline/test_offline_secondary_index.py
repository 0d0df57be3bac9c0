"""Secondary indexes of an existing table, made, made anew and dropped by the coordinator's offline door."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.table_files import existing_table, new_table, table_schema, write_config
from tidemark.commit_coordinator.offline import secondary_build
from tidemark.commit_coordinator.offline.adoption import AdoptionError
from tidemark.commit_coordinator.offline.secondary_index import create_index, drop_index, rebuild_index
from tidemark.config import load_config
from tidemark.hudi_format import secondary_index_scan
from tidemark.hudi_format.commit.instants import create_inflight, create_requested
from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.index_definitions import read_index_definitions
from tidemark.hudi_format.metadata_table.index_history import newest_index_build
from tidemark.hudi_format.metadata_table.log_records import slice_entries
from tidemark.hudi_format.metadata_table.partitions.partition import METADATA_TABLE_PATH
from tidemark.hudi_format.metadata_table.partitions.secondary_index import SecondaryIndexPartition
from tidemark.hudi_format.metadata_table.partitions.secondary_index_codec import (
    group_of,
    prefixes_of,
    split_composite_key,
)
from tidemark.hudi_format.metadata_table.secondary_creation import SecondaryFailpoint
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.publication.locate import read_lock
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.schema import SchemaError
from tidemark.hudi_format.secondary_index_scan import SecondaryIndexScan
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import read_table_config
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action, load_timeline
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.ids import SystemIds

PARTITION = SecondaryIndexPartition("secondary_index_by_note")
CLOCK, IDS = SystemClock(), SystemIds()


def notes(day: str, at: int, **of_keys: str | None) -> pa.Table:
    count = len(of_keys)
    return pa.table(
        {"id": list(of_keys), "day": [day] * count, "at": [at] * count, "note": list(of_keys.values())}
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    writer = new_table(tmp_path / "table")
    writer.commit(notes("2026-01-01", 1, k1="a$b", k2=None, k3="x"))
    writer.commit(notes("2026-01-02", 2, k4="x", k5="y"))
    writer.commit(notes("2026-01-01", 3, k3="z"), deletes=[("k5", None)])
    return write_config(tmp_path)


LIVE = {("a$b", "k1"), (None, "k2"), ("z", "k3"), ("x", "k4")}


def storage_of(file: Path) -> LocalStorage:
    return LocalStorage(file.parent / "table")


def entries(file: Path) -> set[tuple[str | None, str]]:
    """What a reader finds in the index, whose groups are all checked."""
    storage = storage_of(file)
    snapshot = MetadataTableSnapshot.load(storage)
    slices = snapshot.slices[PARTITION.name]
    found: list[str] = []
    for file_slice in slices:
        folder = f"{METADATA_TABLE_PATH}/{PARTITION.name}"
        keys = PARTITION.merge(slice_entries(storage, folder, file_slice, snapshot.validity.is_valid))
        assert PARTITION.file_id(_group(keys, len(slices), file_slice.file_id)) == file_slice.file_id
        found += keys
    assert len(found) == len(set(found))
    return {split_composite_key(key.encode()) for key in found}


def _group(keys: Iterable[str], groups: int, file_id: str):
    numbers = set(group_of(prefixes_of(pa.array(list(keys), pa.string())), groups).tolist())
    assert len(numbers) <= 1
    return numbers.pop() if numbers else int(file_id.split("-")[-2])


def make(file: Path, column: str = "note", **options):
    return create_index(load_config(file), CLOCK, IDS, "by_note", column, lambda text: None, **options)


def test_the_index_has_an_entry_of_each_live_row(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secondary_index_scan, "ENTRIES_PER_GROUP", 2)
    made = make(file)
    assert (made.partition, made.groups, made.entries) == (PARTITION.name, 2, 4)
    assert entries(file) == LIVE
    assert PARTITION.name in read_table_config(storage_of(file)).metadata_partitions
    definition = read_index_definitions(storage_of(file))[PARTITION.name]
    assert (definition["sourceFields"], definition["version"]) == (["note"], "V2")
    assert read_lock(storage_of(file)) is None


def test_caches_of_the_record_index_stay(file: Path) -> None:
    """A build that names no files may be one of the record index."""
    storage = storage_of(file)
    before = newest_index_build(storage, load_timeline(storage, METADATA_TABLE_ROOT))
    make(file)
    assert newest_index_build(storage, load_timeline(storage, METADATA_TABLE_ROOT)) == before


def test_what_is_committed_during_the_scan_is_in_the_index(file: Path) -> None:
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        changed = notes("2026-01-01", 9, k1="x", k6="new", k3="z")
        existing_table(file.parent / "table").commit(changed, deletes=[("k2", None)])

    create_index(load_config(file), CLOCK, IDS, "by_note", "note", say)
    assert said == ["sorting the entries"]
    assert entries(file) == {("x", "k1"), ("z", "k3"), ("x", "k4"), ("new", "k6")}


class WatchedScans:
    """Each scan of the creation: how many slices it read, and whether the lock was held. After each but the
    last `commit` is called with its number.
    """

    def __init__(self, file: Path, patched: pytest.MonkeyPatch, commit: Callable[[int], None]) -> None:
        self.scans: list[tuple[int, bool]] = []
        scan_once = SecondaryIndexScan.scan

        def scan(scanner: SecondaryIndexScan, *say: Any) -> MetadataTableSnapshot:
            is_locked = read_lock(storage_of(file)) is not None
            snapshot = scan_once(scanner, *say)
            self.scans.append((scanner.slices_read, is_locked))
            if not is_locked:
                commit(len(self.scans))
            return snapshot

        patched.setattr(SecondaryIndexScan, "scan", scan)


def groups_of(file: Path, days: int, at: int) -> set[tuple[str | None, str]]:
    """Commits a row in each of so many partitions, that is file groups; returns their entries."""
    rows = pa.concat_tables(
        [notes(f"2026-02-{day:02d}", at, **{f"k{day}": f"v{at}"}) for day in range(1, days + 1)]
    )
    existing_table(file.parent / "table").commit(rows)
    return {(f"v{at}", f"k{day}") for day in range(1, days + 1)}


def test_what_is_committed_during_the_scan_is_read_in_rounds_before_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """12 file groups change during the scan, 6 during the first round, none later."""
    new_table(tmp_path / "table")
    file = write_config(tmp_path)
    live = groups_of(file, 12, 1)

    def commit(scan: int) -> None:
        nonlocal live
        changed = groups_of(file, {1: 12, 2: 6}[scan], 10 + scan) if scan <= 2 else set()
        keys = {key for _, key in changed}
        live = {entry for entry in live if entry[1] not in keys} | changed

    watched = WatchedScans(file, monkeypatch, commit)
    make(file)
    assert watched.scans == [(12, False), (12, False), (6, False), (0, False), (0, False)]
    assert entries(file) == live


def test_a_writer_that_never_rests_does_not_keep_the_index_from_being_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the end the last round is read under the lock."""
    monkeypatch.setattr(secondary_build, "TRIES_MAX", 2)
    new_table(tmp_path / "table")
    file = write_config(tmp_path)
    groups_of(file, 3, 1)

    def commit(scan: int) -> None:
        groups_of(file, 3, 10 + scan)

    watched = WatchedScans(file, monkeypatch, commit)
    make(file)
    assert watched.scans == [*[(3, False)] * 5, (3, True)]
    assert entries(file) == {(f"v{10 + 5}", f"k{day}") for day in range(1, 4)}


def killed_at(file: Path, place: SecondaryFailpoint) -> None:
    def die(at: SecondaryFailpoint) -> None:
        if at is place:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(file, hit=die)
    assert read_table_config(storage_of(file)).metadata_partitions == {"files", "record_index"}


def test_killed_anywhere_it_is_repeated(file: Path) -> None:
    for place in SecondaryFailpoint:
        killed_at(file, place)
    existing_table(file.parent / "table").commit(notes("2026-01-02", 9, k4="later"))
    make(file)
    assert entries(file) == LIVE - {("x", "k4")} | {("later", "k4")}


@pytest.mark.parametrize(
    "place", [SecondaryFailpoint.AFTER_SECONDARY_WRITTEN, SecondaryFailpoint.AFTER_SECONDARY_DEFINED]
)
def test_what_a_killed_creation_left_is_dropped(file: Path, place: SecondaryFailpoint) -> None:
    killed_at(file, place)
    is_defined = place is SecondaryFailpoint.AFTER_SECONDARY_DEFINED
    assert drop_index(load_config(file), CLOCK, IDS, "by_note") is is_defined
    assert read_index_definitions(storage_of(file)).keys() == {"record_index"}
    assert read_table_config(storage_of(file)).metadata_partitions == {"files", "record_index"}
    assert not storage_of(file).exists(f"{METADATA_TABLE_PATH}/{PARTITION.name}")


def test_an_index_that_is_wrong_is_made_anew(file: Path) -> None:
    with pytest.raises(AdoptionError, match="no secondary index"):
        rebuild_index(load_config(file), CLOCK, IDS, "by_note", lambda text: None)
    make(file)
    existing_table(file.parent / "table").commit(notes("2026-01-02", 9, k4="later"))
    assert entries(file) == LIVE
    rebuild_index(load_config(file), CLOCK, IDS, "by_note", lambda text: None)
    assert entries(file) == LIVE - {("x", "k4")} | {("later", "k4")}


def test_what_cannot_be_made_is_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    new_table(tmp_path / "table").commit(notes("2026-01-01", 1, k1="a"))
    file = write_config(tmp_path)
    with pytest.raises(SchemaError, match="no column nothing"):
        make(file, "nothing")
    with pytest.raises(UnsupportedTableError, match="cannot be the name"):
        create_index(load_config(file), CLOCK, IDS, "by-note", "note", lambda text: None)
    by = Unfenced(storage_of(file))
    create_inflight(by, create_requested(by, "20990101000000000", Action.DELTA_COMMIT))
    with pytest.raises(AdoptionError, match="20990101000000000 is pending"):
        make(file)
    assert read_index_definitions(storage_of(file)).keys() == {"record_index"}
    assert table_schema().arrow.names == ["id", "day", "at", "note"]


def test_one_name_is_of_one_column_and_a_table_with_log_files_has_one_index(tmp_path: Path) -> None:
    new_table(tmp_path / "table").commit(notes("2026-01-01", 1, k1="a"))
    file = write_config(tmp_path)
    make(file)
    with pytest.raises(AdoptionError, match="of the column note"):
        make(file, "at")
    with pytest.raises(UnsupportedTableError, match="only one secondary index"):
        create_index(load_config(file), CLOCK, IDS, "by_at", "at", lambda text: None)
