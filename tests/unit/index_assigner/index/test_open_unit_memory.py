"""What an open unit or shard keeps of its base file, and which of them get a run file of their own."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.unit.hudi_format.metadata_table.test_partitioned_index import Identity, PartitionedTable
from tests.unit.hudi_format.metadata_tables import entries
from tests.unit.index_assigner.index.test_partitioned_model import LANES, Process
from tests.unit.index_assigner.index_world import MANY, Assigner, DataTable, load_runs
from tidemark.hudi_format.commit.instants import complete, create_inflight, create_requested
from tidemark.hudi_format.hfile import write_hfile
from tidemark.hudi_format.metadata_table import MetadataTableSnapshot
from tidemark.hudi_format.metadata_table.partitioned_index import layout_of
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX_FOLDER
from tidemark.hudi_format.metadata_table.partitions.record_index_codec import encode_values
from tidemark.hudi_format.metadata_table.record_schema import metadata_record_schema
from tidemark.hudi_format.partitioned_lanes import identity_lanes
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action
from tidemark.hudi_format.timeline.avro_records import CommitMetadata, encode_commit_metadata
from tidemark.index_assigner.index import due_loads
from tidemark.index_assigner.runs import files

UNITS = 200
ENTRIES_MIN = due_loads._ENTRIES_MIN


def base_file(keys: list[str]) -> bytes:
    """A base file of the record index with these keys, all in file group 1 of partition "p"."""
    found = entries(dict.fromkeys(sorted(keys), 1))
    values = encode_values(found.location_ids, found.locations, found.instant_ms)
    return write_hfile(found.keys, values, metadata_record_schema())


def compact(table: PartitionedTable, content: bytes) -> None:
    """Gives each group a base file with this content."""
    by = Unfenced(table.storage)
    requested = create_requested(by, table.times.next(), Action.COMPACTION, b"plan", root=METADATA_TABLE_ROOT)
    inflight = create_inflight(by, requested, root=METADATA_TABLE_ROOT)
    snapshot = MetadataTableSnapshot.load(table.storage)
    for group in layout_of(snapshot).groups():
        name = snapshot.shard(group.shard, group.partition_path).file_id
        path = f"{RECORD_INDEX_FOLDER}/{name}_0-0-0_{inflight.requested}.hfile"
        table.storage.create(path, content)
    metadata = encode_commit_metadata(CommitMetadata(compacted=True))
    complete(by, inflight, table.times.next(), metadata, root=METADATA_TABLE_ROOT)


def partitioned(keys: list[str], paths: list[str]) -> PartitionedTable:
    table = PartitionedTable()
    table.commit({(path, keys[0]): 1 for path in paths}, 1)
    compact(table, base_file(keys))
    return table


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[list[Process]]:
    made: list[Process] = []
    yield made
    for process in made:
        process.close()


def absent_rows(paths: list[str]) -> list[Identity]:
    """One row of each path, which is not there, in lane 0."""
    rows = [(path, f"x-{number}") for path in paths for number in range(20)]
    keys, ids = pa.array([key for _, key in rows]), np.arange(len(paths), dtype=np.int32).repeat(20)
    lanes = identity_lanes(keys, ids, paths, LANES)
    chosen = {row[0]: row for row, lane in zip(rows, lanes.tolist(), strict=True) if lane == 0}
    assert len(chosen) == len(paths)
    return list(chosen.values())


def is_found(process: Process, rows: list[Identity]) -> bool:
    return bool(process.index.lookup(0, *process.columns(rows)).stored.present.any())


def test_an_open_unit_keeps_no_tail_of_its_base_file(
    tmp_path: Path, processes: list[Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(due_loads, "_ENTRIES_MIN", ENTRIES_MIN)
    keys = [sha256(str(number).encode()).hexdigest() for number in range(1_800)]
    paths = [f"p{number}" for number in range(UNITS + 20)]
    table = partitioned(keys, paths)
    assert len(base_file(keys)) > 72_000
    process = Process(table, tmp_path / "cache", units_max=len(paths))
    process.index._units._numbers_max = 2 * len(paths)
    processes.append(process)
    asked = absent_rows(paths)
    assert not is_found(process, asked[:20])
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        assert not is_found(process, asked[20:])
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(process.index._open) == len(paths)
    assert process.index.stats()["blocks_read"] >= len(paths)
    assert taken / UNITS < 8 << 10, f"{taken / UNITS:.0f} bytes a unit"


@pytest.mark.parametrize("wanted", [False, True])
def test_a_shard_whose_copy_is_whole_lets_go_of_its_base_file(
    assigners, table: DataTable, wanted: bool
) -> None:
    one: Assigner = assigners(table).open()
    one.ask(["absent"])
    readers = [weakref.ref(shard.snapshot.base) for shard in one.index._held.openings()]
    assert all(reader() is not None for reader in readers)
    if wanted:
        one.index.warm(start=True)
        while one.index.warm(start=False).left:
            one.index.load_on()
    else:
        load_runs(one, list(MANY))
    gc.collect()
    assert one.index.stats()["run_entries"] == len(MANY)
    assert [reader() for reader in readers] == [None] * table.shards
    # Whoever asks for the progress, or looks keys up, does not miss the files.
    for info in table.storage.list(RECORD_INDEX_FOLDER):
        if info.name.endswith(".hfile"):
            table.storage.delete(info.path)
    assert one.index.warm(start=True).loaded == table.shards
    assert {found.group for found in one.ask(list(MANY)).values()} == {1, 2, 3}


def test_small_units_get_run_files_once_their_blocks_were_read_often(
    tmp_path: Path, processes: list[Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nobody lists or measures the files that are there at each further one."""
    monkeypatch.setattr(due_loads, "_ENTRIES_MIN", ENTRIES_MIN)
    keys, paths = [f"k{number}" for number in range(10)], [f"p{number}" for number in range(60)]
    process = Process(partitioned(keys, paths), tmp_path / "cache", units_max=len(paths))
    process.index._units._numbers_max = 2 * len(paths)
    processes.append(process)
    asked = absent_rows(paths)
    for _ in range(due_loads._SMALL_READ_TIMES):
        assert not is_found(process, asked)
    stats = process.index.stats()
    assert stats["blocks_read"] == due_loads._SMALL_READ_TIMES * len(paths), "look-ups read their only blocks"
    assert stats["runs_loaded"] == stats["run_bytes"] == 0
    measured: list[Path] = []
    taken, glob = files._taken, Path.glob

    def noted_taken(file: Path) -> int | None:
        measured.append(file)
        return taken(file)

    def noted_glob(path: Path, pattern: str) -> Iterator[Path]:
        measured.append(path)
        return glob(path, pattern)

    monkeypatch.setattr(files, "_taken", noted_taken)
    monkeypatch.setattr(Path, "glob", noted_glob)
    for _ in range(3 * len(paths)):
        assert not is_found(process, asked)
    stats = process.index.stats()
    assert stats["runs_loaded"] == stats["run_shards"] == len(paths)
    assert len(measured) == len(paths), "each new file once"
    assert stats["run_bytes"] == sum(file.stat().st_size for file in (tmp_path / "cache/runs").iterdir())


def test_a_load_that_follows_another_lanes_finds_out_by_itself_that_the_base_file_is_gone(
    tmp_path: Path, processes: list[Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Units of two lanes share a base file. It vanishes when the copy of the first one is published."""
    rows = [("p", f"k{number}") for number in range(40)]
    table = partitioned([key for _, key in rows], ["p"])
    process = Process(table, tmp_path / "cache")
    processes.append(process)
    assert process.ask(rows) == dict.fromkeys(rows, 1)
    process.index._runs.end_load()
    publish = files.RunFolder.publish

    def published(folder: files.RunFolder, name: str) -> None:
        for info in table.storage.list(RECORD_INDEX_FOLDER):
            if info.name.endswith(".hfile"):
                table.storage.delete(info.path)
        publish(folder, name)

    monkeypatch.setattr(files.RunFolder, "publish", published)
    process.index._runs.want(process.index._held.openings())
    assert len(process.index._held.openings()) == LANES
    while process.index._runs._wanted_left():
        process.index.load_on()
    assert process.index.stats()["runs_loaded"] == 1
    assert [shard.is_base_gone for shard in process.index._held.openings()].count(True) == 1
