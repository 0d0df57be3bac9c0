"""The files of an archive: levels, merges, and which manifests and files stay."""

from __future__ import annotations

import io
from functools import partial

import pyarrow.parquet as pq
import pytest

from testing.faulty_storage import FaultyStorage
from testing.memory_storage import InMemoryStorage
from tests.hudi_rules.table import DATA
from tests.unit.hudi_format.table_services.archived_tables import (
    HISTORY,
    Turn,
    archived,
    files_of,
    names_of,
    t,
)
from tidemark.hudi_format.table_services import archiving
from tidemark.hudi_format.table_services.archive_planning import ArchivedName, ArchivePlan
from tidemark.hudi_format.table_services.archiving import (
    FILES_OF_A_LEVEL,
    Merge,
    delete_superseded,
    merge_plan,
    newest_manifest,
    write_merged,
)
from tidemark.hudi_format.timeline import ArchivedInstant
from tidemark.hudi_format.timeline.archive_files import ArchiveFile, Manifest
from tidemark.hudi_format.timeline.archive_rows import GROUP_BYTES_MAX, encode_archive_file


def many_files(count: int, each: int = 4) -> FaultyStorage:
    """An archive of so many files of level 0."""
    storage = FaultyStorage(InMemoryStorage())
    for number in range(count):
        archive_file(storage, number, each)
    return storage


def archive_file(storage: FaultyStorage, number: int, each: int = 4, term: int = 0) -> None:
    """Archives the next instants, into a file of their own."""
    instants = []
    for n in range(number * each, (number + 1) * each):
        for name, content in files_of(n).items():
            storage.create(f"{DATA}/{name}", content)
        instants.append(ArchivedName(t(n), t(n + 5), "deltacommit"))
    Turn(storage, term or number + 1).archive(ArchivePlan(False, tuple(instants)))


def test_ten_files_of_a_level_become_one_of_the_next() -> None:
    storage = many_files(FILES_OF_A_LEVEL - 1)
    assert merge_plan(newest_manifest(storage, ".hoodie"), ".hoodie") is None
    storage = many_files(FILES_OF_A_LEVEL + 1)
    before = archived(storage)
    merge = merge_plan(newest_manifest(storage, ".hoodie"), ".hoodie")
    assert merge is not None
    assert merge.name == f"{t(0)}_{t(39)}_1.parquet"
    turn = Turn(storage, 50)
    assert turn.merge(merge)
    assert turn.merge(merge)  # again: it is there
    manifest = newest_manifest(storage, ".hoodie")
    assert [file.name for file in manifest.files] == [f"{t(40)}_{t(43)}_0.parquet", merge.name]
    assert manifest.files[1].size == len(storage.read(merge.path))
    assert archived(storage) == before
    assert merge_plan(manifest, ".hoodie") is None


def test_only_the_newest_manifests_and_what_they_name_stays() -> None:
    storage = many_files(FILES_OF_A_LEVEL + 3)
    merge = merge_plan(newest_manifest(storage, ".hoodie"), ".hoodie")
    assert merge is not None
    turn = Turn(storage, 60)
    turn.merge(merge)
    before = archived(storage)
    storage.create(f"{HISTORY}/{t(98)}_{t(99)}_0.parquet", b"an archiver that died left it")
    steps = 0
    while True:
        left = iter([False, False])
        if delete_superseded(storage, ".hoodie", turn.delete, partial(next, left, True)):
            break
        steps += 1
        assert archived(storage) == before
    assert steps > 1
    names = names_of(storage, HISTORY)
    assert {name for name in names if name.startswith("manifest")} == {f"manifest_{n}" for n in range(5, 15)}
    # The older manifests name the files of level 0: their readers may still open them.
    assert len([name for name in names if name.endswith("_0.parquet")]) == FILES_OF_A_LEVEL + 3
    assert f"{t(98)}_{t(99)}_0.parquet" not in names


def test_what_a_reader_opens_stays_behind_an_action_that_merges_many_levels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two files of a level become one of the next: the 64th action merges six levels."""
    monkeypatch.setattr(archiving, "FILES_OF_A_LEVEL", 2)
    storage, merged = FaultyStorage(InMemoryStorage()), list[int]()
    for number in range(64):
        read = newest_manifest(storage, ".hoodie")
        archive_file(storage, number, term=2 * number + 1)
        turn = Turn(storage, 2 * number + 2)
        merged.append(0)
        while (merge := merge_plan(newest_manifest(storage, ".hoodie"), ".hoodie")) is not None:
            turn.merge(merge)
            merged[-1] += 1
        assert delete_superseded(storage, ".hoodie", turn.delete, lambda: False)
        assert {file.name for file in read.files} <= set(names_of(storage, HISTORY))
    assert merged[-1] == 6


def test_files_that_another_archiver_merged_are_not_merged_again() -> None:
    storage = many_files(FILES_OF_A_LEVEL)
    merge = merge_plan(newest_manifest(storage, ".hoodie"), ".hoodie")
    assert merge is not None
    other = Merge(".hoodie", merge.files[:5])
    assert Turn(storage, 50).merge(other)
    assert not Turn(storage, 51).merge(merge)
    assert len(archived(storage)) == 40


def test_a_merged_file_has_each_row_once_in_order_whatever_its_files_repeat() -> None:
    storage = InMemoryStorage()
    rows = [ArchivedInstant(t(n), t(n + 5), "deltacommit", b"m%d" % n, b"") for n in range(0, 60, 2)]
    for part in (rows[:12], rows[6:20], rows[20:]):
        name = f"{part[0].requested}_{part[-1].requested}_0.parquet"
        storage.create(f"{HISTORY}/{name}", encode_archive_file(part))
    files = [ArchiveFile(name, 1) for name in storage.names(HISTORY)]
    sink = io.BytesIO()
    write_merged(storage, Merge(".hoodie", tuple(files)), sink)
    merged = pq.ParquetFile(io.BytesIO(sink.getvalue())).read()
    assert merged.column("instantTime").to_pylist() == [row.requested for row in rows]
    assert merged.column("metadata").to_pylist() == [row.metadata for row in rows]


def test_files_that_are_too_large_together_are_not_merged() -> None:
    def of(*megabytes: int) -> list[str] | None:
        files = [ArchiveFile(f"{t(n)}_{t(n)}_2.parquet", size << 20) for n, size in enumerate(megabytes)]
        merge = merge_plan(Manifest(1, tuple(files)), ".hoodie")
        return [str(file.size // (1 << 20)) for file in merge.files if file.size] if merge else None

    assert of(*[1] * 9) is None
    assert of(*[1] * 12) == ["1"] * 10
    assert of(1100, 1200, *[1] * 8) == ["1"] * 8
    assert of(400, 500, 300, *[1] * 8) == ["400", "500", "300"]
    assert of(*[1100] * 10) is None


def test_a_row_group_has_a_few_megabytes_of_contents_because_a_merge_holds_it_whole() -> None:
    large = b"x" * (1 << 20)
    rows = [ArchivedInstant(t(n), t(n + 1), "deltacommit", large, b"") for n in range(10)]
    metadata = pq.read_metadata(io.BytesIO(encode_archive_file(rows)))
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    assert sum(group.num_rows for group in groups) == len(rows)
    assert max(group.num_rows for group in groups) * len(large) <= GROUP_BYTES_MAX <= 8 << 20
