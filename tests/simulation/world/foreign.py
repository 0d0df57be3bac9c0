"""What Hudi on Spark does to the table beside Tidemark, under the lock that both keep to."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hudi_format.commit.instants import complete, create_inflight, create_requested, instant_path
from hudi_format.commit.lock import LOCK_PATH, read_lock
from hudi_format.commit.markers import MarkerType, create_marker, delete_markers
from hudi_format.commit.rollback import rollback_pending
from hudi_format.file_group.base_file import attach_meta_columns, write_base_file
from hudi_format.file_group.names import BaseFileName, parse_data_file
from hudi_format.file_group.write_stats import new_base_file_stat
from hudi_format.hfile import write_hfile
from hudi_format.metadata_table.delta_commit import (
    MetadataLogFile,
    begin_delta_commit,
    complete_delta_commit,
    delta_commit_metadata,
    file_changes,
    publish_files_log,
    publish_log,
    record_index_log,
)
from hudi_format.metadata_table.file_ids import record_index_file_id
from hudi_format.metadata_table.record_index import RecordIndexEntries, write_record_index_log
from hudi_format.metadata_table.record_index_codec import encode_values
from hudi_format.metadata_table.record_schema import metadata_record_schema
from hudi_format.model import InstantGenerator, RecordLocation, instant_to_ms
from hudi_format.record_index_hash import record_index_shard
from hudi_format.schema import TableSchema
from hudi_format.storage.base import join_path
from hudi_format.timeline import DATA_ROOT, METADATA_TABLE_ROOT, Action, load_timeline
from hudi_format.timeline.avro_records import SCHEMA_KEY, CommitMetadata, encode_commit_metadata, group_stats
from hudi_format.timeline.service_records import CompactionPlan, encode_compaction_plan
from stream_runtime.clock import Clock
from stream_runtime.ids import IdSource

FOREIGN_KEY: Final = "sim.foreign"
_INDEX_FOLDER: Final = ".hoodie/metadata/record_index"
# What is folded is worked out by whoever calls: nobody reads the plan.
_PLAN: Final = encode_compaction_plan(CompactionPlan(operations=()))


class _Row(NamedTuple):
    """A row to write; the checkers' rows have the same fields."""

    day: str
    at: int
    number: int


class ForeignEngine:
    """Acts at once, and only while nobody holds the lock."""

    def __init__(
        self, storage: Any, clock: Clock, ids: IdSource, action: Action, schema: TableSchema, shards: int
    ) -> None:
        self._storage, self._ids, self._action = storage, ids, action
        self._schema, self._shards = schema, shards
        self._instants = InstantGenerator(clock)
        self.has_half = False
        self._lock_left = False
        self._archives = 1
        self._archived: list[dict[str, Any]] = []

    def insert(self, rows: dict[str, tuple[str, int, int]]) -> bool:
        """Commits new rows (key -> day, ordering value, number), each day's into a new file group; none: a
        commit of nothing. False when the lock is held.
        """
        return self._commit(rows, is_whole=True)

    def half(self, rows: dict[str, tuple[str, int, int]]) -> bool:
        """As `insert`, but it dies between the metadata table's commit and its own, holding the lock."""
        done = self._commit(rows, is_whole=False)
        if done:
            self._storage.create(LOCK_PATH, b"")
            self.has_half = self._lock_left = True
        return done

    def machine_crashed(self, came_back: Collection[str]) -> None:
        """Hudi's lock provider syncs no deletion: the dead one's lock may be there again, and block us."""
        self._lock_left = self._lock_left or LOCK_PATH in came_back

    def undo(self) -> None:
        """Somebody removes the dead one's lock, as our coordinator asks for, and rolls back what it left."""
        if self._lock_left:
            self._lock_left = False
            self._storage.delete(LOCK_PATH)
        if self.has_half:
            self.has_half = False
            self._observe()
            for each in load_timeline(self._storage).pending(self._action):
                if not self._storage.exists(join_path(".hoodie/.heartbeat", each.requested)):
                    rollback_pending(self._storage, each.requested, self._instants)

    def _commit(self, rows: dict[str, tuple[str, int, int]], is_whole: bool) -> bool:
        if not self._may():
            return False
        storage = self._storage
        instant = self._instants.next()
        requested = create_requested(storage, instant, self._action)
        inflight = create_inflight(storage, requested, encode_commit_metadata(CommitMetadata()))
        begun = begin_delta_commit(storage, instant)
        stats, places = [], {}
        for key, (day, at, number) in rows.items():
            file_id = f"{self._ids.uuid()}-0"
            name = str(BaseFileName(file_id, "7-7-7", instant, "parquet"))
            data = self._base_file(day, instant, name, {key: _Row(day, at, number)})
            create_marker(storage, instant, join_path(day, name), MarkerType.CREATE)
            storage.create(join_path(day, name), data)
            stats.append(new_base_file_stat(day, file_id, name, len(data), 1))
            places[key] = RecordLocation(day, file_id)
        logs = [publish_files_log(storage, instant, file_changes(stats)), *self._index(instant, places)]
        metadata = delta_commit_metadata(instant, logs)
        complete_delta_commit(storage, begun, self._instants.next(), metadata)
        if not is_whole:
            return True
        extra = {SCHEMA_KEY: self._schema.avro_json, FOREIGN_KEY: json.dumps(rows)}
        content = encode_commit_metadata(CommitMetadata(write_stats=group_stats(stats), extra_metadata=extra))
        complete(storage, inflight, self._instants.next(), content)
        delete_markers(storage, instant)
        return True

    def _index(self, instant: str, places: dict[str, RecordLocation]) -> list[MetadataLogFile]:
        logs = []
        for key, place in places.items():
            shard = self._shard(key)
            moment = np.array([instant_to_ms(instant)], np.int64)
            entries = RecordIndexEntries(pa.array([key]), np.zeros(1, np.int32), [place], moment)
            data = write_record_index_log(entries, instant)
            log = record_index_log(instant, shard, len(data), 1, 0)
            publish_log(self._storage, log, data)
            logs.append(log)
        return logs

    def _shard(self, key: str) -> int:
        return int(record_index_shard(pa.array([key]), self._shards)[0])

    def compact(self, slices: dict[tuple[str, str], dict[str, Any]]) -> bool:
        """Folds file groups (their live rows are given) into new base files."""
        if not slices or not self._may():
            return False
        storage = self._storage
        instant = self._instants.next()
        requested = create_requested(storage, instant, Action.COMPACTION, _PLAN)
        inflight = create_inflight(storage, requested)
        begun = begin_delta_commit(storage, instant)
        stats = []
        for (day, file_id), rows in slices.items():
            name = str(BaseFileName(file_id, "8-8-8", instant, "parquet"))
            data = self._base_file(day, instant, name, rows)
            storage.create(join_path(day, name), data)
            stats.append(new_base_file_stat(day, file_id, name, len(data), len(rows)))
        logs = [publish_files_log(storage, instant, file_changes(stats))]
        complete_delta_commit(storage, begun, self._instants.next(), delta_commit_metadata(instant, logs))
        metadata = CommitMetadata(write_stats=group_stats(stats), compacted=True)
        complete(storage, inflight, self._instants.next(), encode_commit_metadata(metadata))
        return True

    def _base_file(self, day: str, instant: str, name: str, rows: dict[str, Any]) -> bytes:
        values = {
            "id": list(rows),
            "day": [row.day for row in rows.values()],
            "ts": [row.at for row in rows.values()],
            "v": [row.number for row in rows.values()],
        }
        user = pa.table(values, schema=self._schema.arrow)
        keys = pa.chunked_array([pa.array(list(rows), pa.string())])
        return write_base_file(attach_meta_columns(user, keys, day, instant, 0, name, 0), self._schema)

    def compact_index(self, index: dict[str, tuple[str, str]], clean: bool) -> bool:
        """Folds the record index (its content is given) into base files; ``clean``: what they replace
        goes.
        """
        storage = self._storage
        if not index or not self._may():
            return False
        instant = self._instants.next()
        before = storage.list(_INDEX_FOLDER)
        root = METADATA_TABLE_ROOT
        requested = create_requested(storage, instant, Action.COMPACTION, _PLAN, root=root)
        inflight = create_inflight(storage, requested, root=root)
        completed = {each.requested for each in load_timeline(storage, root).completed()}
        for shard in range(self._shards):
            mine = sorted(key for key in index if self._shard(key) == shard)
            places = [RecordLocation(*index[key]) for key in mine]
            moments = np.full(len(mine), instant_to_ms(instant), np.int64)
            values = encode_values(np.arange(len(mine), dtype=np.int32), places, moments)
            name = str(BaseFileName(record_index_file_id(shard), f"{shard}-0-0", instant, "hfile"))
            keys = pa.array(mine, pa.string())
            storage.create(
                join_path(_INDEX_FOLDER, name), write_hfile(keys, values, metadata_record_schema())
            )
        metadata = encode_commit_metadata(CommitMetadata(compacted=True))
        complete(storage, inflight, self._instants.next(), metadata, root=root)
        for info in before if clean else ():
            parsed = parse_data_file(info.name)
            if parsed is not None and parsed.instant in completed:
                storage.delete(info.path)
        return True

    def archive(self) -> bool:
        """Moves all but the newest commits of the data table into its history, up to the oldest pending one
        and to the last compaction of the metadata table, as Hudi does.
        """
        storage = self._storage
        if not self._may():
            return False
        timeline = load_timeline(storage)
        compactions = [each.requested for each in load_timeline(storage, METADATA_TABLE_ROOT).completed()]
        compacted = [c for c in compactions if timeline.find(c) is None and not c.startswith("0000")]
        limit = min([*(each.requested for each in timeline.pending()), max(compacted, default="")])
        done = [each for each in timeline.completed() if each.requested < limit]
        newest = max((each.requested for each in done if each.action.is_write), default="")
        old = [each for each in done if each.requested < newest]
        if not old:
            return False
        self._write_history([(i.requested, str(i.completion), i.action.completed_word) for i in old])
        for each in old:
            # First what tells of its beginning: a completed file alone still counts.
            for info in storage.list(f"{DATA_ROOT}/timeline"):
                if info.name.startswith(f"{each.requested}."):
                    storage.delete(info.path)
            storage.delete(instant_path(each))
        storage.sync_dir(f"{DATA_ROOT}/timeline")
        return True

    def _write_history(self, instants: list[tuple[str, str, str]]) -> None:
        folder, number = f"{DATA_ROOT}/timeline/history", self._archives
        self._archives += 1
        name = f"{instants[0][0]}_{instants[-1][0]}_0.parquet"
        columns = list(zip(*instants, strict=True))
        table = pa.table(
            {
                "instantTime": list(columns[0]),
                "completionTime": list(columns[1]),
                "action": list(columns[2]),
                "metadata": pa.array([b""] * len(instants), pa.binary()),
                "plan": pa.array([b""] * len(instants), pa.binary()),
            }
        )
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
        content = sink.getvalue().to_pybytes()
        self._archived.append({"fileName": name, "fileLen": len(content)})
        self._storage.create(join_path(folder, name), content)
        manifest = json.dumps({"files": self._archived}).encode()
        self._storage.create(join_path(folder, f"manifest_{number}"), manifest)
        self._storage.replace(join_path(folder, "_version_"), str(number).encode())

    def roll_back(self) -> str | None:
        """Rolls back the oldest write that is pending, whatever its heartbeat says; returns its instant."""
        if self._may():
            for each in load_timeline(self._storage).pending(self._action):
                rollback_pending(self._storage, each.requested, self._instants)
                return each.requested
        return None

    def _may(self) -> bool:
        if not self._storage.exists(".hoodie/hoodie.properties") or read_lock(self._storage) is not None:
            return False
        self._observe()
        return True

    def _observe(self) -> None:
        for timeline in (load_timeline(self._storage), load_timeline(self._storage, METADATA_TABLE_ROOT)):
            self._instants.observe(timeline.times())
