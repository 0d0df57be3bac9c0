"""Another engine that rewrites file groups beside us: clustering, delete_partition, compaction and clean,
with the rows, the file listing and the record index as Hudi leaves them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tests.simulation.other_engine import OtherEngine
from tests.simulation.scripted_tagger import SCHEMA, SHARDS
from tidemark.hudi_format.commit.instants import complete, create_inflight, create_requested, instant_path
from tidemark.hudi_format.file_group.base_file import RECORD_KEY, write_base_file
from tidemark.hudi_format.file_group.slice_reader import read_slice
from tidemark.hudi_format.file_group.slices import FileGroupId, FileSlice
from tidemark.hudi_format.file_group.write_stats import new_base_file_stat
from tidemark.hudi_format.metadata_table import RecordIndexEntries, write_record_index_log
from tidemark.hudi_format.metadata_table.delta_commit import (
    begin_delta_commit,
    complete_delta_commit,
    delta_commit_metadata,
    file_changes,
    publish_files_log,
    publish_log,
)
from tidemark.hudi_format.metadata_table.partitions.files import FileChange
from tidemark.hudi_format.metadata_table.partitions.record_index import record_index_log
from tidemark.hudi_format.model import RecordLocation
from tidemark.hudi_format.ordering import OrderingField
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.hudi_format.storage.base import name_of
from tidemark.hudi_format.table_config import read_table_config
from tidemark.hudi_format.table_view import TableView
from tidemark.hudi_format.timeline import Action, Instant, State
from tidemark.hudi_format.timeline.avro_container import decode_container, encode_container
from tidemark.hudi_format.timeline.avro_records import (
    SCHEMA_KEY,
    CommitMetadata,
    WriteStat,
    encode_commit_metadata,
    group_stats,
)
from tidemark.hudi_format.timeline.service_records import (
    CompactionOperation,
    RequestedCompaction,
    compaction_metrics,
    encode_compaction_plan,
)

CLUSTERED = "00000000-0000-4000-8000-0000000000cc-0"


@dataclass(frozen=True)
class Planned:
    """A clustering that is requested and not yet executed: its slices are those of the moment of planning."""

    inflight: Instant
    slices: tuple[FileSlice, ...]


class RewritingEngine(OtherEngine):
    """One file group in, one out."""

    def plan_clustering(self, *groups: FileGroupId) -> Planned:
        """Schedules a clustering of these groups."""
        self._look()
        slices = tuple(self._slice(group) for group in groups)
        described = [
            {
                "dataFilePath": each.base_file,
                "deltaFilePaths": list(each.log_files),
                "fileId": each.file_id,
                "partitionPath": each.partition_path,
                "bootstrapFilePath": None,
                "version": 1,
            }
            for each in slices
        ]
        group = {
            "slices": described,
            "metrics": {},
            "numOutputFileGroups": 1,
            "extraMetadata": {},
            "version": 1,
        }
        plan: dict[str, Any] = {
            "inputGroups": [group],
            "strategy": None,
            "extraMetadata": {},
            "version": 1,
            "preserveHoodieMetadata": True,
            "missingSchedulePartitions": [],
        }
        content = encode_container(
            "requested-replace-metadata",
            {"operationType": "CLUSTER", "clusteringPlan": plan, "extraMetadata": {}, "version": 1},
        )
        requested = create_requested(
            Unfenced(self._storage), self._instants.next(), Action.CLUSTERING, content
        )
        return Planned(create_inflight(Unfenced(self._storage), requested), slices)

    def execute_clustering(self, planned: Planned) -> None:
        """Writes what the planned slices held into one new group, and completes."""
        self._look()
        instant = planned.inflight.requested
        rows = pa.concat_tables([self._rows(each) for each in planned.slices])
        partition = planned.slices[0].partition_path
        stat = self._base_file(partition, CLUSTERED, instant, rows)
        self._replace(planned.inflight, planned.slices, [stat], rows, RecordLocation(partition, CLUSTERED))

    def cluster(self, *groups: FileGroupId) -> None:
        """Plans and executes."""
        self.execute_clustering(self.plan_clustering(*groups))

    def delete_groups(self, *groups: FileGroupId) -> None:
        """delete_partition: the groups are replaced by nothing."""
        self._look()
        slices = tuple(self._slice(group) for group in groups)
        rows = pa.concat_tables([self._rows(each) for each in slices])
        nothing = encode_commit_metadata(CommitMetadata(operation_type="DELETE_PARTITION"))
        requested = create_requested(Unfenced(self._storage), self._instants.next(), Action.REPLACE_COMMIT)
        inflight = create_inflight(Unfenced(self._storage), requested, nothing)
        self._replace(inflight, slices, [], rows, None)

    def compact(self, group: FileGroupId) -> list[str]:
        """Compacts the group; returns the paths of the files that it made superfluous."""
        self._look()
        was = self._slice(group)
        operation = CompactionOperation(
            partition_path=was.partition_path,
            file_id=was.file_id,
            base_instant=was.base_instant,
            log_files=was.log_files,
            base_file=was.base_file,
            metrics=compaction_metrics(len(was.log_files), len(was.log_files), 1),
        )
        plan = encode_compaction_plan(RequestedCompaction(operations=(operation,)))
        requested = create_requested(Unfenced(self._storage), self._instants.next(), Action.COMPACTION, plan)
        inflight = create_inflight(Unfenced(self._storage), requested)
        stat = self._base_file(was.partition_path, was.file_id, requested.requested, self._rows(was))
        self._metadata(requested.requested, file_changes([stat]), [], None)
        self._complete_compaction(inflight, [stat])
        return was.paths()

    def execute_compaction(self, instant: str) -> None:
        """Executes a compaction that is inflight, whoever planned it, from its requested file."""
        self._look()
        inflight = Instant(instant, Action.COMPACTION, State.INFLIGHT)
        path = instant_path(Instant(instant, Action.COMPACTION, State.REQUESTED))
        stats = []
        for planned in decode_container(self._storage.read(path), path)["operations"]:
            partition, file_id = planned["partitionPath"], planned["fileId"]
            logs = tuple(name_of(log) for log in planned["deltaFilePaths"])
            base = name_of(planned["dataFilePath"]) if planned["dataFilePath"] else None
            was = FileSlice(partition, file_id, base, planned["baseInstantTime"], logs)
            stats.append(self._base_file(partition, file_id, instant, self._rows(was)))
        self._metadata(instant, file_changes(stats), [], None)
        self._complete_compaction(inflight, stats)

    def _complete_compaction(self, inflight: Instant, stats: list[WriteStat]) -> None:
        metadata = CommitMetadata(
            write_stats=group_stats(stats),
            extra_metadata={SCHEMA_KEY: SCHEMA.avro_json},
            operation_type="COMPACT",
            compacted=True,
        )
        complete(Unfenced(self._storage), inflight, self._instants.next(), encode_commit_metadata(metadata))

    def clean(self, paths: list[str] | None = None) -> str:
        """Deletes these files, as the policy KEEP_LATEST_FILE_VERSIONS=1 does right after a compaction."""
        self._look()
        requested = create_requested(Unfenced(self._storage), self._instants.next(), Action.CLEAN)
        inflight = create_inflight(Unfenced(self._storage), requested)
        gone = [path.rpartition("/") for path in paths or []]
        self._metadata(requested.requested, [FileChange(folder, name, None) for folder, _, name in gone], [])
        for path in paths or []:
            self._storage.delete(path)
        completion = self._instants.next()
        complete(Unfenced(self._storage), inflight, completion, b"")
        return completion

    def _slice(self, group: FileGroupId) -> FileSlice:
        names = [info.name for info in self._storage.list(group[0])]
        found = TableView.load(self._storage).slices({group[0]: names})
        return next(each for each in found if each.file_id == group[1])

    def _rows(self, file_slice: FileSlice) -> pa.Table:
        config = read_table_config(self._storage)
        ordering = OrderingField.of(SCHEMA, "ts") if config.ordering_fields else None
        return read_slice(self._storage, file_slice, SCHEMA, config.merge_mode, ordering)

    def _base_file(self, partition: str, file_id: str, instant: str, rows: pa.Table) -> WriteStat:
        name = f"{file_id}_9-9-9_{instant}.parquet"
        data = write_base_file(rows, SCHEMA)
        self._storage.create(f"{partition}/{name}", data)
        return new_base_file_stat(partition, file_id, name, len(data), rows.num_rows)

    def _replace(
        self,
        inflight: Instant,
        replaced: tuple[FileSlice, ...],
        stats: list[WriteStat],
        rows: pa.Table,
        location: RecordLocation | None,
    ) -> None:
        self._metadata(inflight.requested, file_changes(stats), rows.column(RECORD_KEY).to_pylist(), location)
        file_ids: dict[str, list[str]] = {}
        for each in replaced:
            file_ids.setdefault(each.partition_path, []).append(each.file_id)
        record = {
            "partitionToWriteStats": {
                partition: [stat.to_avro() for stat in of_it]
                for partition, of_it in group_stats(stats).items()
            },
            "compacted": False,
            "extraMetadata": {SCHEMA_KEY: SCHEMA.avro_json},
            "version": 1,
            "operationType": "CLUSTER" if stats else "DELETE_PARTITION",
            "partitionToReplaceFileIds": file_ids,
        }
        content = encode_container("replace-commit-metadata", record)
        complete(Unfenced(self._storage), inflight, self._instants.next(), content)

    def _metadata(
        self,
        instant: str,
        changes: list[FileChange],
        keys: list[str],
        location: RecordLocation | None = None,
    ) -> None:
        """The deltacommit of the metadata table: the files, and where these keys live now (None: nowhere)."""
        begun = begin_delta_commit(Unfenced(self._storage), instant)
        logs = [publish_files_log(Unfenced(self._storage), instant, changes)]
        ordered = pa.array(sorted(keys), pa.string())
        shards = record_index_shard(ordered, SHARDS)
        for shard in sorted(set(shards.tolist())):
            of_shard = ordered.filter(pa.array(shards == shard))
            at = np.full(len(of_shard), -1 if location is None else 0, np.int32)
            entries = RecordIndexEntries(
                of_shard, at, [] if location is None else [location], np.zeros(len(of_shard), np.int64)
            )
            data = write_record_index_log(entries, instant)
            live = 0 if location is None else len(of_shard)
            log = record_index_log(instant, shard, len(data), live, len(of_shard) - live)
            publish_log(Unfenced(self._storage), log, data)
            logs.append(log)
        metadata = delta_commit_metadata(instant, logs)
        complete_delta_commit(Unfenced(self._storage), begun, self._instants.next(), metadata)
