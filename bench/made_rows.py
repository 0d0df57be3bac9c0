"""All rows of a workload as files of a new table, without Kafka: for tables whose load would take hours.

Each partition gets one file group, a base file, in one deltacommit; the record index becomes compacted base
files. So slices and index are what a compaction of everything leaves. Other partitions of the metadata table
are not written: a secondary index has to be made of the rows.
"""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from bench.data_tables import commit_files
from bench.index_tables import compact_record_index
from bench.workload import CHUNK_ROWS, Numbers, Workload, key_text
from tidemark.hudi_format.file_group.base_file import attach_meta_columns, write_base_file
from tidemark.hudi_format.file_group.names import BaseFileName
from tidemark.hudi_format.file_group.write_stats import new_base_file_stat
from tidemark.hudi_format.hfile import write_hfile
from tidemark.hudi_format.metadata_table.bootstrap import partition_metadata
from tidemark.hudi_format.metadata_table.partitions.record_index_codec import encode_values
from tidemark.hudi_format.metadata_table.record_schema import metadata_record_schema
from tidemark.hudi_format.model import InstantGenerator, RecordLocation, instant_to_ms
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.timeline.avro_records import WriteStat
from tidemark.stream_runtime.clock import SystemClock

_TOKEN: Final = "0-0-0"


class MadeRows:
    """The rows of one workload, for any number of tables with the same definition."""

    def __init__(self, workload: Workload, schema: TableSchema, shards: int) -> None:
        """`shards`: of the record index of each table."""
        self._workload, self._schema, self._shards = workload, schema, shards
        self._made: Path | None = None

    def fill(self, table: Path) -> None:
        """Puts all rows into a table that was just created. The second and later tables become copies of
        the first as it was then.
        """
        if self._made is not None:
            shutil.rmtree(table)
            shutil.copytree(self._made, table)
            return
        self._made = table.with_name(f"{table.name}-made")
        self._write(table)
        shutil.copytree(table, self._made)

    def _write(self, table: Path) -> None:
        storage, times = LocalStorage(table), InstantGenerator(SystemClock())
        instant = times.next()
        groups = [
            RecordLocation(f"p{number:02d}", f"{uuid.UUID(int=number + 1, version=4)}-0")
            for number in range(self._workload.partitions)
        ]
        stats = [self._base_file(storage, number, group, instant) for number, group in enumerate(groups)]
        commit_files(Unfenced(storage), self._schema, (instant, times.next(), times.next()), stats)
        shard_of = self._shard_of()
        compact_record_index(
            storage,
            times,
            self._shards,
            lambda shard: self._entries(np.flatnonzero(shard_of == shard).astype(np.int64), groups, instant),
        )

    def _base_file(
        self, storage: LocalStorage, number: int, group: RecordLocation, instant: str
    ) -> WriteStat:
        partition, file_id = group
        rows = self._workload.partition_rows(number)
        name = str(BaseFileName(file_id, _TOKEN, instant, "parquet"))
        stored = attach_meta_columns(rows, rows["id"], partition, instant, number, name)
        content = write_base_file(stored, self._schema)
        storage.create(f"{partition}/.hoodie_partition_metadata", partition_metadata(instant, 1))
        storage.create(f"{partition}/{name}", content)
        return new_base_file_stat(partition, file_id, name, len(content), rows.num_rows)

    def _shard_of(self) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        """Key number -> shard of the record index."""
        count = self._workload.region_of.size
        found = np.empty(count, np.int32)
        for first in range(0, count, CHUNK_ROWS):
            numbers = np.arange(first, min(first + CHUNK_ROWS, count), dtype=np.int64)
            found[numbers] = record_index_shard(key_text(numbers), self._shards)
        return found

    def _entries(self, numbers: Numbers, groups: list[RecordLocation], instant: str) -> bytes:
        """The HFile of a shard with the keys of these numbers."""
        keys = key_text(numbers)
        order = pa.compute.sort_indices(keys).to_numpy()
        located = self._workload.region_of[numbers[order]].astype(np.int32)
        instants = np.full(len(order), instant_to_ms(instant))
        values = encode_values(located, groups, instants)
        return write_hfile(keys.take(pa.array(order)), values, metadata_record_schema())
