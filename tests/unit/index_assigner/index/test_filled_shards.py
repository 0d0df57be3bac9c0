"""What a shard costs that is filled from many log files: the start of an assigner without a cache."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from rocksdict import WriteBatch

from tests.unit.hudi_format.metadata_table.test_partitioned_index import PartitionedTable
from tests.unit.hudi_format.metadata_tables import file_id
from tests.unit.index_assigner.index.test_gone_keys import entries
from tests.unit.index_assigner.index_world import DataTable
from tidemark.hudi_format.metadata_table import MetadataTableSnapshot, RecordIndexEntries, log_records
from tidemark.hudi_format.metadata_table.partitions.partition import StoredEntries
from tidemark.hudi_format.model import RecordLocation, ShardId
from tidemark.index_assigner.index.kept_changes import KeptChanges, SharedReads
from tidemark.index_assigner.index.limits import IndexLimits
from tidemark.index_assigner.index.rocks import RocksTier

LOGS = 12


@pytest.fixture
def table() -> DataTable:
    """One shard with a base file and twelve log files, each of which places, moves and deletes keys."""
    table = DataTable(shards=1)
    table.commit_rows({f"k{number:03d}": (1, 1) for number in range(100)})
    table.compact_index(clean=True)
    for log in range(LOGS):
        moved = {f"k{number:03d}": (2 + log % 2, 2 + log) for number in range(log, 100, 7)}
        gone = [key for key in list(table.rows)[::11] if key not in moved]
        table.commit_rows({**moved, f"new{log}": (3, 2)}, dict.fromkeys(gone, 2 + log))
    return table


@pytest.mark.parametrize("memory", [16 << 20, 1 << 10])
def test_log_files_are_read_once_where_they_fit_into_memory_and_answers_are_the_table_s(
    assigners, table: DataTable, monkeypatch: pytest.MonkeyPatch, memory: int
) -> None:
    read: Counter[str] = Counter()
    stored_entries = log_records.stored_entries

    def counted(source: log_records.SourcedBlock) -> StoredEntries:
        read[f"{source.path} {source.block.offset}"] += 1
        return stored_entries(source)

    monkeypatch.setattr(log_records, "stored_entries", counted)
    one = assigners(table, limits=IndexLimits(memory, 1 << 30)).open(table.known())
    assert len(read) >= LOGS
    assert set(read.values()) == {1} if memory > 1 << 20 else min(read.values()) > 1
    keys = [f"k{number:03d}" for number in range(100)] + [f"new{log}" for log in range(LOGS)]
    found = {key: each.group for key, each in one.ask(keys).items()}
    assert found == {key: table.rows[key][0] if key in table.rows else None for key in keys}


def test_a_shard_is_filled_by_one_batch_however_many_log_files_it_has(
    assigners, table: DataTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each log file was a file of RocksDB's own: two syncs, 25 ms, for a hundred files in each shard."""
    sizes = []
    write = RocksTier._write

    def noted(rocks: RocksTier, batch: WriteBatch) -> None:
        sizes.append(len(batch))
        write(rocks, batch)

    monkeypatch.setattr(RocksTier, "_write", noted)
    one = assigners(table).open(table.known())
    # Other batches name file groups, of which the log files have three.
    assert max(sizes) > sum(sizes) - max(sizes)
    assert len(sizes) <= 1 + 3
    assert not list(one.folder.glob("*.sst"))


def test_kept_changes_are_read_anew_where_they_are_too_many() -> None:
    parts = [entries({f"k{number}": True}) for number in range(5)]
    reads = []

    def changes() -> Iterator[RecordIndexEntries]:
        reads.append(1)
        yield from parts

    size = sum(part.nbytes for part in parts)
    for bytes_max, wanted in ((size, 1), (size - 1, 3)):
        reads.clear()
        kept = KeptChanges(changes, bytes_max)
        assert next(kept()) is parts[0]  # a reading that is given up keeps nothing
        assert [list(kept()) for _ in range(2)] == [parts, parts]
        assert len(reads) == wanted + (1 if wanted == 1 else 0)


def test_kept_changes_take_no_more_memory_than_they_say() -> None:
    """Here most of it are the names of locations, which are no columns."""
    keys, ids = pa.array([f"k{number}" for number in range(500)]), np.arange(500, dtype=np.int32)

    def changes() -> Iterator[RecordIndexEntries]:
        places = [RecordLocation("a/partition", file_id(number)) for number in range(500)]
        yield RecordIndexEntries(keys, ids, places, np.zeros(500, np.int64))

    kept = KeptChanges(changes, 1 << 20)
    tracemalloc.start()
    try:
        for _ in kept():
            pass
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 500 * 100 < held <= (kept.nbytes or 0)


def test_shared_reads_are_those_of_a_snapshot_as_far_as_they_fit() -> None:
    table = PartitionedTable()
    table.commit({(path, key): 1 for path in "abc" for key in "xy"}, 1)
    table.commit({("large", f"k{number}"): 1 for number in range(2_000)}, 1)
    snapshot = MetadataTableSnapshot.load(table.storage)

    def read(path: str) -> KeptChanges:
        group = snapshot.shard(ShardId(0), path)
        changes = reads.log_parts(group, 1 << 20)
        assert sum(map(len, changes())) == (2_000 if path == "large" else 2)
        reads.keep(group, changes)
        return changes

    reads = SharedReads(0)
    size = read("a").nbytes or 0
    assert read("a") is not read("a"), "nothing fits"
    reads = SharedReads(2 * size)
    a, b = read("a"), read("b")
    assert read("large") is not read("large"), "it fits by no means, so nothing is forgotten for it"
    assert read("a") is a
    assert read("b") is b
    c = read("c")
    assert read("c") is c
    assert read("a") is not a, "it was forgotten for c"
    assert read("c") is c
    reads.forget()
    assert read("c") is not c


def test_shared_reads_hold_no_snapshot_whose_units_are_closed() -> None:
    table = PartitionedTable()
    table.commit({("a", "x"): 1}, 1)
    group = MetadataTableSnapshot.load(table.storage).shard(ShardId(0), "a")
    reads, held = SharedReads(1 << 20), weakref.ref(group)
    changes = reads.log_parts(group, 1 << 20)
    assert sum(map(len, changes())) == 1
    reads.keep(group, changes)
    assert reads.log_parts(group, 1 << 20) is changes
    del group
    gc.collect()
    assert held() is None
