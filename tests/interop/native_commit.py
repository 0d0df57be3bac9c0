"""Whole commits made with `hudi_format` alone, step by step as the services make them, on one thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa

from tests.interop.native_plan import CommitPlan, GroupChange, plan_commit
from tests.interop.read_table import ReadTable
from tidemark.hudi_format.commit import heartbeat
from tidemark.hudi_format.commit.create_table import create_table
from tidemark.hudi_format.commit.instants import complete, create_inflight, create_requested
from tidemark.hudi_format.commit.markers import MarkerType, create_marker, delete_markers
from tidemark.hudi_format.file_group.base_file import attach_meta_columns, read_base_file, write_base_file
from tidemark.hudi_format.file_group.changes import Deletes
from tidemark.hudi_format.file_group.log_blocks import data_log_bytes
from tidemark.hudi_format.file_group.merge import merge_upserts
from tidemark.hudi_format.file_group.names import BaseFileName, LogFileName
from tidemark.hudi_format.file_group.write_stats import (
    log_append_stat,
    new_base_file_stat,
    rewritten_base_file_stat,
)
from tidemark.hudi_format.index_definitions import IndexKind
from tidemark.hudi_format.metadata_table.bootstrap import bootstrap_metadata_table, partition_metadata
from tidemark.hudi_format.metadata_table.delta_commit import (
    begin_delta_commit,
    complete_delta_commit,
    delta_commit_metadata,
    file_changes,
    publish_files_log,
    publish_log,
)
from tidemark.hudi_format.metadata_table.partitions.partition import MetadataLogFile
from tidemark.hudi_format.metadata_table.partitions.record_index import (
    DELETED,
    RECORD_INDEX,
    RecordIndexEntries,
)
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.model import InstantGenerator, RecordLocation, ShardId, instant_to_ms
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.hudi_format.schema import TableSchema, cast_rows
from tidemark.hudi_format.storage.base import join_path
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import TableDefinition
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action, Instant, load_timeline
from tidemark.hudi_format.timeline.avro_records import (
    SCHEMA_KEY,
    CommitMetadata,
    WriteStat,
    encode_commit_metadata,
    group_stats,
)
from tidemark.stream_runtime.clock import Clock, SystemClock
from tidemark.stream_runtime.ids import SystemIds

IndexLogs = Sequence[tuple[MetadataLogFile, bytes]]
_TOKEN = "0-0-0"


@dataclass
class PendingCommit:
    """A commit whose files are written; `NativeWriter.finish` makes it visible."""

    instant: Instant
    metadata: CommitMetadata
    index_metadata: CommitMetadata


class NativeWriter:
    """Makes a table and commits to it. `schema` is the table's."""

    def __init__(self, table: Path, schema: TableSchema, clock: Clock | None = None) -> None:
        self.table = ReadTable(table)
        self.schema = schema
        self._storage = LocalStorage(table)
        self._ids = SystemIds()
        self._instants = InstantGenerator(clock or SystemClock())

    @classmethod
    def create(
        cls,
        table: Path,
        schema: TableSchema,
        definition: TableDefinition,
        shards: int,
        clock: Clock | None = None,
        kind: IndexKind = IndexKind.GLOBAL,
    ) -> Self:
        """A new, empty table with its metadata table; ``clock`` dates its commits."""
        writer = cls(table, schema, clock)
        create_table(writer._storage, definition)
        bootstrap_metadata_table(writer._storage, shards, writer._instants, kind=kind)
        return writer

    def commit(self, upserts: pa.Table, deletes: Sequence[tuple[str, int | None]] = ()) -> str:
        """Upserts rows, deletes (record key, ordering value or None = unconditional); returns the instant."""
        return self.finish(self.prepare(upserts, deletes))

    def prepare(self, upserts: pa.Table, deletes: Sequence[tuple[str, int | None]] = ()) -> PendingCommit:
        """All files of a commit; of its instants only the data table's, and that one pending."""
        snapshot = MetadataTableSnapshot.load(self._storage)
        plan = plan_commit(self.table, self.schema, snapshot, upserts, deletes, self._ids)
        return self._prepare(snapshot, plan, lambda instant: shard_logs(instant, plan, snapshot.num_shards))

    def _prepare(
        self, snapshot: MetadataTableSnapshot, plan: CommitPlan, index_logs: Callable[[str], IndexLogs]
    ) -> PendingCommit:
        """`index_logs`: an instant -> its log files of the record index."""
        self._instants.observe(snapshot.data_timeline.times() + snapshot.metadata_timeline.times())
        instant = self._instants.next()
        action = Action.DELTA_COMMIT if self.table.config.is_merge_on_read else Action.COMMIT
        self._storage.touch(heartbeat.heartbeat_path(instant))
        requested = create_requested(Unfenced(self._storage), instant, action)
        inflight = create_inflight(
            Unfenced(self._storage), requested, encode_commit_metadata(CommitMetadata())
        )
        stats = [self._write_group(instant, plan, location) for location in plan.groups]
        metadata = CommitMetadata(
            write_stats=group_stats(stats), extra_metadata={SCHEMA_KEY: self.schema.avro_json}
        )
        index_metadata = self._write_index(instant, index_logs(instant), stats)
        return PendingCommit(inflight, metadata, index_metadata)

    def finish(self, pending: PendingCommit) -> str:
        """Metadata table first, then the data table: now readers see the commit.

        With other writers about, hold the table's lock: a Spark commit in between would roll the metadata
        table's pending deltacommit back, which no heartbeat of the data table protects.
        """
        instant, storage = pending.instant.requested, self._storage
        timelines = (load_timeline(storage), load_timeline(storage, METADATA_TABLE_ROOT))
        self._instants.observe(time for each in timelines for time in each.times())
        index_instant = begin_delta_commit(Unfenced(storage), instant)
        complete_delta_commit(Unfenced(storage), index_instant, self._instants.next(), pending.index_metadata)
        complete(
            Unfenced(storage),
            pending.instant,
            self._instants.next(),
            encode_commit_metadata(pending.metadata),
        )
        delete_markers(storage, instant)
        heartbeat.stop(storage, instant)
        return instant

    def _write_group(self, instant: str, plan: CommitPlan, location: RecordLocation) -> WriteStat:
        path, change = location.partition_path, plan.groups[location]
        marker = join_path(path, ".hoodie_partition_metadata")
        if not self._storage.exists(marker):
            self._storage.create(marker, partition_metadata(instant, len(path.split("/")) if path else 0))
        if location not in plan.slices:
            return self._first_base_file(instant, plan, location)
        if self.table.config.is_merge_on_read:
            return self._log_file(instant, plan, location, change)
        return self._next_base_file(instant, plan, location, change)

    def _first_base_file(self, instant: str, plan: CommitPlan, location: RecordLocation) -> WriteStat:
        path, file_id = location.partition_path, location.file_id
        name = str(BaseFileName(file_id, _TOKEN, instant, "parquet"))
        rows = self._rows(instant, plan, location, name)
        content = write_base_file(rows, self.schema)
        self._put(instant, join_path(path, name), content, MarkerType.CREATE)
        return new_base_file_stat(path, file_id, name, len(content), rows.num_rows)

    def _next_base_file(
        self, instant: str, plan: CommitPlan, location: RecordLocation, change: GroupChange
    ) -> WriteStat:
        path, file_id = location.partition_path, location.file_id
        current = plan.slices[location].base_file
        assert current is not None, "a COPY_ON_WRITE slice without base file"
        name = str(BaseFileName(file_id, _TOKEN, instant, "parquet"))
        existing = read_base_file(self._storage, join_path(path, current))
        merged = merge_upserts(
            cast_rows(existing, self.schema.arrow_with_meta),
            self._rows(instant, plan, location, name),
            _deletes(change),
            self.table.config.merge_mode,
            plan.ordering,
            name,
        )
        content = write_base_file(merged.rows, self.schema)
        self._put(instant, join_path(path, name), content, MarkerType.MERGE)
        return rewritten_base_file_stat(path, file_id, name, len(content), current, merged)

    def _log_file(
        self, instant: str, plan: CommitPlan, location: RecordLocation, change: GroupChange
    ) -> WriteStat:
        path, file_id = location.partition_path, location.file_id
        name = str(LogFileName(file_id, instant, 1, _TOKEN))
        rows = self._rows(instant, plan, location, file_id)
        content = data_log_bytes(self.schema, instant, rows, _deletes(change), path, plan.ordering)
        self._put(instant, join_path(path, name), content, MarkerType.CREATE)
        base_file = plan.slices[location].base_file
        return log_append_stat(
            path,
            file_id,
            name,
            len(content),
            instant,
            base_file,
            updates=rows.num_rows,
            deletes=len(change.deletes),
        )

    def _rows(self, instant: str, plan: CommitPlan, location: RecordLocation, file_name: str) -> pa.Table:
        """The file group's rows with meta columns. Its place in the plan makes sequence numbers unique."""
        chosen = pa.array(plan.groups[location].rows, pa.int64())
        task = list(plan.groups).index(location)
        rows, keys = plan.upserts.take(chosen), plan.keys.take(chosen)
        with_meta = attach_meta_columns(rows, keys, location.partition_path, instant, task, file_name)
        return cast_rows(with_meta, self.schema.arrow_with_meta)

    def _put(self, instant: str, path: str, content: bytes, marker: MarkerType) -> None:
        create_marker(Unfenced(self._storage), instant, path, marker)
        self._storage.create(path, content)

    def _write_index(self, instant: str, index: IndexLogs, stats: list[WriteStat]) -> CommitMetadata:
        for log, content in index:
            publish_log(Unfenced(self._storage), log, content)
        files = publish_files_log(Unfenced(self._storage), instant, file_changes(stats))
        return delta_commit_metadata(instant, [*(log for log, _ in index), files])


def shard_logs(instant: str, plan: CommitPlan, num_shards: int) -> IndexLogs:
    """A commit's log files of a global record index."""
    keys = pa.array(plan.index, pa.string())
    shards = record_index_shard(keys, num_shards)
    logs = []
    for shard in np.unique(shards).tolist():
        chosen = keys.filter(pa.array(shards == shard))
        entries = index_entries(chosen, [plan.index[key] for key in chosen.to_pylist()], instant)
        logs.append(RECORD_INDEX.log_file(entries, instant, ShardId(shard)))
    return logs


def index_entries(
    keys: pa.Array, targets: Sequence[RecordLocation | None], instant: str
) -> RecordIndexEntries:
    """The entry of each key, by where its row is now; None is a delete."""
    locations = list(dict.fromkeys(each for each in targets if each is not None))
    ids = np.array([DELETED if each is None else locations.index(each) for each in targets], np.int32)
    moments = np.where(ids == DELETED, 0, instant_to_ms(instant))
    return RecordIndexEntries(keys, ids, locations, moments)


def _deletes(change: GroupChange) -> Deletes:
    keys = pa.array([key for key, _ in change.deletes], pa.string())
    return Deletes.with_ordering(keys, np.array([value for _, value in change.deletes], np.int64))
