"""A table as `hudi_format` alone reads it: no Spark, no Kafka, no service. One half of each comparison."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from tidemark.hudi_format.file_group.slice_reader import read_slice
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.model import RecordLocation, ShardId
from tidemark.hudi_format.ordering import OrderingField
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage.base import join_path
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import TableConfig, read_table_config
from tidemark.hudi_format.table_view import TableView
from tidemark.hudi_format.timeline.avro_records import SCHEMA_KEY, decode_commit_metadata


class ReadTable:
    """One table, read anew at each call."""

    def __init__(self, table: Path) -> None:
        self.storage = LocalStorage(table)

    @property
    def config(self) -> TableConfig:
        return read_table_config(self.storage)

    def schema(self) -> TableSchema:
        """The schema of the newest completed instant that carries one."""
        snapshot = MetadataTableSnapshot.load(self.storage)
        for instant in sorted(
            snapshot.data_timeline.completed(), key=lambda each: str(each.completion), reverse=True
        ):
            if not instant.action.is_write:
                continue
            path = join_path(".hoodie/timeline", instant.file_name)
            found = decode_commit_metadata(self.storage.read(path), path).extra_metadata.get(SCHEMA_KEY)
            if found:
                return TableSchema.from_avro(found, self.config.name)
        raise AssertionError(f"{self.storage.base_uri}: no commit carries a schema")

    def slices(self) -> list[FileSlice]:
        """The newest slices, listed through the metadata table."""
        snapshot = MetadataTableSnapshot.load(self.storage)
        return TableView.of(self.storage, snapshot.data_timeline).slices(snapshot.files.names())

    def rows(self) -> pa.Table:
        """All live rows with meta columns."""
        config, schema = self.config, self.schema()
        ordering = OrderingField.of(schema, config.ordering_fields[0]) if config.ordering_fields else None
        parts = [
            read_slice(self.storage, each, schema, config.merge_mode, ordering) for each in self.slices()
        ]
        return pa.concat_tables([schema.arrow_with_meta.empty_table(), *parts])

    def record_index(self) -> Mapping[str, RecordLocation]:
        """Every key of the global record index with its location."""
        snapshot = MetadataTableSnapshot.load(self.storage)
        entries: dict[str, RecordLocation] = {}
        for number in range(snapshot.num_shards):
            found = snapshot.shard(ShardId(number)).entries()
            for key, location in zip(found.keys.to_pylist(), found.location_ids.tolist(), strict=True):
                assert key not in entries, f"key {key!r} is in two shards"
                entries[key] = found.locations[location]
        return entries
