"""What another engine does to the table beside us, by the format library's own steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import pyarrow as pa

from tests.hudi_rules.documents import encode
from tests.simulation.hudi_footers import hudi_base_file, hudi_ranges
from tests.simulation.scripted_tagger import SCHEMA
from tidemark.hudi_format.commit.instants import complete, create_inflight, create_requested, instant_path
from tidemark.hudi_format.commit.rollback import rollback_pending
from tidemark.hudi_format.file_group.base_file import read_base_file, write_base_file
from tidemark.hudi_format.file_group.names import BaseFileName
from tidemark.hudi_format.file_group.write_stats import new_base_file_stat
from tidemark.hudi_format.metadata_table.delta_commit import (
    begin_delta_commit,
    complete_delta_commit,
    delta_commit_metadata,
    file_changes,
    publish_files_log,
    publish_log,
)
from tidemark.hudi_format.metadata_table.partitions.column_stats import (
    COLUMN_STATS,
    StatsChanges,
    file_records,
)
from tidemark.hudi_format.metadata_table.partitions.record_index import (
    RECORD_INDEX_FOLDER,
    record_index_file_id,
)
from tidemark.hudi_format.metadata_table.stats_layout import STATS_GROUPS
from tidemark.hudi_format.model import InstantGenerator, ShardId, is_bootstrap_instant
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.table_services import archiving
from tidemark.hudi_format.table_services.archive_planning import ArchivedName, ArchivePlan
from tidemark.hudi_format.table_view import TableView
from tidemark.hudi_format.timeline import (
    DATA_ROOT,
    METADATA_TABLE_ROOT,
    Action,
    Instant,
    State,
    load_timeline,
)
from tidemark.hudi_format.timeline.archive_files import (
    VERSION_NAME,
    ArchiveFile,
    Manifest,
    manifest_name,
)
from tidemark.hudi_format.timeline.archive_rows import encode_archive_file
from tidemark.hudi_format.timeline.avro_records import (
    OPERATION_COMPACT,
    OPERATION_UPSERT,
    SCHEMA_KEY,
    CommitMetadata,
    WriteStat,
    encode_commit_metadata,
    group_stats,
)
from tidemark.hudi_format.timeline.service_records import (
    RequestedCompaction,
    RollbackPlan,
    encode_compaction_plan,
    encode_rollback_plan,
)
from tidemark.stream_runtime.clock import Clock


class OtherEngine:
    """What it does to the rows, if anything, is told; that it committed is what has to be noticed."""

    def __init__(self, storage: Storage, clock: Clock, action: Action, follows: bool = True) -> None:
        """``follows``: its times lie above both timelines; Hudi's own writers look at their clocks alone."""
        self._storage, self._follows = storage, follows
        self._instants = InstantGenerator(clock)
        self._action = action

    def commit(self, schema: TableSchema = SCHEMA, extra: Mapping[str, str] | None = None) -> str:
        """A commit on both timelines without rows, as ALTER TABLE makes it; returns its completion time."""
        self._look()
        return self._commit(self._instants.next(), schema, [], extra or {})

    def rewrite(
        self,
        schema: TableSchema,
        change: Callable[[pa.Table], pa.Table],
        stats_of: Sequence[str] = (),
    ) -> str:
        """Writes every base file anew with the columns of ``schema``, its rows as ``change`` makes them of
        those that are there, and column stats of ``stats_of``, both as Hudi's writers do; returns the
        completion time.
        """
        self._look()
        instant, storage = self._instants.next(), self._storage
        stats, records = [], dict[str, bytes]()
        for each in TableView.load(storage).slices(list_data_files(storage)):
            assert each.base_file is not None
            name = str(BaseFileName(each.file_id, "0-9-9", instant, "parquet"))
            rows = change(read_base_file(storage, join_path(each.partition_path, each.base_file)))
            data = hudi_base_file(write_base_file(rows, schema))
            storage.create(join_path(each.partition_path, name), data)
            stat = new_base_file_stat(each.partition_path, each.file_id, name, len(data), rows.num_rows)
            stats.append(replace(stat, prev_base_file=each.base_file, file_size_in_bytes=len(data)))
            if stats_of:
                ranges = hudi_ranges(read_base_file(storage, stats[-1].path), stats_of)
                records |= file_records(each.partition_path, name, ranges)
        return self._commit(instant, schema, stats, {}, records)

    def _commit(
        self,
        instant: str,
        schema: TableSchema,
        stats: list[WriteStat],
        extra: Mapping[str, str],
        records: Mapping[str, bytes] = MappingProxyType({}),
    ) -> str:
        carried = {SCHEMA_KEY: schema.avro_json, **extra}
        content = encode_commit_metadata(
            CommitMetadata(
                write_stats=group_stats(stats),
                extra_metadata=carried,
                operation_type=OPERATION_COMPACT if self._action is Action.COMPACTION else OPERATION_UPSERT,
            )
        )
        requested = create_requested(Unfenced(self._storage), instant, self._action)
        inflight = create_inflight(Unfenced(self._storage), requested, content)
        begun = begin_delta_commit(Unfenced(self._storage), instant)
        logs = [publish_files_log(Unfenced(self._storage), instant, file_changes(stats))]
        for group, changes in StatsChanges(records).by_group(STATS_GROUPS).items():
            log, data = COLUMN_STATS.log_file(changes, instant, group)
            publish_log(Unfenced(self._storage), log, data)
            logs.append(log)
        metadata = delta_commit_metadata(instant, logs)
        complete_delta_commit(Unfenced(self._storage), begun, self._instants.next(), metadata)
        completion = self._instants.next()
        complete(Unfenced(self._storage), inflight, completion, content)
        return completion

    def roll_back(self, instant: str) -> None:
        """Rolls a pending instant back, whatever its heartbeat says."""
        self._look()
        rollback_pending(Unfenced(self._storage), instant, self._instants)

    def schedule_rollback(self, instant: str) -> None:
        """Leaves a rollback of the instant pending."""
        self._look()
        plan = RollbackPlan(instant_to_rollback=instant, action=self._action.value, requests=())
        create_requested(
            Unfenced(self._storage), self._instants.next(), Action.ROLLBACK, encode_rollback_plan(plan)
        )

    def schedule_compaction(self, root: str) -> str:
        """Leaves a compaction (of nothing) pending on the timeline below ``root``; returns its instant."""
        self._look()
        instant = self._instants.next()
        plan = encode_compaction_plan(RequestedCompaction(operations=()))
        create_requested(Unfenced(self._storage), instant, Action.COMPACTION, plan, root=root)
        return instant

    def clean(self) -> str:
        """A clean that found nothing to delete; returns its completion time."""
        self._look()
        requested = create_requested(Unfenced(self._storage), self._instants.next(), Action.CLEAN)
        inflight = create_inflight(Unfenced(self._storage), requested)
        completion = self._instants.next()
        complete(Unfenced(self._storage), inflight, completion, b"")
        return completion

    def pending(self) -> list[Instant]:
        """Pending writes of anybody."""
        timeline = load_timeline(self._storage)
        return [each for each in timeline.pending(self._action) if each.state is not State.COMPLETED]

    def undo(self, instant: str) -> None:
        """Rolls a completed commit back, as Hudi's `rollback_to_instant` does: it is pending again first."""
        self._look()
        for root in (METADATA_TABLE_ROOT, DATA_ROOT):
            found = load_timeline(self._storage, root).find(instant)
            assert found is not None
            assert found.is_completed
            self._storage.delete(instant_path(found, root))
        rollback_pending(Unfenced(self._storage), instant, self._instants)

    def build_index(self, shards: int | None = None) -> None:
        """The metadata table appears anew, with what it holds now: its bootstrap completes at this moment.
        ``shards``: as many there are then; those that come hold what the first one holds.
        """
        self._look()
        if shards is not None:
            self._make_shards(shards)
        for each in load_timeline(self._storage, METADATA_TABLE_ROOT).completed():
            if is_bootstrap_instant(each.requested):
                anew = replace(each, completion=self._instants.next())
                content = self._storage.read(instant_path(each, METADATA_TABLE_ROOT))
                self._storage.create(instant_path(anew, METADATA_TABLE_ROOT), content)
                self._storage.delete(instant_path(each, METADATA_TABLE_ROOT))

    def _make_shards(self, shards: int) -> None:
        names = [
            each.name for each in self._storage.list(RECORD_INDEX_FOLDER) if "record-index-" in each.name
        ]
        held = {int(name.partition("record-index-")[2].partition("-")[0]) for name in names}
        for number in held | set(range(shards)):
            mine, first = record_index_file_id(ShardId(number)), record_index_file_id(ShardId(0))
            if number >= shards:
                for name in (each for each in names if mine in each):
                    self._storage.delete(f"{RECORD_INDEX_FOLDER}/{name}")
            elif number not in held:
                for name in (each for each in names if first in each):
                    content = self._storage.read(f"{RECORD_INDEX_FOLDER}/{name}")
                    self._storage.create(f"{RECORD_INDEX_FOLDER}/{name.replace(first, mine)}", content)

    def take_building_back(self, keeps: int) -> None:
        """What Hudi's restore does where the savepoint's commit completed before the index was built: the
        building goes. ``keeps``: shards that such commits wrote to.
        """
        folder = join_path(METADATA_TABLE_ROOT, "timeline")
        for file in [each.name for each in self._storage.list(folder)]:
            if is_bootstrap_instant(file):
                self._storage.delete(join_path(folder, file))
        self._make_shards(keeps)

    def restore(self) -> None:
        """Takes its own newest commit back, and says that it was a restore."""
        newest = load_timeline(self._storage).completed(self._action)[-1]
        requested = create_requested(Unfenced(self._storage), self._instants.next(), Action.RESTORE)
        inflight = create_inflight(Unfenced(self._storage), requested)
        self.undo(newest.requested)
        self._look()
        document = {
            "startRestoreTime": requested.requested,
            "timeTakenInMillis": 1,
            "instantsToRollback": [newest.requested],
            "hoodieRestoreMetadata": {},
            "version": 1,
            "restoreInstantInfo": [],
        }
        complete(Unfenced(self._storage), inflight, self._instants.next(), encode("restore", document))

    def archive(self, root: str = DATA_ROOT) -> None:
        """Moves all instants before the newest completed write of a timeline to its archive."""
        storage, folder = self._storage, archiving.history_of(root)
        done = load_timeline(storage, root).completed()
        newest = max(instant.requested for instant in done if instant.action.is_write)
        old = [instant for instant in done if instant.requested < newest]
        names = [ArchivedName(each.requested, str(each.completion), each.action.value) for each in old]
        plan = ArchivePlan(root == METADATA_TABLE_ROOT, tuple(names))
        before = archiving.newest_manifest(storage, root)
        content = encode_archive_file(archiving.archived_rows(storage, plan))
        files = (*before.files, ArchiveFile(plan.file_name, len(content)))
        version = (before.version or 0) + 1
        storage.create(join_path(folder, plan.file_name), content)
        storage.create(join_path(folder, manifest_name(version)), Manifest(version, files).encode())
        storage.replace(join_path(folder, VERSION_NAME), str(version).encode())
        assert archiving.delete_instants(storage, plan, storage.delete, lambda _: None, lambda: False)

    def _look(self) -> None:
        if not self._follows:
            return
        for timeline in (load_timeline(self._storage), load_timeline(self._storage, METADATA_TABLE_ROOT)):
            self._instants.observe(timeline.times())


def list_data_files(storage: Storage) -> dict[str, list[str]]:
    """Partition to the names of its files."""
    folders = [each.name for each in storage.list("") if each.is_dir and each.name != ".hoodie"]
    return {folder: [each.name for each in storage.list(folder)] for folder in folders}
