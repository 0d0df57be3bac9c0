"""Small real tables, and damage to them: commits that say what is not so, files that go or come."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from tests.interop.native_commit import NativeWriter
from tests.unit.table_files import new_table, orders
from tidemark.hudi_format.commit.instants import complete, create_inflight, create_requested
from tidemark.hudi_format.file_group.names import LogFileName, parse_data_file
from tidemark.hudi_format.hfile import write_hfile
from tidemark.hudi_format.metadata_table.delta_commit import (
    begin_delta_commit,
    complete_delta_commit,
    delta_commit_metadata,
    publish_files_log,
    publish_log,
)
from tidemark.hudi_format.metadata_table.partitions.files import FileChange
from tidemark.hudi_format.metadata_table.partitions.partition import MetadataLogFile
from tidemark.hudi_format.metadata_table.partitions.record_index import (
    RECORD_INDEX_FOLDER,
    RecordIndexEntries,
    record_index_log,
    write_record_index_log,
)
from tidemark.hudi_format.metadata_table.partitions.record_index_codec import encode_values
from tidemark.hudi_format.metadata_table.record_schema import metadata_record_schema
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.model import InstantGenerator, RecordLocation, ShardId
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import TableType
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action, load_timeline
from tidemark.hudi_format.timeline.avro_records import CommitMetadata, WriteStat, encode_commit_metadata
from tidemark.stream_runtime.clock import SystemClock

DAYS = ("2026-01-01", "2026-01-02", "2026-01-03")


def changed_table(path: Path, table_type: TableType) -> NativeWriter:
    """60 keys on three days; then updates, a move (k1) and a delete (k59)."""
    writer = new_table(path, table_type)
    writer.commit(orders(*((f"k{n}", DAYS[n % 3], 10) for n in range(60))))
    writer.commit(
        orders(*((f"k{n}", DAYS[n % 3], 20) for n in range(0, 30, 2)), ("k1", DAYS[2], 20)), [("k59", 20)]
    )
    return writer


class Damage:
    """What `index` and `unlist` commit is in the metadata table; the data commit beside it is empty."""

    def __init__(self, path: Path) -> None:
        self.storage = LocalStorage(path)
        self.path = path
        self.snapshot = MetadataTableSnapshot.load(self.storage)
        self.times = InstantGenerator(SystemClock())
        self.times.observe(self.snapshot.data_timeline.times() + self.snapshot.metadata_timeline.times())

    def shard_of(self, key: str) -> int:
        return int(record_index_shard(pa.array([key]), self.snapshot.num_shards)[0])

    def location_of(self, key: str) -> RecordLocation:
        found = self.snapshot.shard(ShardId(self.shard_of(key))).lookup(pa.array([key]))
        return found.locations[int(found.location_ids[0])]

    def index(self, key: str, location: RecordLocation | None, shard: int | None = None) -> str:
        """Commits one index entry, a delete where the location is None; returns the instant."""
        locations = [] if location is None else [location]
        entries = RecordIndexEntries(
            pa.array([key]), np.array([len(locations) - 1], np.int32), locations, np.zeros(1, np.int64)
        )
        shard = self.shard_of(key) if shard is None else shard
        instant = self.times.next()
        content = write_record_index_log(entries, instant)
        log = record_index_log(instant, ShardId(shard), len(content), len(locations), 1 - len(locations))
        publish_log(Unfenced(self.storage), log, content)
        return self.metadata_commit(instant, [], [log])

    def files_say(self, path: str, size: int | None) -> str:
        """Commits that a file has a size, or with None that it is gone; returns the instant."""
        partition, _, name = path.rpartition("/")
        return self.metadata_commit(self.times.next(), [FileChange(partition, name, size)], [])

    def metadata_commit(
        self, instant: str, changes: Sequence[FileChange], logs: Sequence[MetadataLogFile]
    ) -> str:
        on_read = (self.path / ".hoodie/hoodie.properties").read_text().count("MERGE_ON_READ")
        action = Action.DELTA_COMMIT if on_read else Action.COMMIT
        requested = create_requested(Unfenced(self.storage), instant, action)
        data = create_inflight(Unfenced(self.storage), requested, encode_commit_metadata(CommitMetadata()))
        inflight = begin_delta_commit(Unfenced(self.storage), instant)
        files = publish_files_log(Unfenced(self.storage), instant, changes)
        complete_delta_commit(
            Unfenced(self.storage),
            inflight,
            self.times.next(),
            delta_commit_metadata(instant, [*logs, files]),
        )
        complete(Unfenced(self.storage), data, self.times.next(), encode_commit_metadata(CommitMetadata()))
        return instant

    def compact_index(self) -> str:
        """Folds all shards into base files, as Hudi's compaction of the metadata table does; returns the
        instant.
        """
        requested = create_requested(
            Unfenced(self.storage), self.times.next(), Action.COMPACTION, b"plan", root=METADATA_TABLE_ROOT
        )
        inflight = create_inflight(Unfenced(self.storage), requested, root=METADATA_TABLE_ROOT)
        stats = [self._index_base(shard, inflight.requested) for shard in range(self.snapshot.num_shards)]
        metadata = CommitMetadata(write_stats={"record_index": tuple(stats)}, compacted=True)
        content = encode_commit_metadata(metadata)
        complete(Unfenced(self.storage), inflight, self.times.next(), content, root=METADATA_TABLE_ROOT)
        return inflight.requested

    def rebuild_index(self) -> None:
        """Replaces the record index by one that is built anew, as Hudi does after it was dropped."""
        bootstrap = "00000000000000002"
        assert self._entries
        for info in self.storage.list(RECORD_INDEX_FOLDER):
            self.remove(info.path)
        stats = [self._index_base(shard, bootstrap) for shard in range(self.snapshot.num_shards)]
        content = encode_commit_metadata(CommitMetadata(write_stats={"record_index": tuple(stats)}))
        inflight = begin_delta_commit(Unfenced(self.storage), bootstrap)
        complete(Unfenced(self.storage), inflight, self.times.next(), content, root=METADATA_TABLE_ROOT)

    def _index_base(self, shard: int, instant: str) -> WriteStat:
        found = self._entries[shard]
        values = encode_values(found.location_ids, found.locations, found.instant_ms)
        file_id = f"record-index-{shard:04d}-0"
        path = f"record_index/{file_id}_{shard}-0-0_{instant}.hfile"
        content = write_hfile(found.keys, values, metadata_record_schema())
        self.storage.create(f".hoodie/metadata/{path}", content)
        return WriteStat(file_id=file_id, path=path, partition_path="record_index")

    @cached_property
    def _entries(self) -> list[RecordIndexEntries]:
        shards = range(self.snapshot.num_shards)
        return [self.snapshot.shard(ShardId(shard)).entries().sorted_by_key() for shard in shards]

    def files(self, log: bool) -> list[str]:
        """Data files of the table, log files or base files."""
        return [
            info.path
            for day in DAYS
            for info in self.storage.list(day)
            if (parsed := parse_data_file(info.name)) and isinstance(parsed, LogFileName) is log
        ]

    def index_logs(self, instant: str) -> list[str]:
        """The record index log files of an instant."""
        return [
            info.path for info in self.storage.list(RECORD_INDEX_FOLDER) if f"_{instant}.log." in info.name
        ]

    def remove(self, path: str) -> str:
        """Deletes a file as an accident would: no timeline knows."""
        self.storage.delete(path)
        return path

    def copy_as(self, source: str, old: str, new: str) -> str:
        """Puts a copy of a file beside it, with a part of its name replaced; returns its path."""
        target = source.replace(old, new)
        self.storage.create(target, self.storage.read(source))
        return target


def epoch_commit(
    path: Path, epoch: int, source: tuple[int, int], index_says: int | None = None, previous: str = ""
) -> str:
    """An empty commit with the metadata that an epoch carries; the two commits differ with `index_says`."""

    def extra(number: int) -> dict[str, str]:
        return {
            "tidemark.epoch": str(number),
            "tidemark.previous_instant": previous,
            "tidemark.keyed_offsets": json.dumps({"orders.keyed": {"0": source}}),
            "tidemark.source_offsets": json.dumps({"orders-in": {"0": source}}),
            "tidemark.records": "{}",
        }

    storage, times = LocalStorage(path), InstantGenerator(SystemClock())
    times.observe(load_timeline(storage).times())
    instant = times.next()
    requested = create_requested(Unfenced(storage), instant, Action.DELTA_COMMIT)
    data = create_inflight(Unfenced(storage), requested, encode_commit_metadata(CommitMetadata()))
    inflight = begin_delta_commit(Unfenced(storage), instant)
    files = publish_files_log(Unfenced(storage), instant, [])
    metadata = delta_commit_metadata(instant, [files], extra(index_says or epoch))
    complete_delta_commit(Unfenced(storage), inflight, times.next(), metadata)
    content = CommitMetadata(extra_metadata=extra(epoch))
    complete(Unfenced(storage), data, times.next(), encode_commit_metadata(content))
    return instant
