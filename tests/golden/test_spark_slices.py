"""Tables that Hudi 1.2.0 on Spark wrote (recipes/spark_slice_tables.py), read slice by slice against
Spark's own reading.

They hold every column type, Avro data blocks, delete blocks with typed and with Int 0 ordering values,
updates that come too early, and bloom filters.
"""

from __future__ import annotations

import base64
import json
import struct
import zipfile
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidemark.hudi_format.bloom import BloomSpec, bloom_filter_text
from tidemark.hudi_format.file_group.slice_ordering import slice_ordering
from tidemark.hudi_format.file_group.slice_reader import read_slice
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.keys import KeyGenerator
from tidemark.hudi_format.ordering import OrderingField, table_ordering
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage import LocalStorage
from tidemark.hudi_format.table_config import MergeMode, TableConfig, read_table_config
from tidemark.hudi_format.table_view import TableView
from tidemark.hudi_format.timeline.avro_records import decode_commit_metadata

TABLES = Path(__file__).parent / "slices"
NAMES = ("mor_long", "mor_timestamp", "mor_double", "mor_commit_time", "cow_long")
_BLOOM_HEADER = struct.Struct(">iibi")
_DYNAMIC_HEADER_BYTES = 12


class SparkTable:
    """One unpacked table, with what is needed to read it."""

    def __init__(self, name: str, folder: Path) -> None:
        with zipfile.ZipFile(TABLES / f"{name}.zip") as archive:
            archive.extractall(folder)
        self.expected: dict[str, Any] = json.loads((TABLES / f"{name}.expected.json").read_text())
        self.storage = LocalStorage(str(folder))
        self.config: TableConfig = read_table_config(self.storage)
        self.schema_text = self._newest_schema()
        self.schema = TableSchema.from_avro(self.schema_text)
        self.mode: MergeMode
        self.ordering: OrderingField | None
        self.mode, self.ordering = table_ordering(self.config, self.schema)

    def slices(self) -> list[FileSlice]:
        names = [info.name for info in self.storage.list("") if not info.is_dir]
        return TableView.load(self.storage).slices({"": names})

    def read(self, columns: list[str] | None = None) -> pa.Table:
        tables = [
            read_slice(self.storage, each, self.schema, self.mode, self.ordering, columns)
            for each in self.slices()
        ]
        return pa.concat_tables(tables)

    def _newest_schema(self) -> str:
        names = [info.name for info in self.storage.list(".hoodie/timeline") if "_" in info.name]
        content = self.storage.read(f".hoodie/timeline/{max(names)}")
        return decode_commit_metadata(content, "the file").extra_metadata["schema"]


@pytest.fixture(scope="module", params=NAMES)
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SparkTable:
    return SparkTable(request.param, tmp_path_factory.mktemp(request.param))


def plain(value: Any) -> Any:
    """A value as the recipe's JSON has it."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, (date, Decimal)):
        return str(value).removesuffix("+00:00")
    if isinstance(value, dict):
        return [plain(each) for each in value.values()]
    return [plain(each) for each in value] if isinstance(value, list) else value


def test_schema_of_every_type_is_spark_s_own_text(table: SparkTable) -> None:
    assert json.loads(table.schema.avro_json) == json.loads(table.schema_text)


def test_rows_are_those_that_spark_reads(table: SparkTable) -> None:
    columns = table.expected["columns"]
    maps = [name for name in columns if pa.types.is_map(table.schema.arrow_with_meta.field(name).type)]
    rows = []
    for row in table.read(columns).to_pylist():
        for name in maps:
            row[name] = None if row[name] is None else dict(sorted(row[name]))
        rows.append([row[name] if name in maps else plain(row[name]) for name in columns])
    key = columns.index("_hoodie_record_key")
    assert sorted(rows, key=lambda row: row[key]) == table.expected["rows"]


def test_record_keys_are_made_as_spark_made_them(table: SparkTable) -> None:
    rows = table.read()
    generator = KeyGenerator.from_table_config(table.config, table.schema)
    assert generator.record_keys(rows).keys.to_pylist() == rows["_hoodie_record_key"].to_pylist()
    assert generator.partition_paths(rows).keys.to_pylist() == rows["_hoodie_partition_path"].to_pylist()


def test_stored_ordering_is_that_of_the_live_rows_and_knows_deleted_keys(table: SparkTable) -> None:
    rows = table.read()
    asked = pa.array([*[f"k{number:02d}" for number in range(24)], "k30", "nobody"])
    found = np.zeros(len(asked), np.bool_)
    deleted = np.zeros(len(asked), np.bool_)
    highest = np.full(len(asked), np.iinfo(np.int64).min)
    for each in table.slices():
        got = slice_ordering(table.storage, each, table.schema, asked, table.mode, table.ordering)
        found |= got.found
        deleted |= got.is_deleted
        highest = np.maximum(highest, got.ordering)
    on_read = table.config.is_merge_on_read
    live = rows["_hoodie_record_key"].to_pylist()
    # In a COPY_ON_WRITE table a deleted key leaves no trace.
    expected_found = [key in live or (on_read and key != "nobody") for key in asked.to_pylist()]
    assert found.tolist() == expected_found
    pairs = zip(expected_found, asked.to_pylist(), strict=True)
    assert deleted.tolist() == [known and key not in live for known, key in pairs]
    if table.ordering is not None:
        stored = dict(zip(live, table.ordering.to_int64(rows[table.ordering.name]).tolist(), strict=True))
        at = dict(zip(asked.to_pylist(), highest.tolist(), strict=True))
        assert {key: at[key] for key in live} == stored


def test_bloom_filters_are_byte_for_byte_those_of_spark(table: SparkTable) -> None:
    checked = 0
    for info in table.storage.list(""):
        if not info.name.endswith(".parquet"):
            continue
        with table.storage.open_input(info.path) as source:
            file = pq.ParquetFile(source)
            text = file.metadata.metadata[b"org.apache.hudi.bloomfilter"]
            keys = file.read(["_hoodie_record_key"])["_hoodie_record_key"]
        raw = base64.b64decode(text)[_BLOOM_HEADER.size + _DYNAMIC_HEADER_BYTES :]
        simple = base64.b64encode(raw).decode()
        assert bloom_filter_text(keys, BloomSpec(keys_min=100)) == simple
        checked += 1
    assert checked > 0
