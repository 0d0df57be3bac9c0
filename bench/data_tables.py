"""A MERGE_ON_READ table for the measurement of data merges, natively made: file groups of one base file and
some log files each, whose rows are those of the workload. The metadata table has its list of files, and no
entries of the record index, which a compaction does not touch.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from bench.merge_tables import create_merges, merge_operations
from bench.workload import SCHEMA, Workload
from tidemark.hudi_format.commit.instants import complete, create_inflight, create_requested
from tidemark.hudi_format.file_group.base_file import attach_meta_columns, write_base_file
from tidemark.hudi_format.file_group.log_blocks import data_log_bytes
from tidemark.hudi_format.file_group.names import BaseFileName
from tidemark.hudi_format.file_group.write_stats import log_append_stat, new_base_file_stat
from tidemark.hudi_format.metadata_table import MetadataTableSnapshot
from tidemark.hudi_format.metadata_table.bootstrap import partition_metadata
from tidemark.hudi_format.metadata_table.delta_commit import (
    begin_delta_commit,
    complete_delta_commit,
    delta_commit_metadata,
    file_changes,
    publish_files_log,
)
from tidemark.hudi_format.metadata_table.record_schema import commit_schema
from tidemark.hudi_format.model import InstantGenerator
from tidemark.hudi_format.ordering import OrderingField
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_services.operations import CompactionPlan
from tidemark.hudi_format.table_view import TableView
from tidemark.hudi_format.timeline import Action
from tidemark.hudi_format.timeline.avro_records import (
    SCHEMA_KEY,
    CommitMetadata,
    WriteStat,
    encode_commit_metadata,
    group_stats,
)
from tidemark.stream_runtime.clock import SystemClock

TABLE_SCHEMA: Final = TableSchema.from_arrow("merges", SCHEMA)
ROW_BYTES: Final = 104
"""What a row takes in a base file."""
_SHARDS: Final = 2
_TOKEN: Final = "0-0-0"


@dataclass(frozen=True)
class DataShape:
    """`slices` file groups of `rows` rows, with `logs` log files of `share` × rows each: nine in ten of these
    rows are new versions of random rows, the others are new. `partitions`: at most so many.
    """

    slices: int
    rows: int
    logs: int
    share: float
    partitions: int = 64


class DataTable:
    """The table, made at once."""

    def __init__(self, folder: Path, shape: DataShape) -> None:
        self.folder, self.shape = folder, shape
        self.storage = LocalStorage(folder)
        self._by = Unfenced(self.storage)
        self._times = InstantGenerator(SystemClock())
        self._ordering = OrderingField.of(TABLE_SCHEMA, "ts")
        create_merges(self.storage, TABLE_SCHEMA, _SHARDS, self._times)
        commits = [
            (self._times.next(), self._times.next(), self._times.next()) for _ in range(shape.logs + 1)
        ]
        instants = [requested for requested, _, _ in commits]
        of_slices = [self._write_slice(number, instants) for number in range(shape.slices)]
        for times, stats in zip(commits, zip(*of_slices, strict=True), strict=True):
            commit_files(self._by, TABLE_SCHEMA, times, stats)

    def plan(self) -> CompactionPlan:
        """A compaction of all file groups."""
        names = MetadataTableSnapshot.load(self.storage).files.names()
        slices = TableView.load(self.storage).slices(names)
        operations = merge_operations(self.storage, slices, "")
        return CompactionPlan(self._times.next(), False, TABLE_SCHEMA.avro_json, tuple(operations))

    def _write_slice(self, number: int, instants: list[str]) -> list[WriteStat]:
        """Writes the files of a slice, one for each instant; returns what their commits say of them."""
        shape = self.shape
        partition, file_id = f"p{number % shape.partitions:02d}", f"{uuid.UUID(int=number + 1, version=4)}-0"
        if number < shape.partitions:
            self.storage.create(f"{partition}/.hoodie_partition_metadata", partition_metadata(instants[0], 1))
        workload = Workload(shape.rows, seed=number)
        base = str(BaseFileName(file_id, _TOKEN, instants[0], "parquet"))
        rows = _of_partition(pa.concat_tables(list(workload.initial_rows())), partition)
        stored = attach_meta_columns(rows, rows["id"], partition, instants[0], number, base)
        content = write_base_file(stored, TABLE_SCHEMA)
        self.storage.create(f"{partition}/{base}", content)
        stats = [new_base_file_stat(partition, file_id, base, len(content), rows.num_rows)]
        for instant in instants[1:]:
            rows = _of_partition(workload.batch(int(shape.rows * shape.share)), partition)
            stored = attach_meta_columns(rows, rows["id"], partition, instant, number, file_id)
            content = data_log_bytes(TABLE_SCHEMA, instant, stored, None, partition, self._ordering)
            log = f".{file_id}_{instant}.log.1_{_TOKEN}"
            self.storage.create(f"{partition}/{log}", content)
            stats.append(
                log_append_stat(
                    partition, file_id, log, len(content), instant, base, updates=rows.num_rows, deletes=0
                )
            )
        return stats


def commit_files(
    by: Unfenced, schema: TableSchema, times: tuple[str, str, str], stats: Sequence[WriteStat]
) -> None:
    """A deltacommit of files that are there. `times`: its instant, and when it completes in the metadata
    table and in the table. The metadata table gets the files' names and no entries of other partitions.
    """
    instant, in_index, in_table = times
    data = create_requested(by, instant, Action.DELTA_COMMIT)
    data = create_inflight(by, data, encode_commit_metadata(CommitMetadata()))
    inflight = begin_delta_commit(by, instant)
    log = publish_files_log(by, instant, file_changes(stats))
    metadata = delta_commit_metadata(instant, [log], {SCHEMA_KEY: commit_schema()})
    complete_delta_commit(by, inflight, in_index, metadata)
    done = CommitMetadata(write_stats=group_stats(list(stats)), extra_metadata={SCHEMA_KEY: schema.avro_json})
    complete(by, data, in_table, encode_commit_metadata(done))


def _of_partition(rows: pa.Table, partition: str) -> pa.Table:
    number = rows.schema.get_field_index("region")
    return rows.set_column(number, "region", pa.repeat(pa.scalar(partition), rows.num_rows))
