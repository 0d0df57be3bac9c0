"""Tables for the measurement of merges: an index of any size without rows, natively made, whose changes lie
in a chosen part of its HFile blocks. Hudi's compaction of the metadata table looks at nothing else.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.hudi_format.commit.create_table import create_table
from tidemark.hudi_format.commit.instants import complete, create_inflight, create_requested
from tidemark.hudi_format.file_group.names import BaseFileName
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.hfile import HFileReader, HFileWriter
from tidemark.hudi_format.metadata_table import MetadataTableSnapshot, RecordIndexEntries
from tidemark.hudi_format.metadata_table.bootstrap import bootstrap_metadata_table
from tidemark.hudi_format.metadata_table.delta_commit import (
    begin_delta_commit,
    complete_delta_commit,
    delta_commit_metadata,
    publish_files_log,
    publish_log,
)
from tidemark.hudi_format.metadata_table.partitions.partition import METADATA_TABLE_PATH
from tidemark.hudi_format.metadata_table.partitions.record_index import (
    RECORD_INDEX,
    RECORD_INDEX_FOLDER,
    record_index_file_id,
)
from tidemark.hudi_format.metadata_table.partitions.record_index_codec import encode_values
from tidemark.hudi_format.metadata_table.record_schema import commit_schema, metadata_record_schema
from tidemark.hudi_format.model import InstantGenerator, RecordLocation, ShardId
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage.base import join_path
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import TableDefinition, TableType
from tidemark.hudi_format.table_services.operations import CompactionPlan, MergeOperation, MergeOutcome
from tidemark.hudi_format.table_services.records import compaction_metadata, requested_compaction
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action, Instant
from tidemark.hudi_format.timeline.avro_records import SCHEMA_KEY, CommitMetadata, encode_commit_metadata
from tidemark.hudi_format.timeline.service_records import encode_compaction_plan
from tidemark.stream_runtime.clock import SystemClock

SHARDS: Final = 2
LOGS: Final = 20
_CHUNK: Final = 200_000
_GROUPS: Final = 64
_FIRST_MS: Final = 1_767_225_600_000

SCHEMA: Final = TableSchema.from_arrow(
    "merges", pa.schema([("id", pa.string()), ("region", pa.string()), ("ts", pa.int64())])
)


def create_merges(storage: LocalStorage, schema: TableSchema, shards: int, times: InstantGenerator) -> None:
    """An empty MERGE_ON_READ table with its metadata table."""
    definition = TableDefinition(
        name="merges",
        table_type=TableType.MERGE_ON_READ,
        record_key_fields=("id",),
        partition_fields=("region",),
        ordering_fields=("ts",),
        schema=schema.avro_json,
    )
    create_table(storage, definition)
    bootstrap_metadata_table(storage, shards, times)


class IndexTable:
    """A table whose record index has `entries` entries, and log files that change a part of its blocks."""

    def __init__(self, folder: Path, entries: int, seed: int = 1) -> None:
        self.folder, self.entries = folder, entries
        self.storage = LocalStorage(folder)
        self._by = Unfenced(self.storage)
        self._random = np.random.default_rng(seed)
        self.times = InstantGenerator(SystemClock())
        self._groups = [
            RecordLocation(f"p{number % 8}", f"{uuid.UUID(int=number + 1, version=4)}-0")
            for number in range(_GROUPS)
        ]
        create_merges(self.storage, SCHEMA, SHARDS, self.times)
        self._commit({})
        self._compact()

    def change(self, share: float) -> int:
        """Commits `LOGS` log files for each shard, which change one entry in `share` of its blocks together;
        returns the number of changes.
        """
        positions = [self._positions(ShardId(shard), share) for shard in range(SHARDS)]
        for number in range(LOGS):
            self._commit({ShardId(shard): keys[number::LOGS] for shard, keys in enumerate(positions)})
        return sum(len(keys) for keys in positions)

    def plan(self) -> CompactionPlan:
        """What a compaction of the metadata table would merge now."""
        snapshot = MetadataTableSnapshot.load(self.storage)
        slices = [each for of_partition in snapshot.slices.values() for each in of_partition]
        operations = merge_operations(self.storage, slices, METADATA_TABLE_PATH)
        return CompactionPlan(self.times.next(), True, commit_schema(), tuple(operations))

    def request(self, plan: CompactionPlan) -> Instant:
        """Puts the plan onto the metadata table's timeline, where the next writer executes it."""
        content = encode_compaction_plan(requested_compaction(plan))
        return create_requested(self._by, plan.instant, Action.COMPACTION, content, root=METADATA_TABLE_ROOT)

    def _compact(self) -> None:
        """A compaction whose base files have all entries."""
        snapshot = MetadataTableSnapshot.load(self.storage)
        operations = [
            MergeOperation("record_index", each.file_id, each.base_instant, None, each.log_files, 80, 0)
            for each in snapshot.slices["record_index"]
        ]
        plan = CompactionPlan(self.times.next(), True, commit_schema(), tuple(operations))
        instant = self.request(plan)
        outcomes = self._write_bases(plan)
        inflight = create_inflight(self._by, instant, root=METADATA_TABLE_ROOT)
        metadata = encode_commit_metadata(compaction_metadata(plan, outcomes))
        complete(self._by, inflight, self.times.next(), metadata, root=METADATA_TABLE_ROOT)

    def _write_bases(self, plan: CompactionPlan) -> list[MergeOutcome]:
        names = [
            str(BaseFileName(record_index_file_id(ShardId(shard)), f"{shard}-0-0", plan.instant, "hfile"))
            for shard in range(SHARDS)
        ]
        paths = [self.folder / RECORD_INDEX_FOLDER / name for name in names]
        counts = [0] * SHARDS
        files = [path.open("wb") for path in paths]
        writers = [HFileWriter(file.write, metadata_record_schema()) for file in files]
        for first in range(0, self.entries, _CHUNK):
            keys = _keys(np.arange(first, min(first + _CHUNK, self.entries)))
            shard_of = record_index_shard(keys, SHARDS)
            for shard in range(SHARDS):
                mine = keys.take(pa.array(np.flatnonzero(shard_of == shard)))
                writers[shard].append(mine, self._values(len(mine), first))
                counts[shard] += len(mine)
        sizes = [writer.finish() for writer in writers]
        for file in files:
            file.close()
        return [
            MergeOutcome(shard, names[shard], sizes[shard], count, count, 0, 0, 0, count, 0)
            for shard, count in enumerate(counts)
        ]

    def _values(self, count: int, after_ms: int) -> pa.BinaryArray:
        ids = self._random.integers(0, _GROUPS, count).astype(np.int32)
        return encode_values(ids, self._groups, np.full(count, _FIRST_MS + after_ms, np.int64))

    def _positions(self, shard: ShardId, share: float) -> pa.StringArray:
        """The first key of every block, or of a random part of the blocks, in random order."""
        slices = MetadataTableSnapshot.load(self.storage).slices["record_index"]
        name = next(each.base_file for each in slices if each.file_id == record_index_file_id(shard))
        first = HFileReader.open(self.storage, join_path(RECORD_INDEX_FOLDER, str(name))).first_keys
        count = max(int(len(first) * share), 1)
        chosen = self._random.permutation(len(first))[:count]
        return first.take(pa.array(chosen)).cast(pa.string())

    def _commit(self, changes: dict[ShardId, pa.StringArray]) -> None:
        instant = self.times.next()
        data = create_inflight(
            self._by,
            create_requested(self._by, instant, Action.DELTA_COMMIT),
            encode_commit_metadata(CommitMetadata()),
        )
        inflight = begin_delta_commit(self._by, instant)
        logs = [publish_files_log(self._by, instant, [])]
        for shard, keys in changes.items():
            if len(keys):
                ids = self._random.integers(0, _GROUPS, len(keys)).astype(np.int32)
                times = np.full(len(keys), _FIRST_MS, np.int64)
                entries = RecordIndexEntries(keys, ids, self._groups, times)
                log, content = RECORD_INDEX.log_file(entries, instant, shard)
                publish_log(self._by, log, content)
                logs.append(log)
        metadata = delta_commit_metadata(instant, logs, {SCHEMA_KEY: commit_schema()})
        complete_delta_commit(self._by, inflight, self.times.next(), metadata)
        done = CommitMetadata(extra_metadata={SCHEMA_KEY: SCHEMA.avro_json})
        complete(self._by, data, self.times.next(), encode_commit_metadata(done))


def _keys(numbers: npt.NDArray[np.int64]) -> pa.StringArray:
    """Keys in ascending order whose text does not compress away: the number, then something like a hash."""
    mixed = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    pairs = zip(numbers.tolist(), mixed.tolist(), strict=True)
    return pa.array([f"{number:010d}-{mix:016x}" for number, mix in pairs])


def merge_operations(storage: LocalStorage, slices: list[FileSlice], root: str) -> list[MergeOperation]:
    """What merges the log files of these slices. `root`: the folder of the partitions."""

    def size(each: FileSlice, *names: str) -> int:
        infos = [storage.stat(join_path(root, each.partition_path, name)) for name in names]
        return sum(info.size for info in infos if info is not None)

    return [
        MergeOperation(
            each.partition_path,
            each.file_id,
            each.base_instant,
            each.base_file,
            each.log_files,
            size(each, *each.log_files),
            size(each, *([each.base_file] if each.base_file else [])),
        )
        for each in slices
        if each.log_files
    ]
