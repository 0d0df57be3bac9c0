"""Compactions of index shards: the merged HFile says what a reader of the slice says, whatever was copied."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from testing.memory_storage import InMemoryStorage
from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.hfile import Codec, HFileOptions, HFileReader, write_hfile
from tidemark.hudi_format.key_digest import key_digest
from tidemark.hudi_format.log_file import BlockType, HeaderKey, encode_deletes, frame_block
from tidemark.hudi_format.metadata_table import FileChange
from tidemark.hudi_format.metadata_table.log_records import slice_entries
from tidemark.hudi_format.metadata_table.partitions.files import FILES, write_files_log
from tidemark.hudi_format.metadata_table.record_schema import metadata_record_schema
from tidemark.hudi_format.table_services.merging import index_shard, sorted_entries
from tidemark.hudi_format.table_services.merging.bounds import MergeBounds, MergeCounts
from tidemark.hudi_format.table_services.merging.index_shard import merge_index_shard
from tidemark.hudi_format.table_services.operations import MergeOperation

FOLDER = ".hoodie/metadata/record_index"
FILE_ID = "record-index-0000-0"
BASE = f"{FILE_ID}_0-0-0_20260101000000000.hfile"
NOW = "20260102000000000"


class Held(MergeBounds):
    """MergeBounds that hold next to nothing, or everything."""

    @property
    def held_bytes(self) -> int:
        return self.memory_bytes


class Pieces(list[bytes]):
    def write(self, data: bytes | memoryview) -> None:
        self.append(bytes(data))


def put_base(
    storage: InMemoryStorage, content: dict[str, bytes], block_bytes: int = 500, **options: Any
) -> None:
    keys = sorted(content, key=str.encode)
    data = write_hfile(
        pa.array(keys, pa.string()),
        pa.array([content[key] for key in keys], pa.binary()),
        metadata_record_schema(),
        HFileOptions(data_block_bytes=block_bytes, **options),
    )
    storage.create(f"{FOLDER}/{BASE}", data)


def put_log(
    storage: InMemoryStorage,
    number: int,
    changes: dict[str, bytes | None],
    schema: str = "",
    partition: str = "record_index",
    file_id: str = FILE_ID,
) -> str:
    instant = f"202601010001{number:05d}"
    headers = {HeaderKey.INSTANT_TIME: instant, HeaderKey.SCHEMA: schema or metadata_record_schema()}
    live = {
        key: value
        for key, value in sorted(changes.items(), key=lambda each: each[0].encode())
        if value is not None
    }
    data = b""
    if live:
        content = write_hfile(
            pa.array(list(live), pa.string()), pa.array(list(live.values()), pa.binary()), "s"
        )
        data += frame_block(BlockType.HFILE_DATA, headers, content)
    gone = [key for key, value in changes.items() if value is None]
    if gone:
        data += frame_block(BlockType.DELETE, headers, encode_deletes(pa.array(gone), partition))
    name = f".{file_id}_{instant}.log.1_0-0-0"
    storage.create(f".hoodie/metadata/{partition}/{name}", data)
    return name


def merge(
    storage: InMemoryStorage,
    logs: list[str],
    scratch: Path,
    held: int = 1 << 30,
    base: str | None = BASE,
    partition: str = "record_index",
    file_id: str = FILE_ID,
) -> tuple[HFileReader, MergeCounts]:
    operation = MergeOperation(partition, file_id, "20260101000000000", base, tuple(logs), 0, 0)
    sink = Pieces()
    counts = merge_index_shard(storage, operation, NOW, sink, Held(held, scratch))
    data = b"".join(sink)
    assert counts.size == len(data)
    return HFileReader.from_bytes(data, "merged"), counts


def content_of(reader: HFileReader) -> dict[str, bytes]:
    found = reader.read_all()
    keys = found.keys.to_pylist()
    assert keys == sorted(keys, key=str.encode)
    if keys:
        last = keys[-1].encode()
        assert reader.file_info["hfile.LASTKEY"] == len(last).to_bytes(2, "big") + last
    else:
        assert reader.file_info["hfile.LASTKEY"] == b""
    return dict(zip(keys, found.values.to_pylist(), strict=True))


def some_key(rng: random.Random, doubtful: bool) -> str:
    key = f"k{rng.randrange(400):03d}" * rng.randrange(1, 3)
    return key + rng.choice(["", "\U0001f600", "\uff21", "ä"]) if doubtful else key


@pytest.mark.parametrize("seed", range(24))
def test_the_merged_shard_is_what_the_newest_entries_say(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(index_shard, "_SMALL_BLOCK_BYTES", rng.choice([0, 100, 16 << 10]))
    monkeypatch.setattr(index_shard, "_GROUP_BYTES", rng.choice([1, 900, 1 << 20]))
    monkeypatch.setattr(sorted_entries, "_BATCH_BYTES", rng.choice([200, 1 << 18]))
    monkeypatch.setattr(sorted_entries, "RUNS_MAX", 3)
    doubtful = seed % 4 == 3
    storage = InMemoryStorage()
    before = {some_key(rng, doubtful): rng.randbytes(40) for _ in range(rng.choice([0, 1, 50, 400]))}
    codec = rng.choice([Codec.GZ, Codec.NONE])
    put_base(storage, before, codec=codec)
    expected, logs = dict(before), []
    for number in range(rng.randrange(12)):
        changes: dict[str, bytes | None] = {}
        for _ in range(rng.choice([1, 3, 60])):
            known = list(expected)
            key = rng.choice(known) if known and rng.random() < 0.5 else some_key(rng, doubtful)
            changes[key] = None if rng.random() < 0.4 else rng.randbytes(40)
        logs.append(put_log(storage, number, changes))
        for key, value in changes.items():
            expected.pop(key, None)
            if value is not None:
                expected[key] = value
    reader, counts = merge(storage, logs, tmp_path, held=rng.choice([500, 4000, 1 << 30]))
    assert content_of(reader) == expected
    assert reader.codec is codec
    assert counts.rows == len(expected) == reader.entry_count
    assert counts.inserts == len(expected.keys() - before.keys())
    assert counts.deletes == len(before.keys() - expected.keys())
    change = key_digest(pa.array(list(expected)))[1] - key_digest(pa.array(list(before), pa.string()))[1]
    assert counts.digest == (len(expected), change % 2**64)
    reader.locate(pa.array(["k1"]))


def test_blocks_without_a_change_are_copied_byte_for_byte(tmp_path: Path) -> None:
    storage = InMemoryStorage()
    put_base(storage, {f"k{number:06d}": bytes(200) for number in range(3000)}, block_bytes=64 << 10)
    old = HFileReader.open(storage, f"{FOLDER}/{BASE}")
    log = put_log(storage, 1, {"k000001": b"new", "k002999": None})
    reader, _ = merge(storage, [log], tmp_path)
    untouched = range(1, old.block_count - 1)
    assert len(untouched) > 5
    stored = {bytes(block.data) for block in reader.stored(range(reader.block_count))}
    assert all(bytes(block.data) in stored for block in old.stored(untouched))
    assert reader.block_count == old.block_count


def test_the_last_key_is_found_when_the_last_blocks_are_emptied(tmp_path: Path) -> None:
    storage = InMemoryStorage()
    before = {f"k{number:06d}": bytes(200) for number in range(3000)}
    put_base(storage, before, block_bytes=64 << 10)
    last = HFileReader.open(storage, f"{FOLDER}/{BASE}").first_keys[-1].as_py().decode()
    log = put_log(storage, 1, {key: None for key in before if key >= last})
    reader, counts = merge(storage, [log], tmp_path)
    assert content_of(reader) == {key: value for key, value in before.items() if key < last}
    assert counts.deletes > 0


def test_a_shard_whose_keys_are_all_deleted_is_a_file_without_entries(tmp_path: Path) -> None:
    storage = InMemoryStorage()
    put_base(storage, {"a": b"1", "b": b"2"})
    reader, counts = merge(storage, [put_log(storage, 1, {"a": None, "b": None})], tmp_path)
    assert (reader.entry_count, reader.block_count, content_of(reader)) == (0, 0, {})
    assert (counts.rows, counts.deletes, counts.digest[0]) == (0, 2, 0)
    assert reader.schema == metadata_record_schema()
    nothing, _ = merge(storage, [], tmp_path, base=None)
    assert nothing.entry_count == 0


def test_small_blocks_are_united_and_a_block_that_grew_is_divided_evenly(tmp_path: Path) -> None:
    storage = InMemoryStorage()
    # 3 blocks of 40 KiB entries: each grows by one entry of 30 KiB, so that it has to be divided.
    put_base(storage, {f"k{number}": bytes(60 << 10) for number in range(3)}, block_bytes=64 << 10)
    reader, _ = merge(storage, [put_log(storage, 1, {"k1a": bytes(10 << 10)})], tmp_path)
    assert reader.block_count == 4
    storage = InMemoryStorage()
    put_base(storage, {f"k{number:03d}": bytes(100) for number in range(100)}, block_bytes=500)
    reader, _ = merge(storage, [put_log(storage, 1, {"k000": b"new"})], tmp_path)
    assert reader.block_count == 1


def test_a_block_of_which_hudi_would_lose_entries_is_written_anew(tmp_path: Path) -> None:
    storage = InMemoryStorage()
    # One entry of 300 KiB that does not compress: its block has a checksum area of 76 bytes.
    put_base(storage, {"a": random.Random(1).randbytes(300 << 10), "b": b"2"}, block_bytes=64 << 10)
    old = HFileReader.open(storage, f"{FOLDER}/{BASE}")
    assert [block.checksum_bytes for block in old.stored([0, 1])] == [76, 4]
    reader, _ = merge(storage, [put_log(storage, 1, {"c": b"3"})], tmp_path)
    assert list(content_of(reader)) == ["a", "b", "c"]


def test_changes_of_one_block_that_do_not_fit_stream_through_it(tmp_path: Path) -> None:
    storage = InMemoryStorage()
    put_base(storage, {"z": b"1"})
    changes = [{f"k{number:02d}-{i:04d}": b"v" * 40 for i in range(200)} for number in range(20)]
    logs = [put_log(storage, number, {**each}) for number, each in enumerate(changes)]
    reader, counts = merge(storage, logs, tmp_path, held=20_000)
    assert counts.rows == len(content_of(reader)) == 4001
    assert [path.suffix for path in tmp_path.iterdir()].count(".arrow") > 1


def test_a_record_schema_of_another_layout_is_refused_by_name(tmp_path: Path) -> None:
    storage = InMemoryStorage()
    put_base(storage, {"a": b"1"})
    log = put_log(storage, 1, {"b": b"2"}, schema='{"type":"record","name":"other","fields":[]}')
    with pytest.raises(UnsupportedTableError, match=r"record-index.*another schema"):
        merge(storage, [log], tmp_path)
    operation = MergeOperation("bloom_filters", "bloom-filters-0000-0", "", None, (), 0, 0)
    with pytest.raises(UnsupportedTableError, match="bloom_filters"):
        merge_index_shard(storage, operation, NOW, Pieces(), MergeBounds(1 << 20, tmp_path))


@pytest.mark.parametrize("seed", range(6))
def test_the_list_of_files_merges_by_its_own_rule(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    storage = InMemoryStorage()
    folder = ".hoodie/metadata/files"
    names = [f"f{number}.parquet" for number in range(12)]
    logs = []
    for number in range(6):
        instant = f"202601010001{number:05d}"
        changes = [
            FileChange(rng.choice(["p", "q"]), name, rng.choice([None, 100, 200]))
            for name in rng.sample(names, 5)
        ]
        logs.append(f".files-0000-0_{instant}.log.1_0-0-0")
        storage.create(f"{folder}/{logs[-1]}", write_files_log(changes, instant))
    listed = FILES.merge(
        slice_entries(
            storage, folder, FileSlice("files", "files-0000-0", None, "", tuple(logs)), lambda _: True
        )
    )
    some = MergeOperation("files", "files-0000-0", "", None, tuple(logs[:3]), 0, 0)
    sink = Pieces()
    merge_index_shard(storage, some, NOW, sink, MergeBounds(1 << 20, tmp_path))
    base = f"files-0000-0_0-0-0_{NOW}.hfile"
    storage.create(f"{folder}/{base}", b"".join(sink))
    rest = MergeOperation("files", "files-0000-0", NOW, base, tuple(logs[3:]), 0, 0)
    sink = Pieces()
    counts = merge_index_shard(storage, rest, NOW, sink, MergeBounds(1 << 20, tmp_path))
    reader = HFileReader.from_bytes(b"".join(sink), "merged")
    again = FILES.merge([index_shard._stored(reader)])
    assert list(again) == list(listed)
    assert counts.rows == reader.entry_count
