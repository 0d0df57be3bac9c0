"""Secondary indexes of an existing table, made, made anew and dropped by the coordinator's offline door."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.table_files import existing_table, new_table, table_schema, write_config
from tidemark.commit_coordinator.offline import index_command, secondary_repair
from tidemark.commit_coordinator.offline.adoption import AdoptionError
from tidemark.commit_coordinator.offline.secondary_index import create_index, drop_index, repair_index
from tidemark.commit_coordinator.offline.secondary_repair import RepairedIndex
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
from tidemark.hudi_format.table_config import TableType, read_table_config
from tidemark.hudi_format.table_schema import table_schema as find_table_schema
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
    monkeypatch.setattr(index_command, "TRIES_MAX", 2)
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
    assert drop_index(load_config(file), CLOCK, IDS, "by_note", lambda text: None) is is_defined
    assert read_index_definitions(storage_of(file)).keys() == {"record_index"}
    assert read_table_config(storage_of(file)).metadata_partitions == {"files", "record_index"}
    assert not storage_of(file).exists(f"{METADATA_TABLE_PATH}/{PARTITION.name}")


def repair(file: Path) -> RepairedIndex:
    return repair_index(load_config(file), CLOCK, IDS, "by_note", lambda text: None)


LATER = LIVE - {("x", "k4")} | {("later", "k4")}


def past_the_index(file: Path) -> None:
    """A commit of which the index has nothing: one entry is missing then, and one too many."""
    existing_table(file.parent / "table").commit(notes("2026-01-02", 9, k4="later"))


@pytest.mark.parametrize("table_type", list(TableType))
def test_wrong_entries_are_put_right_and_the_index_stays(tmp_path: Path, table_type: TableType) -> None:
    new_table(tmp_path / "table", table_type).commit(notes("2026-01-02", 1, k4="x", k5="y"))
    file = write_config(tmp_path)
    if table_type is TableType.COPY_ON_WRITE:
        file.write_text(file.read_text().replace("name: orders", "name: orders\n  type: copy_on_write"))
    with pytest.raises(AdoptionError, match="no secondary index"):
        repair(file)
    made = make(file)
    assert not repair(file).was_wrong
    past_the_index(file)
    names, schema = folder_of(file), newest_schema(file)
    repaired = repair(file)
    assert (repaired.index, repaired.missing, repaired.extra) == (made, 1, 1)
    assert names < folder_of(file)
    assert entries(file) == {("later", "k4"), ("y", "k5")}
    assert newest_schema(file) == schema
    assert not load_timeline(storage_of(file)).pending()
    assert read_lock(storage_of(file)) is None
    past_the_index(file)
    assert not repair(file).was_wrong
    existing_table(file.parent / "table").commit(notes("2026-01-02", 10, k4="x", k6="new"))
    assert (repair(file).missing, repair(file).was_wrong) == (2, False)
    assert entries(file) == {("x", "k4"), ("y", "k5"), ("new", "k6")}


def folder_of(file: Path) -> set[str]:
    return set(storage_of(file).names(f"{METADATA_TABLE_PATH}/{PARTITION.name}"))


def newest_schema(file: Path) -> str:
    storage = storage_of(file)
    schema = find_table_schema(storage, read_table_config(storage), load_timeline(storage))
    assert schema is not None
    return schema.avro_json


def test_what_is_committed_while_an_index_is_repaired_is_right(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """k4 has a missing entry and one too many. Both change before the repair writes: k4 goes back to the
    value whose entry would be taken out, and the other value, whose entry would be put in, is gone. Its
    commit keeps the index, as ours do.
    """
    make(file)
    past_the_index(file)

    def commit(scan: int) -> None:
        if scan == 1:
            existing_table(file.parent / "table").commit(notes("2026-01-02", 10, k4="x", k3="z"))

    watched = WatchedScans(file, monkeypatch, commit)
    assert not repair(file).was_wrong
    assert len(watched.scans) > 1
    assert entries(file) == LIVE


@pytest.mark.parametrize("damage", ["too many", "unreadable", "astray"])
def test_an_index_that_is_damaged_is_made_anew(
    file: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    make(file)
    past_the_index(file)
    storage, folder = storage_of(file), f"{METADATA_TABLE_PATH}/{PARTITION.name}"
    base = next(name for name in storage.names(folder) if name.endswith(".hfile"))
    if damage == "too many":
        monkeypatch.setattr(secondary_repair, "WRONG_MAX", 1)
    elif damage == "unreadable":
        storage.replace(f"{folder}/{base}", b"damaged")
    else:
        (log,) = [name for name in storage.names(folder) if "-0000-0_" in name and ".log." in name]
        storage.create(f"{folder}/{log.replace('-0000-0_', '-0002-0_')}", storage.read(f"{folder}/{log}"))
        storage.create(
            f"{folder}/{base.replace('-0000-0_', '-0002-0_').replace('-0001-0_', '-0002-0_')}",
            storage.read(f"{folder}/{base}"),
        )
    repaired = repair(file)
    assert repaired.is_anew
    assert (repaired.index.entries, repaired.missing) == (len(LATER), 0)
    assert entries(file) == LATER


def test_a_repair_that_is_killed_at_any_write_is_repeated(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(file)
    past_the_index(file)
    real, left = LocalStorage.publish, 0

    def publish(storage: LocalStorage, folder: str, path: str, *args: Any, **kwargs: Any) -> None:
        nonlocal left
        if not left:
            raise KeyboardInterrupt
        left -= 1
        real(storage, folder, path, *args, **kwargs)

    monkeypatch.setattr(LocalStorage, "publish", publish)
    for nth in range(8):
        left = nth
        with pytest.raises(KeyboardInterrupt):
            repair(file)
        assert not load_timeline(storage_of(file)).pending()
        assert entries(file) in (LIVE, LATER)
        if entries(file) == LATER:
            break
    left = 100
    repair(file)
    assert entries(file) == LATER
    assert nth > 3


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
