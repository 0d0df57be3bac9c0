"""Compactions of data file groups: the new base file has the rows that a reader of the slice sees, whether or
not the log files fit the memory.
"""

from __future__ import annotations

import io
import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from testing.memory_storage import InMemoryStorage
from tests.unit.hudi_format.file_group.test_slice_reader import (
    COMMIT,
    EVENT,
    FILE_ID,
    ORDERING,
    SCHEMA,
    Log,
    Row,
    instant,
    rows_table,
    stored_slice,
)
from tidemark.hudi_format import parquet_files
from tidemark.hudi_format.bloom import BloomSpec
from tidemark.hudi_format.column_ranges import column_ranges
from tidemark.hudi_format.errors import CorruptFileError, UnsupportedTableError
from tidemark.hudi_format.file_group.base_file import RECORD_KEY, write_base_file
from tidemark.hudi_format.file_group.changes import Changes
from tidemark.hudi_format.file_group.slice_reader import read_slice
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.key_digest import key_digest
from tidemark.hudi_format.log_file import BlockType, HeaderKey, LogBlock, frame_block, read_block_at
from tidemark.hudi_format.schema import SchemaError, TableSchema
from tidemark.hudi_format.table_config import MergeMode
from tidemark.hudi_format.table_services.merging import data_group, log_parts
from tidemark.hudi_format.table_services.merging.bounds import MergeBounds, MergeCounts
from tidemark.hudi_format.table_services.merging.data_group import RowRules, merge_data_group
from tidemark.hudi_format.table_services.operations import MergeOperation

NAME = f"{FILE_ID}_0-0-0_20260102000000000.parquet"


@pytest.fixture(autouse=True)
def _only_rows_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounds here are smaller than the objects of a table."""
    monkeypatch.setattr(log_parts, "_CONTENT_BYTES", 0)
    monkeypatch.setattr(data_group, "_CHANGES_BYTES", 0)


class Held(MergeBounds):
    @property
    def held_bytes(self) -> int:
        return self.memory_bytes


def merge(
    storage: InMemoryStorage,
    file_slice: FileSlice,
    mode: MergeMode,
    scratch: Path,
    held: int = 1 << 30,
    schema: TableSchema = SCHEMA,
) -> tuple[pq.ParquetFile, MergeCounts]:
    operation = MergeOperation(
        file_slice.partition_path,
        file_slice.file_id,
        file_slice.base_instant,
        file_slice.base_file,
        file_slice.log_files,
        0,
        0,
    )
    sink = io.BytesIO()
    indexed = [RECORD_KEY, *schema.arrow.names]
    rules = RowRules(schema, mode, ORDERING if mode is EVENT else None, indexed)
    counts = merge_data_group(storage, operation, rules, NAME, sink, Held(held, scratch))
    assert counts.size == len(sink.getvalue())
    return pq.ParquetFile(sink), counts


def by_key(rows: pa.Table) -> dict[str, dict[str, object]]:
    found = {row["_hoodie_record_key"]: row for row in rows.to_pylist()}
    assert len(found) == rows.num_rows
    return found


def random_slice(rng: random.Random, storage: InMemoryStorage, mode: MergeMode) -> FileSlice:
    keys = [f"k{number}" for number in range(rng.choice([4, 60]))]
    base: list[Row] | None = None
    if rng.random() < 0.8:
        base = [(key, rng.randrange(6), "base", False) for key in rng.sample(keys, rng.randrange(len(keys)))]
    logs = []
    for number in range(rng.randrange(1, 8)):
        some = rng.sample(keys, rng.randrange(1, len(keys)))
        at = rng.randrange(len(some))
        rows = [(key, rng.randrange(6), f"log {number}", rng.random() < 0.2) for key in some[:at]]
        deletes = [(key, rng.choice([None, rng.randrange(1, 6)])) for key in some[at:]]
        logs.append(Log(rows, deletes))
    return stored_slice(storage, base, logs, mode)


@pytest.mark.parametrize("mode", [EVENT, COMMIT])
@pytest.mark.parametrize("seed", range(6))
def test_the_new_base_file_has_the_rows_that_readers_see(
    seed: int, mode: MergeMode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(parquet_files, "_BATCH_ROWS", rng.choice([3, 1000]))
    monkeypatch.setattr(parquet_files, "_BATCH_BYTES", 1)
    storage = InMemoryStorage()
    file_slice = random_slice(rng, storage, mode)
    ordering = ORDERING if mode is EVENT else None
    expected = by_key(read_slice(storage, file_slice, SCHEMA, mode, ordering))
    before = {}
    if file_slice.base_file is not None:
        bare = FileSlice("eu", FILE_ID, file_slice.base_file, instant(0))
        before = by_key(read_slice(storage, bare, SCHEMA, mode, ordering))
    for row in expected.values():
        row["_hoodie_file_name"] = NAME
    # Held bytes of next to nothing divide everything as often as there are bits for.
    for held, holds_rows in ((1 << 30, False), (1500, False), (1 << 30, True), (1500, True)):
        scratch = tmp_path / f"{held} {holds_rows}"
        scratch.mkdir()
        with monkeypatch.context() as patched:
            if holds_rows:
                patched.setattr(data_group._GroupMerge, "_changes_alone", lambda _: None)
            merged, counts = merge(storage, file_slice, mode, scratch, held)
        assert by_key(merged.read()) == expected, held
        assert held > 1500 or not holds_rows or len(expected) < 20 or (scratch / "depth-0").exists()
        assert counts.digest == key_digest(pa.array(list(expected), pa.string()))
        assert counts.ranges == column_ranges(merged.read(), [RECORD_KEY, *SCHEMA.arrow.names])
        assert counts.rows == len(expected)
        assert counts.inserts == len(expected.keys() - before.keys())
        assert counts.deletes == len(before.keys() - expected.keys())
        times = [expected[key]["_hoodie_commit_time"] for key in expected.keys() & before.keys()]
        assert counts.updates == sum(time != instant(0) for time in times)
        assert held == 1500 or list(scratch.iterdir()) == []


def test_a_block_none_of_whose_rows_count_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = InMemoryStorage()
    logs = [Log([(f"k{number}", round_, "x", False) for number in range(20)]) for round_ in range(40)]
    file_slice = stored_slice(storage, [("k0", 0, "base", False)], logs, EVENT)
    read = []

    def counted(file: pa.NativeFile, path: str, offset: int) -> LogBlock:
        read.append(path)
        return read_block_at(file, path, offset)

    monkeypatch.setattr(data_group, "read_block_at", counted)
    merged, counts = merge(storage, file_slice, EVENT, tmp_path)
    assert len(read) == 41
    assert read[-1].endswith(file_slice.log_files[-1])
    assert (merged.metadata.num_rows, counts.updates, counts.inserts) == (20, 1, 19)


def test_rows_that_are_updated_again_and_again_do_not_go_to_disk(tmp_path: Path) -> None:
    storage = InMemoryStorage()
    logs = [Log([(f"k{number}", round_, "x" * 50, False) for number in range(20)]) for round_ in range(40)]
    file_slice = stored_slice(storage, [], logs, EVENT)
    merged, counts = merge(storage, file_slice, EVENT, tmp_path, held=20_000)
    assert list(tmp_path.iterdir()) == []
    assert (merged.metadata.num_rows, counts.log_records, counts.inserts) == (20, 800, 20)


def test_changes_of_many_small_blocks_are_reduced_before_their_objects_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = InMemoryStorage()
    logs = [Log([(f"k{round_ % 3}", round_, "x", False)]) for round_ in range(40)]
    file_slice = stored_slice(storage, [], logs, EVENT)
    held, real = [], Changes.concat

    def concat(parts: Sequence[Changes], starts: Sequence[int]) -> Changes:
        held.append(len(parts))
        return real(parts, starts)

    monkeypatch.setattr(Changes, "concat", concat)
    monkeypatch.setattr(data_group, "_CHANGES_BYTES", 1_000)
    merged, counts = merge(storage, file_slice, EVENT, tmp_path, held=10_000)
    assert max(held) <= 11
    assert (merged.metadata.num_rows, counts.log_records, counts.inserts) == (3, 40, 3)


def test_the_changes_of_one_key_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    storage = InMemoryStorage()
    file_slice = stored_slice(storage, [], [Log([("k", 1, "x" * 500, False)])], EVENT)
    with pytest.raises(UnsupportedTableError, match="task_memory"):
        merge(storage, file_slice, EVENT, tmp_path, held=20)


def test_footer_and_meta_columns_are_those_of_a_base_file(tmp_path: Path) -> None:
    storage = InMemoryStorage()
    base = [(f"k{number}", 1, "base", False) for number in range(5)]
    name = f"{FILE_ID}_0-0-0_{instant(0)}.parquet"
    file_slice = stored_slice(storage, None, [Log([("k1", 2, "log", False)], [("k2", 5)])], EVENT)
    bloom = BloomSpec()
    storage.create(f"eu/{name}", write_base_file(rows_table(base, 0, name), SCHEMA, bloom=bloom))
    file_slice = FileSlice("eu", FILE_ID, name, instant(0), file_slice.log_files)
    merged, _ = merge(storage, file_slice, EVENT, tmp_path)
    rows = merged.read()
    whole = pq.ParquetFile(io.BytesIO(write_base_file(rows, SCHEMA, bloom=bloom)))
    assert merged.metadata.metadata == whole.metadata.metadata
    assert merged.schema == whole.schema
    assert by_key(rows)["k1"]["_hoodie_commit_time"] == instant(1)
    assert by_key(rows)["k0"]["_hoodie_commit_time"] == instant(0)
    assert set(rows.column("_hoodie_file_name").to_pylist()) == {NAME}


def test_a_group_whose_rows_are_all_deleted_becomes_a_file_of_no_rows(tmp_path: Path) -> None:
    storage = InMemoryStorage()
    file_slice = stored_slice(storage, [("k", 1, "base", False)], [Log([], [("k", None)])], EVENT)
    merged, counts = merge(storage, file_slice, EVENT, tmp_path)
    assert (merged.metadata.num_rows, counts.rows, counts.deletes, counts.digest) == (0, 0, 1, (0, 0))
    assert merged.schema_arrow.names == SCHEMA.arrow_with_meta.names


def test_row_groups_are_written_as_they_come(tmp_path: Path) -> None:
    storage = InMemoryStorage()
    base = [(f"k{number:05d}", 1, "x" * 20, False) for number in range(2000)]
    file_slice = stored_slice(storage, base, [Log([("k1", 1, "y", False)])], EVENT)
    merged, _ = merge(storage, file_slice, EVENT, tmp_path, held=60_000)
    assert merged.metadata.num_row_groups > 1
    assert merged.metadata.num_rows == 2001


def test_what_would_lose_a_column_or_is_not_read_is_refused(tmp_path: Path) -> None:
    storage = InMemoryStorage()
    file_slice = stored_slice(storage, [("k", 1, "base", False)], [Log([("k", 2, "v", False)])], EVENT)
    narrow = TableSchema.from_arrow("t", pa.schema([field for field in SCHEMA.arrow if field.name != "v"]))
    with pytest.raises(SchemaError, match=r"lacks \(v\)"):
        merge(storage, file_slice, EVENT, tmp_path, schema=narrow)
    without_base = FileSlice("eu", FILE_ID, None, instant(1), file_slice.log_files)
    with pytest.raises(SchemaError, match=r"\.log\.1_0-0-0 has columns .*\(v\)"):
        merge(storage, without_base, EVENT, tmp_path, schema=narrow)
    log = f".{FILE_ID}_{instant(5)}.log.1_0-0-0"
    storage.create(f"eu/{log}", frame_block(BlockType.CDC_DATA, {HeaderKey.INSTANT_TIME: instant(5)}, b"x"))
    with pytest.raises(UnsupportedTableError, match="CDC_DATA"):
        merge(storage, FileSlice("eu", FILE_ID, None, instant(5), (log,)), EVENT, tmp_path)
    damaged = f".{FILE_ID}_{instant(6)}.log.1_0-0-0"
    storage.create(f"eu/{damaged}", storage.read(f"eu/{file_slice.log_files[0]}")[:-4])
    with pytest.raises(CorruptFileError, match="damaged log block"):
        merge(storage, FileSlice("eu", FILE_ID, None, instant(6), (damaged,)), EVENT, tmp_path)


def test_parts_of_parts_are_divided_by_other_bits() -> None:
    keys = pa.array([f"k{number}" for number in range(4000)])
    first = log_parts.positions_of_parts(keys, 0)[3]
    within = log_parts.positions_of_parts(keys.take(pa.array(first)), 1)
    assert sum(map(len, within)) == len(first)
    assert min(map(len, within)) > 0
    assert 16 ** (data_group._DEPTH_MAX + 1) < 2**64
