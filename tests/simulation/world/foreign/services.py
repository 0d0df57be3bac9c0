"""Table services of the engine: compaction and clustering (planned, carried out later), clean, archival, and
the compaction of the record index.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hudi_format.commit.instants import complete, create_inflight, create_requested
from hudi_format.file_group.names import BaseFileName, parse_data_file
from hudi_format.hfile import write_hfile
from hudi_format.metadata_table.delta_commit import file_changes
from hudi_format.metadata_table.file_ids import record_index_file_id
from hudi_format.metadata_table.files_partition import FileChange
from hudi_format.metadata_table.record_index_codec import encode_values
from hudi_format.metadata_table.record_schema import metadata_record_schema
from hudi_format.model import RecordLocation, instant_to_ms
from hudi_format.storage.base import join_path
from hudi_format.timeline import DATA_ROOT, METADATA_TABLE_ROOT, Action, Instant, State, load_timeline
from hudi_format.timeline.avro_container import encode_container
from hudi_format.timeline.avro_records import CommitMetadata, encode_commit_metadata, group_stats
from hudi_format.timeline.service_records import (
    CompactionOperation,
    CompactionPlan,
    encode_compaction_plan,
)
from tests.hudi_rules import cleaning
from tests.hudi_rules.archiving import Keep, to_archive
from tests.hudi_rules.slices import Group, slices_of
from tests.hudi_rules.timeline import Instant as HudiInstant
from tests.simulation.world.checkers.judge import Look
from tests.simulation.world.foreign.bench import Bench, Write
from tests.simulation.world.foreign.writes import LeftOutError, Writes

_INDEX_FOLDER = ".hoodie/metadata/record_index"
_METRICS = ("TOTAL_LOG_FILES", "TOTAL_LOG_FILES_SIZE", "TOTAL_IO_MB", "TOTAL_IO_READ_MB", "TOTAL_IO_WRITE_MB")
_NO_PLAN = encode_compaction_plan(CompactionPlan(operations=()))


class Services:
    """What keeps the table small. Raises LeftOutError for what Hudi would not do now."""

    def __init__(self, bench: Bench, writes: Writes) -> None:
        self._bench, self._writes = bench, writes
        self._archives = 0
        self._archived: list[dict[str, Any]] = []

    # ------------------------------------------------------------ compaction

    def plan_compaction(self, look: Look) -> str:
        """Schedules all file groups with log files; returns the instant."""
        bench, table = self._bench, self._bench.table(look)
        instant = bench.instant(look)
        if instant <= (look.timeline.hudi.start or "") or look.timeline.hudi.pending("compaction"):
            raise LeftOutError("below the timeline's start, or another one is scheduled")
        operations = []
        for group in sorted(table.read_slices()):
            if group in look.timeline.clustered:
                continue
            slices = slices_of(table.groups[group], table.timeline, instant)
            before = [each for each in slices if each.instant < instant]
            if slices[-1].instant != instant or not before or not before[-1].logs:
                continue
            newest = before[-1]
            operations.append(
                CompactionOperation(
                    partition_path=group[0],
                    file_id=group[1],
                    base_instant=newest.instant,
                    log_files=tuple(newest.logs),
                    base_file=newest.base,
                    metrics=dict.fromkeys(_METRICS, 1.0),
                )
            )
        if not operations:
            raise LeftOutError("no file group has log files")
        plan = encode_compaction_plan(CompactionPlan(operations=tuple(operations)))
        create_requested(bench.storage, instant, Action.COMPACTION, plan)
        bench.clock.wait()
        return instant

    def run_compaction(self, look: Look) -> None:
        """Carries the scheduled one out, whatever was committed since."""
        bench = self._bench
        pending = look.timeline.hudi.pending("compaction")
        if not pending:
            raise LeftOutError("none is scheduled")
        instant = pending[0].requested
        plan = bench.table(look).plan(pending[0])
        in_metadata, in_data = self._after(look, instant), self._after(look, instant)
        requested = Instant(instant, Action.COMPACTION, State.REQUESTED)
        inflight = create_inflight(bench.storage, requested)
        write = Write(instant, Action.COMPACTION, "COMPACT", {}, frozenset())
        for each in plan["operations"]:
            group = (each["partitionPath"], each["fileId"])
            names = [*([each["dataFilePath"]] if each["dataFilePath"] else []), *each["deltaFilePaths"]]
            bench.base_file(write, group, bench.rows_of(look, group, names), 0)
        bench.delta_commit(instant, file_changes(write.stats), {}, in_metadata)
        metadata = CommitMetadata(
            write_stats=group_stats(write.stats), compacted=True, operation_type="COMPACT"
        )
        complete(bench.storage, inflight, in_data, encode_commit_metadata(metadata))
        bench.storage.delete_tree(f".hoodie/.temp/{instant}")
        bench.clock.wait()

    def _after(self, look: Look, instant: str) -> str:
        """A completion time; the clock may have jumped to before the plan's, then nothing completes."""
        time = self._bench.instant(look)
        if time <= instant:
            raise LeftOutError("its clock is behind the plan")
        return time

    # ------------------------------------------------------------ clustering

    def plan_clustering(self, look: Look, day: str) -> str:
        """Schedules all file groups of a partition."""
        bench, table = self._bench, self._bench.table(look)
        groups = [
            each
            for each in sorted(table.read_slices())
            if each[0] == day and each not in look.timeline.scheduled
        ]
        instant = bench.instant(look)
        if not groups or look.timeline.hudi.pending("clustering"):
            raise LeftOutError("no file group in the partition, or another one is scheduled")
        if not bench.is_sound(look, instant, groups, ()):
            raise LeftOutError("its clock is behind what it would replace")
        plan = encode_container("requested-replace-metadata", _clustering_plan(table.read_slices(), groups))
        create_requested(bench.storage, instant, Action.CLUSTERING, plan)
        bench.clock.wait()
        return instant

    def run_clustering(self, look: Look) -> None:
        """Carries the scheduled one out, unless a commit changed one of its file groups since."""
        bench = self._bench
        pending = look.timeline.hudi.pending("clustering")
        if not pending:
            raise LeftOutError("none is scheduled")
        instant = pending[0].requested
        groups = sorted(group for group, by in look.timeline.clustered.items() if by == instant)
        known = frozenset(
            each.requested for each in look.timeline.hudi.completed() if str(each.completion) <= instant
        )
        write = Write(instant, Action.CLUSTERING, "CLUSTER", {}, known, groups=set(groups))
        self._writes.check_conflicts(write, look)
        keys = [key for key, place in look.content.indexed.items() if place in write.groups]
        if not bench.is_sound(look, self._after(look, instant), groups, keys):
            raise LeftOutError("its clock is behind what it would replace")
        create_inflight(bench.storage, Instant(instant, Action.CLUSTERING, State.REQUESTED))
        rows = {
            key: row for key, row in look.content.rows.items() if look.content.places[key] in write.groups
        }
        for group in groups:
            write.replaced.setdefault(group[0], []).append(group[1])
        for day in sorted({group[0] for group in groups}):
            mine = {key: row for key, row in rows.items() if row.day == day}
            if mine:
                self._writes.new_group(write, day, mine)
        self._writes.commit_metadata(write, self._after(look, instant))
        self._writes.commit_data(write, self._after(look, instant))
        bench.clock.wait()

    # ------------------------------------------------------------ clean

    def clean(self, look: Look, policy: str, keep: int) -> None:
        """``keep``: commits, versions or, by time, seconds."""
        bench, table = self._bench, self._bench.table(look)
        if policy == "commits":
            plan = cleaning.plan_by_commits(table, keep)
        elif policy == "versions":
            plan = cleaning.plan_by_versions(table, keep)
        else:
            plan = cleaning.plan_by_time(table, bench.clock.before(keep * 1_000))
        if plan is None:
            raise LeftOutError("nothing to clean")
        groups = {
            (partition, file.file_id)
            for partition, names in plan.files.items()
            for name in names
            if (file := parse_data_file(name)) is not None
        }
        instant = bench.instant(look)
        if not bench.is_sound(look, instant, groups, ()):
            raise LeftOutError("its clock is behind what it would delete")
        paths = {p: [join_path(p, name) for name in names] for p, names in plan.files.items()}
        document = _clean_plan(plan, paths, table.timeline.savepoints)
        requested = create_requested(bench.storage, instant, Action.CLEAN, document)
        inflight = create_inflight(bench.storage, requested)
        for partition, names in plan.files.items():
            for name in names:
                bench.storage.delete(join_path(partition, name))
            bench.storage.sync_dir(partition)
        changes = [FileChange(p, name, None) for p, names in plan.files.items() for name in names]
        bench.delta_commit(instant, changes, {}, bench.instant(look))
        complete(bench.storage, inflight, bench.instant(look), _clean_metadata(plan, instant))
        bench.clock.wait()

    # ------------------------------------------------------------ archival

    def archive(self, look: Look, least: int) -> None:
        """Moves all but so many of the newest writes into the history."""
        bench = self._bench
        # As little as Hudi can be told to keep: cleans count versions, compactions go by time.
        keep = Keep(least, least, commits=None, deltas=None)
        old = to_archive(bench.table(look), look.metadata.hudi, keep)
        if not old:
            raise LeftOutError("nothing to archive")
        self._write_history(old)
        for each in old:
            # First what tells of its beginning: a completed file alone still counts.
            bench.delete_instant(each.requested, DATA_ROOT)

    def _write_history(self, instants: list[HudiInstant]) -> None:
        storage, folder = self._bench.storage, f"{DATA_ROOT}/timeline"
        self._archives += 1
        name = f"{instants[0].requested}_{instants[-1].requested}_0.parquet"
        plans = [f"{folder}/{each.requested}.{each.action}.requested" for each in instants]
        table = pa.table(
            {
                "instantTime": [each.requested for each in instants],
                "completionTime": [each.completion for each in instants],
                "action": [each.word for each in instants],
                "metadata": [storage.memory.read(f"{folder}/{each.name}") for each in instants],
                "plan": [storage.memory.read(path) if storage.exists(path) else None for path in plans],
                "version": pa.array([1] * len(instants), pa.int32()),
            }
        )
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
        content = sink.getvalue().to_pybytes()
        self._archived.append({"fileName": name, "fileLen": len(content)})
        storage.create(join_path(folder, "history", name), content)
        manifest = json.dumps({"files": self._archived}).encode()
        storage.create(join_path(folder, "history", f"manifest_{self._archives}"), manifest)
        storage.replace(join_path(folder, "history", "_version_"), str(self._archives).encode())

    # ------------------------------------------------------------ the record index

    def compact_index(self, look: Look, clean: bool) -> None:
        """Folds the record index into base files; ``clean``: what they replace goes."""
        bench, storage = self._bench, self._bench.storage
        index, instant = look.content.indexed, self._bench.instant(look)
        newest = max(look.metadata.hudi.newest, look.timeline.hudi.newest)
        if not index or instant <= newest:
            raise LeftOutError("the index is empty, or its clock behind it")
        before = storage.list(_INDEX_FOLDER)
        root = METADATA_TABLE_ROOT
        requested = create_requested(storage, instant, Action.COMPACTION, _NO_PLAN, root=root)
        inflight = create_inflight(storage, requested, root=root)
        completed = {each.requested for each in load_timeline(storage, root).completed()}
        for shard in range(bench.shards):
            mine = sorted(key for key in index if bench.shard(key) == shard)
            places = [RecordLocation(*index[key]) for key in mine]
            moments = np.full(len(mine), instant_to_ms(instant), np.int64)
            values = encode_values(np.arange(len(mine), dtype=np.int32), places, moments)
            name = str(BaseFileName(record_index_file_id(shard), f"{shard}-0-0", instant, "hfile"))
            keys = pa.array(mine, pa.string())
            storage.create(
                join_path(_INDEX_FOLDER, name), write_hfile(keys, values, metadata_record_schema())
            )
        metadata = encode_commit_metadata(CommitMetadata(compacted=True))
        complete(storage, inflight, bench.instant(look), metadata, root=root)
        for info in before if clean else ():
            parsed = parse_data_file(info.name)
            if parsed is not None and parsed.instant in completed:
                storage.delete(info.path)
        bench.clock.wait()


def _clustering_plan(
    slices: dict[Group, tuple[str | None, list[str]]], groups: list[Group]
) -> dict[str, Any]:
    members = [
        {
            "dataFilePath": slices[group][0],
            "deltaFilePaths": slices[group][1],
            "fileId": group[1],
            "partitionPath": group[0],
            "bootstrapFilePath": None,
            "version": 1,
        }
        for group in groups
    ]
    inputs = {
        "slices": members,
        "metrics": {},
        "numOutputFileGroups": 1,
        "extraMetadata": {},
        "version": 1,
    }
    plan: dict[str, Any] = {
        "inputGroups": [inputs],
        "strategy": None,
        "extraMetadata": {},
        "version": 1,
        "preserveHoodieMetadata": True,
        "missingSchedulePartitions": None,
    }
    return {"operationType": "CLUSTER", "clusteringPlan": plan, "extraMetadata": {}, "version": 1}


def _clean_plan(plan: cleaning.CleanPlan, paths: dict[str, list[str]], saved: frozenset[str]) -> bytes:
    retained = plan.retained
    document = {
        "earliestInstantToRetain": None
        if retained is None
        else {"timestamp": retained.requested, "action": retained.action, "state": "COMPLETED"},
        "lastCompletedCommitTimestamp": "",
        "policy": plan.policy,
        "filesToBeDeletedPerPartition": {},
        "version": 2,
        "filePathsToBeDeletedPerPartition": {
            partition: [{"filePath": path, "isBootstrapBaseFile": False} for path in found]
            for partition, found in paths.items()
        },
        "partitionsToBeDeleted": list(plan.partitions),
        # What a clean kept for a savepoint holds archival back until the next clean.
        "extraMetadata": {"savepointed_timestamps": ",".join(sorted(saved))} if saved else {},
    }
    return encode_container("cleaner-plan", document)


def _clean_metadata(plan: cleaning.CleanPlan, instant: str) -> bytes:
    partitions = {
        partition: {
            "partitionPath": partition,
            "policy": plan.policy,
            "deletePathPatterns": names,
            "successDeleteFiles": names,
            "failedDeleteFiles": [],
            "isPartitionDeleted": partition in plan.partitions,
        }
        for partition, names in plan.files.items()
    }
    document = {
        "startCleanTime": instant,
        "timeTakenInMillis": 1,
        "totalFilesDeleted": sum(len(names) for names in plan.files.values()),
        "earliestCommitToRetain": plan.retained.requested if plan.retained is not None else "",
        "lastCompletedCommitTimestamp": "",
        "partitionMetadata": partitions,
        "version": 2,
        "bootstrapPartitionMetadata": {},
        "extraMetadata": {},
    }
    return encode_container("clean-metadata", document)
