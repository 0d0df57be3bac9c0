"""Column stats that Hudi 1.2.0 on Spark wrote (recipes/spark_stats_tables.py), record by record against
ours of the same rows.

Where the two differ Hudi is wrong, or ours is as good: of a base file with a NaN Hudi says 0.0 to 0.0
(apache/hudi#18754), and our bounds of long strings are cut.
"""

from __future__ import annotations

import base64
import json
import math
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tidemark.hudi_format.column_ranges import (
    BOUND_CHARS_MAX,
    ColumnRange,
    ValueType,
    column_ranges,
    decimal_bytes,
    has_ranges,
)
from tidemark.hudi_format.file_group.base_file import read_base_file
from tidemark.hudi_format.file_group.log_blocks import read_data_log
from tidemark.hudi_format.index_definitions import (
    column_stats_definition,
    read_index_definitions,
    stats_columns,
)
from tidemark.hudi_format.log_file import BlockType, encode_deletes, read_blocks
from tidemark.hudi_format.metadata_table.log_records import read_log_blocks, slice_entries, stored_entries
from tidemark.hudi_format.metadata_table.partitions.column_stats import (
    COLUMN_STATS,
    StatsChanges,
    column_stats_key,
    file_keys,
)
from tidemark.hudi_format.metadata_table.partitions.column_stats_codec import (
    ColumnStats,
    decode_stats,
    encode_stats,
)
from tidemark.hudi_format.metadata_table.partitions.partition import METADATA_TABLE_PATH, StoredEntries
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot, metadata_slices
from tidemark.hudi_format.model import ShardId
from tidemark.hudi_format.ordering import table_ordering
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.hudi_format.schema import META_SCHEMA, TableSchema, cast_rows
from tidemark.hudi_format.storage import LocalStorage
from tidemark.hudi_format.table_config import read_table_config
from tidemark.hudi_format.timeline import load_timeline
from tidemark.hudi_format.timeline.avro_records import decode_commit_metadata

TABLES = Path(__file__).parent / "column_stats"
FOLDER = f"{METADATA_TABLE_PATH}/column_stats"
GROUPS = 2
INSTANT = "20260101000000000"


class SparkTable:
    """One unpacked table, and what Spark said about its stats."""

    def __init__(self, name: str, folder: Path) -> None:
        with zipfile.ZipFile(TABLES / f"{name}.zip") as archive:
            archive.extractall(folder)
        self.expected: dict[str, Any] = json.loads((TABLES / f"{name}.expected.json").read_text("ascii"))
        self.storage = LocalStorage(str(folder))
        completed = load_timeline(self.storage).completed()
        newest = max(
            (each for each in completed if "commit" in each.action.value), key=lambda each: each.requested
        )
        content = self.storage.read(f".hoodie/timeline/{newest.file_name}")
        self.schema = TableSchema.from_avro(decode_commit_metadata(content, "it").extra_metadata["schema"])

    @property
    def columns(self) -> list[str]:
        return stats_columns(read_index_definitions(self.storage))

    def parts(self) -> Iterator[StoredEntries]:
        """The entries of all slices, merged by whoever asks."""
        validity = MetadataTableSnapshot.load(self.storage).validity
        for each in metadata_slices({"column_stats": self.storage.names(FOLDER)}, validity):
            yield from slice_entries(self.storage, FOLDER, each, validity.is_valid)

    def log_parts(self) -> Iterator[tuple[int, StoredEntries]]:
        """(group, entries) of each block of each log file."""
        for name in self.storage.names(FOLDER):
            if name.startswith(".col-stats-"):
                for block in read_log_blocks(self.storage, FOLDER, [name]):
                    yield int(name.split("-")[2]), stored_entries(block)

    def rows(self, partition: str, name: str) -> pa.Table | None:
        """The rows of a data file with the table's columns; None where the file was cleaned away."""
        path = f"{partition}/{name}"
        if not self.storage.exists(path):
            return None
        wanted = self.schema.arrow_with_meta
        if not name.startswith("."):
            return cast_rows(read_base_file(self.storage, path), wanted)
        mode, ordering = table_ordering(read_table_config(self.storage), self.schema)
        return read_data_log(self.storage, path, wanted, mode, ordering).rows


@pytest.fixture(scope="module", params=["mor", "cow"])
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SparkTable:
    return SparkTable(request.param, tmp_path_factory.mktemp(request.param))


def partition_of(table: SparkTable, name: str, key: str) -> str:
    found = [each for each in ("eu", "us", "a b=c") if column_stats_key("i", each, name)[12:24] == key[12:24]]
    assert len(found) == 1, name
    return found[0]


def test_records_have_our_keys_groups_and_bytes(table: SparkTable) -> None:
    records = 0
    for group, part in table.log_parts():
        if part.values is None or not len(part.keys):
            continue
        assert set(record_index_shard(part.keys, GROUPS).tolist()) == {group}
        for key, value in zip(part.keys.to_pylist(), part.values.to_pylist(), strict=True):
            stats = decode_stats(value, part.schema, part.source)
            assert encode_stats(stats) == value
            partition = partition_of(table, stats.file_name, key)
            assert key == column_stats_key(stats.range.column, partition, stats.file_name)
            records += 1
    assert records >= 19 * 4


def test_merged_records_are_those_that_hudi_reads(table: SparkTable) -> None:
    merged = COLUMN_STATS.merge(table.parts())
    assert {key: as_json(stats) for key, stats in merged.items()} == {
        key: without_branches(stats) for key, stats in table.expected["column_stats"].items()
    }


def as_json(stats: ColumnStats) -> dict[str, Any]:
    found = stats.range
    return {
        "fileName": stats.file_name, "columnName": found.column,
        "minValue": found.low, "maxValue": found.high, "valueCount": found.values, "nullCount": found.nulls,
        "totalSize": stats.sizes[0], "totalUncompressedSize": stats.sizes[1], "isDeleted": stats.is_deleted,
        "isTightBound": stats.is_tight,
        "valueType": {"typeOrdinal": found.type.kind, "additionalInfo": found.type.info},
    }  # fmt: skip


def without_branches(stats: dict[str, Any]) -> dict[str, Any]:
    """Spark shows a union as a record of all its branches, and bytes in base64."""
    plain = dict(stats)
    for name in ("minValue", "maxValue"):
        branches = [value for value in (stats[name] or {}).values() if value is not None]
        plain[name] = branches[0]["value"] if branches else None
    if (
        plain["valueType"]["typeOrdinal"] in (ValueType.BYTES, ValueType.DECIMAL)
        and plain["minValue"] is not None
    ):
        for name in ("minValue", "maxValue"):
            plain[name] = base64.b64decode(plain[name])
    return plain


def test_hudi_s_ranges_are_those_of_the_rows(table: SparkTable) -> None:
    """Of each column that can have ranges, for each file that is still there."""
    compared, nans = 0, 0
    for key, stats in COLUMN_STATS.merge(table.parts()).items():
        column = stats.range.column
        arrow = table.schema.arrow_with_meta.field(column).type
        rows = table.rows(partition_of(table, stats.file_name, key), stats.file_name)
        if rows is None or not has_ranges(arrow):
            continue
        found = column_ranges(rows, [column])
        if not rows.num_rows:
            # Hudi writes records that say nothing for a log file without rows; we write none.
            assert stats.range.type.kind is ValueType.NULL
            assert not stats.range.values
            assert not found
            continue
        (ours,) = found
        if ours.high == math.inf:
            assert (stats.range.low, stats.range.high) == (0.0, 0.0)
            nans += 1
            continue
        assert shortened(stats.range) == ours
        compared += 1
    assert compared > 60
    assert nans


def shortened(found: ColumnRange) -> ColumnRange:
    """Hudi's range with long bounds cut as ours are: the only one here is of 300 times x."""
    low, high, x = found.low, found.high, "x" * 300
    cut = x[: BOUND_CHARS_MAX - 1]
    return replace(found, low=cut + "x" if low == x else low, high=cut + "y" if high == x else high)


def test_a_clean_deletes_records_by_the_block_that_we_write(table: SparkTable) -> None:
    deletes = 0
    for name in table.storage.names(FOLDER):
        if not name.startswith(".col-stats-"):
            continue
        group = ShardId(int(name.split("-")[2]))
        for sourced in read_log_blocks(table.storage, FOLDER, [name]):
            if sourced.block.block_type is not BlockType.DELETE or "_0000000000000000" in name:
                continue
            keys = stored_entries(sourced).keys.to_pylist()
            changes = StatsChanges(deleted=keys)
            assert list(changes.by_group(GROUPS)) == [group]
            _, data = COLUMN_STATS.log_file(changes, INSTANT, group)
            assert sorted_deletes(data, keys) == sourced.block.content
            deletes += len(keys)
    assert deletes >= 19


def sorted_deletes(data: bytes, order: list[str]) -> bytes:
    """The content of our delete block with the keys in Hudi's order, which is none."""
    (block,) = read_blocks(data, "ours")
    ordered = encode_deletes(pa.array(sorted(order)), "column_stats")
    assert block.content == ordered
    return encode_deletes(pa.array(order), "column_stats")


def test_the_deleted_keys_are_those_of_whole_files(table: SparkTable) -> None:
    """Of every column of `sourceFields`, also for files whose record says nothing."""
    written: dict[str, tuple[str, str]] = {}
    gone: set[str] = set()
    for _, part in table.log_parts():
        if part.values is None:
            gone |= set(part.keys.to_pylist())
        else:
            for key, value in zip(part.keys.to_pylist(), part.values.to_pylist(), strict=True):
                name = decode_stats(value, part.schema, part.source).file_name
                written[key] = (partition_of(table, name, key), name)
    files = {written[key] for key in gone & written.keys()}
    assert gone & written.keys() == {
        key for partition, name in files for key in file_keys(partition, name, table.columns)
    }


def test_the_definition_is_hudi_s(table: SparkTable) -> None:
    definitions = read_index_definitions(table.storage)
    user = [name for name in table.columns if name not in META_SCHEMA.names]
    assert definitions["column_stats"] == column_stats_definition(user)


def test_decimals_are_java_s_bytes() -> None:
    # BigInteger.toByteArray of each, by the JVM.
    for number, hex_bytes in {0: "00", 127: "7f", 128: "0080", -128: "80", -129: "ff7f", 255: "00ff"}.items():
        assert decimal_bytes(number).hex() == hex_bytes
