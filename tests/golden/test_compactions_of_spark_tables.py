"""Compactions of file groups that Hudi 1.2.0 on Spark wrote: Avro blocks, delete blocks with typed and with
Int 0 ordering values, folded blocks, partial rows, shards in UTF-16 order. The new base files say what the
readers say, and those are compared with Spark's own reading in the other modules here.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidemark.hudi_format.file_group.slice_reader import read_slice
from tidemark.hudi_format.hfile import HFileReader
from tidemark.hudi_format.key_digest import key_digest
from tidemark.hudi_format.metadata_table import MetadataTableSnapshot, ShardSnapshot
from tidemark.hudi_format.metadata_table.partitioned_index import layout_of
from tidemark.hudi_format.metadata_table.partitions.partition import StoredEntries
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX, RecordIndexEntries
from tidemark.hudi_format.model import shard_ids
from tidemark.hudi_format.ordering import table_ordering
from tidemark.hudi_format.storage import LocalStorage
from tidemark.hudi_format.table_config import read_table_config
from tidemark.hudi_format.table_schema import table_schema
from tidemark.hudi_format.table_services.merging import log_parts
from tidemark.hudi_format.table_services.merging.bounds import MergeBounds
from tidemark.hudi_format.table_services.merging.data_group import RowRules, merge_data_group
from tidemark.hudi_format.table_services.merging.index_shard import merge_index_shard
from tidemark.hudi_format.table_services.operations import MergeOperation
from tidemark.hudi_format.table_view import TableView

FOLDER = Path(__file__).parent
DATA = [
    *(f"slices/{name}" for name in ("mor_long", "mor_timestamp", "mor_double", "mor_commit_time")),
    *(f"operations/{name}" for name in ("log_compacted", "partial_event_time", "partial_commit_time")),
]
INDEXES = [f"record_index/{name}" for name in ("mor_global", "cow_global", "mor_partitioned", "many_blocks")]


def unpacked(name: str, folder: Path) -> LocalStorage:
    with zipfile.ZipFile(FOLDER / f"{name}.zip") as archive:
        archive.extractall(folder)
    return LocalStorage(folder)


class Held(MergeBounds):
    @property
    def held_bytes(self) -> int:
        return self.memory_bytes


@pytest.mark.parametrize("name", DATA)
def test_a_compacted_file_group_has_the_rows_of_its_slice(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_parts, "_CONTENT_BYTES", 0)
    storage = unpacked(name, tmp_path / "table")
    config = read_table_config(storage)
    view = TableView.load(storage)
    schema = table_schema(storage, config, view.timeline)
    assert schema is not None
    mode, ordering = table_ordering(config, schema)
    folders = {info.path.rpartition("/")[0] for info in storage.walk("") if info.name.endswith(".parquet")}
    names = {path: [info.name for info in storage.list(path)] for path in folders if ".hoodie" not in path}
    compacted = 0
    for number, each in enumerate(view.slices(names)):
        if not each.log_files:
            continue
        rows = read_slice(storage, each, schema, mode, ordering)
        operation = MergeOperation(
            each.partition_path, each.file_id, each.base_instant, each.base_file, each.log_files, 0, 0
        )
        for held in (1 << 30, 3000):
            scratch = tmp_path / f"{number}-{held}"
            scratch.mkdir()
            sink = io.BytesIO()
            rules = RowRules(schema, mode, ordering)
            counts = merge_data_group(storage, operation, rules, "new.parquet", sink, Held(held, scratch))
            merged = pq.read_table(sink).cast(schema.arrow_with_meta)
            order = [("_hoodie_record_key", "ascending")]
            dropped = ["_hoodie_file_name"]
            assert merged.drop(dropped).sort_by(order).equals(rows.drop(dropped).sort_by(order))
            assert counts.digest == key_digest(rows.column("_hoodie_record_key"))
        compacted += 1
    assert compacted


@pytest.mark.parametrize("name", INDEXES)
def test_a_compacted_shard_has_the_entries_of_its_slice(name: str, tmp_path: Path) -> None:
    storage = unpacked(name, tmp_path / "table")
    snapshot = MetadataTableSnapshot.load(storage)
    for shard in shards_of(snapshot):
        each = shard.file_slice
        operation = MergeOperation(
            "record_index", each.file_id, each.base_instant, each.base_file, each.log_files, 0, 0
        )
        sink = io.BytesIO()
        bounds = Held(5000, tmp_path)
        counts = merge_index_shard(storage, operation, "20270101000000000", sink, bounds)
        merged = HFileReader.from_bytes(sink.getvalue(), "new.hfile")
        content = merged.read_all()
        found = RECORD_INDEX.merge([StoredEntries(content.keys, content.values, merged.schema, "new.hfile")])
        expected = shard.entries()
        assert places(found) == places(expected)
        assert counts.rows == len(expected) == merged.entry_count
        # Every key is found in the block that the index says.
        hits = shard_of(merged, expected.keys)
        assert hits == len(expected)


def shards_of(snapshot: MetadataTableSnapshot) -> list[ShardSnapshot]:
    if snapshot.is_partitioned_index:
        groups = layout_of(snapshot).groups()
        return [snapshot.shard(group.shard, group.partition_path) for group in groups]
    return [snapshot.shard(number) for number in shard_ids(snapshot.num_shards)]


def places(entries: RecordIndexEntries) -> dict[str, tuple[object, int]]:
    return {
        key: (entries.locations[at], ms)
        for key, at, ms in zip(
            entries.keys.to_pylist(), entries.location_ids.tolist(), entries.instant_ms.tolist(), strict=True
        )
    }


def shard_of(reader: HFileReader, keys: pa.StringArray) -> int:
    """How many of the keys lie in a block in which a reader looks for them."""
    wanted = reader.candidate_blocks(keys)
    blocks = [set(reader.read_block(number).keys.to_pylist()) for number in range(reader.block_count)]
    return sum(
        any(key in blocks[number] for number in pair)
        for key, pair in zip(keys.to_pylist(), wanted.T.tolist(), strict=True)
    )
