"""Metadata tables that Hudi 1.2.0 on Spark wrote (recipes/spark_record_index_tables.py), read natively.

Among the keys are some that Java and UTF-8 sort differently, and every table has been compacted by Hudi
once, so base files, log blocks, delete blocks and a slice with logs on top of a base file all are Hudi's
own.
"""

from __future__ import annotations

import json
import uuid
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tidemark.hudi_format.hfile import AMBIGUOUS_BLOCK, HFileReader
from tidemark.hudi_format.log_file import (
    BlockType,
    OrderingType,
    decode_deletes,
    encode_deletes,
    frame_block,
    read_blocks,
)
from tidemark.hudi_format.metadata_table import (
    MetadataTableSnapshot,
    RecordIndexEntries,
    write_record_index_log,
)
from tidemark.hudi_format.metadata_table.partitions.partition import StoredEntries
from tidemark.hudi_format.metadata_table.partitions.record_index import (
    RECORD_INDEX_FOLDER,
    RECORD_INDEX_PARTITION,
    decode_entries,
    parse_record_index_file_id,
)
from tidemark.hudi_format.metadata_table.partitions.record_index_codec import encode_values
from tidemark.hudi_format.metadata_table.record_schema import has_own_layout
from tidemark.hudi_format.metadata_table.shard_changes import BEGINNING
from tidemark.hudi_format.model import ShardId
from tidemark.hudi_format.record_index_hash import java_hash, record_index_shard
from tidemark.hudi_format.storage import LocalStorage

TABLES = Path(__file__).parent / "record_index"
SMALL = ("mor_global", "cow_global", "mor_partitioned")
ALL = (*SMALL, "many_blocks")


class SparkTable:
    """One unpacked table, and what Spark said about it."""

    def __init__(self, name: str, folder: Path) -> None:
        with zipfile.ZipFile(TABLES / f"{name}.zip") as archive:
            archive.extractall(folder)
        self.folder = folder
        self.expected: dict[str, Any] = json.loads((TABLES / f"{name}.expected.json").read_text("ascii"))
        self.snapshot = MetadataTableSnapshot.load(LocalStorage(str(folder)))

    def index_files(self, pattern: str) -> list[Path]:
        return sorted((self.folder / RECORD_INDEX_FOLDER).glob(pattern))

    def shards(self) -> list[tuple[str | None, int]]:
        slices = self.snapshot.slices[RECORD_INDEX_PARTITION]
        partitions = dict.fromkeys(parse_record_index_file_id(each.file_id).partition_path for each in slices)
        return [(each, number) for each in partitions for number in range(self.snapshot.shard_count(each))]

    def expected_index(self) -> set[tuple[str, str, str, int]]:
        rows = self.expected["record_index"]
        return {(key, path, file_id(high, low, index), time) for key, path, high, low, index, time in rows}


def file_id(high: int, low: int, index: int) -> str:
    return f"{uuid.UUID(int=(high % 2**64) << 64 | low % 2**64)}-{index}"


def rows_of(entries: RecordIndexEntries) -> set[tuple[str, str, str, int]]:
    return {
        (key, entries.locations[number].partition_path, entries.locations[number].file_id, ms)
        for key, number, ms in zip(
            entries.keys.to_pylist(), entries.location_ids.tolist(), entries.instant_ms.tolist(), strict=True
        )
    }


@pytest.fixture(params=ALL)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> SparkTable:
    return SparkTable(request.param, tmp_path)


@pytest.fixture(params=SMALL)
def small_table(request: pytest.FixtureRequest, tmp_path: Path) -> SparkTable:
    return SparkTable(request.param, tmp_path)


def test_java_agrees_on_every_hash(small_table: SparkTable) -> None:
    hashes: dict[str, int] = small_table.expected["java_hash"]
    assert len(hashes) > 70
    assert java_hash(list(hashes)).tolist() == list(hashes.values())


def test_every_shard_holds_what_spark_says_and_only_its_own_keys(table: SparkTable) -> None:
    found: set[tuple[str, str, str, int]] = set()
    for partition, number in table.shards():
        entries = table.snapshot.shard(ShardId(number), partition).entries()
        shards = record_index_shard(entries.keys, table.snapshot.shard_count(partition))
        assert set(shards.tolist()) <= {number}
        found |= rows_of(entries)
    assert found >= table.expected_index()
    assert len(found) == table.expected.get("count", len(table.expected["record_index"]))


def test_the_index_names_the_file_groups_that_hold_the_rows(small_table: SparkTable) -> None:
    located = {(key, path): file_id for key, path, file_id, _ in small_table.expected_index()}
    rows = {(key, path): Path(name).name[:38] for key, path, name in small_table.expected["rows"]}
    assert rows == located
    index = {
        (key, path): file_id
        for partition, number in small_table.shards()
        for key, path, file_id, _ in rows_of(small_table.snapshot.shard(ShardId(number), partition).entries())
    }
    assert index == rows


def test_lookups_find_each_key_and_no_other(table: SparkTable) -> None:
    for partition, number in table.shards():
        shard = table.snapshot.shard(ShardId(number), partition)
        entries = shard.entries()
        absent = pa.array(["", "k", "zzz", "\U0001f601", "\uffff\uffff", "key-9999999"])
        answers = shard.lookup(pa.concat_arrays([entries.keys, absent]))
        assert answers.found.tolist() == [True] * len(entries) + [False] * len(absent)
        found = RecordIndexEntries(
            entries.keys,
            answers.location_ids[: len(entries)],
            answers.locations,
            answers.instant_ms[: len(entries)],
        )
        assert rows_of(found) == rows_of(entries)


def test_the_located_block_holds_the_key_unless_it_is_said_to_be_ambiguous(table: SparkTable) -> None:
    for partition, number in table.shards():
        shard = table.snapshot.shard(ShardId(number), partition)
        blocks = [shard.read_block(each).keys for each in range(shard.block_count)]
        for block, keys in enumerate(blocks):
            assert set(shard.locate(keys).tolist()) <= {block, AMBIGUOUS_BLOCK}


def test_hudi_sorts_by_utf16_units_in_the_files_it_writes(tmp_path: Path) -> None:
    """Why `locate` has a third answer."""
    table = SparkTable("mor_global", tmp_path)
    unsorted_files = []
    for path in table.index_files("*.hfile"):
        keys = HFileReader.from_bytes(path.read_bytes(), path.name).read_all().keys.to_pylist()
        assert keys == sorted(keys, key=lambda key: str(key).encode("utf-16-be"))
        unsorted_files += [path] if keys != sorted(keys, key=lambda key: str(key).encode()) else []
    assert unsorted_files


def test_values_and_framing_are_written_as_hudi_writes_them(table: SparkTable) -> None:
    kinds = set()
    for path in table.index_files(".record-index*"):
        data = path.read_bytes()
        blocks = read_blocks(data, path.name)
        assert b"".join(frame_block(each.block_type, each.headers, each.content) for each in blocks) == data
        for block in blocks:
            kinds.add(block.block_type)
            if block.block_type is BlockType.DELETE:
                deletes = decode_deletes(block.content, path.name)
                assert {
                    (each.partition_path, each.ordering_type, each.ordering_value) for each in deletes.targets
                } <= {("record_index", OrderingType.INT, 0)}
                assert encode_deletes(deletes.keys, "record_index") == block.content
                continue
            reader = HFileReader.from_bytes(block.content, path.name)
            assert has_own_layout(reader.schema)
            content = reader.read_all()
            entries = decode_entries(StoredEntries(content.keys, content.values, reader.schema, path.name))
            assert (
                encode_values(entries.location_ids, entries.locations, entries.instant_ms) == content.values
            )
    assert kinds == {BlockType.HFILE_DATA, BlockType.DELETE}


def test_files_larger_than_a_block_are_read_by_blocks(tmp_path: Path) -> None:
    table = SparkTable("many_blocks", tmp_path)
    shard = table.snapshot.shard(ShardId(0))
    assert shard.block_count > 1
    assert shard.base is not None
    in_blocks = sum(len(shard.read_block(number)) for number in range(shard.block_count))
    assert in_blocks == shard.base.entry_count
    first_keys = shard.base.first_keys
    assert pc.all(pc.less(first_keys[:-1], first_keys[1:])).as_py()


def test_the_changes_of_all_commits_add_up_to_the_index(small_table: SparkTable) -> None:
    for partition, number in small_table.shards():
        shard = small_table.snapshot.shard(ShardId(number), partition)
        changes = shard.changes_after(BEGINNING)
        assert changes is not None
        merged = RecordIndexEntries.newest_wins([entries for _, entries in changes])
        assert rows_of(merged.live()) == rows_of(shard.entries())
        commits = [each.requested for each in small_table.snapshot.data_timeline.completed()]
        assert [instant for instant, _ in changes] == [each for each in commits if each in dict(changes)]


def test_the_files_partition_lists_the_files_of_the_table(small_table: SparkTable) -> None:
    listed = {(path, name): size for path, name, size in small_table.snapshot.files}
    on_disk = {
        (str(path.parent.relative_to(small_table.folder)), path.name): path.stat().st_size
        for path in small_table.folder.rglob("*")
        if path.is_file() and ".hoodie" not in str(path.relative_to(small_table.folder))
    }
    assert listed == on_disk
    assert small_table.snapshot.files.partitions == sorted({path for path, _ in on_disk})


def test_a_log_block_written_natively_replaces_hudis_own(tmp_path: Path) -> None:
    """The same entries, written by this library into Hudi's log file, read back through the whole path."""
    table = SparkTable("mor_global", tmp_path)
    before = [rows_of(table.snapshot.shard(ShardId(number)).entries()) for _, number in table.shards()]
    rewritten = 0
    for path in table.index_files(".record-index*.log.1_*"):
        blocks = read_blocks(path.read_bytes(), path.name)
        data = [each for each in blocks if each.block_type is BlockType.HFILE_DATA]
        if len(blocks) != 1 or not data:
            continue
        content = HFileReader.from_bytes(data[0].content, path.name).read_all()
        entries = decode_entries(StoredEntries(content.keys, content.values, "", path.name))
        path.write_bytes(write_record_index_log(entries, blocks[0].instant_time))
        rewritten += 1
    assert rewritten >= 4
    again = MetadataTableSnapshot.load(LocalStorage(str(table.folder)))
    assert [rows_of(again.shard(ShardId(number)).entries()) for _, number in table.shards()] == before
