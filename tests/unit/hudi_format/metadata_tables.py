"""A table with a metadata table in memory, and a writer for it that can stop at any step: a test double."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from testing.memory_storage import InMemoryStorage
from tests.unit.hudi_format.doubles import ManualClock
from tidemark.hudi_format.commit.create_table import create_table
from tidemark.hudi_format.commit.instants import complete, create_inflight, create_requested, instant_path
from tidemark.hudi_format.hfile import write_hfile
from tidemark.hudi_format.hfile import writer as hfile_writer
from tidemark.hudi_format.metadata_table import (
    FileChange,
    MetadataTableSnapshot,
    RecordIndexEntries,
    write_record_index_log,
)
from tidemark.hudi_format.metadata_table.bootstrap import bootstrap_metadata_table
from tidemark.hudi_format.metadata_table.delta_commit import (
    begin_delta_commit,
    complete_delta_commit,
    delta_commit_metadata,
    publish_files_log,
    publish_log,
)
from tidemark.hudi_format.metadata_table.partitions.partition import MetadataLogFile
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX_FOLDER, record_index_log
from tidemark.hudi_format.metadata_table.partitions.record_index_codec import encode_values
from tidemark.hudi_format.metadata_table.record_schema import metadata_record_schema
from tidemark.hudi_format.model import InstantGenerator, RecordLocation, ShardId
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_config import TableDefinition, TableType
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action, Instant, load_timeline
from tidemark.hudi_format.timeline.archive_files import newest_version
from tidemark.hudi_format.timeline.avro_records import CommitMetadata, encode_commit_metadata

FILE_ID = "11111111-2222-4333-8444-{:012d}-0"


def file_id(number: int) -> str:
    return FILE_ID.format(number)


def entries(changes: Mapping[str, int | None], instant_ms: int = 0) -> RecordIndexEntries:
    """Key -> number of the file group it lives in from now on, None = deleted."""
    numbers = sorted({number for number in changes.values() if number is not None})
    ids = [-1 if number is None else numbers.index(number) for number in changes.values()]
    return RecordIndexEntries(
        pa.array(list(changes), pa.string()),
        np.array(ids, np.int32),
        [RecordLocation("p", file_id(number)) for number in numbers],
        np.full(len(ids), instant_ms, np.int64),
    )


def plain(found: RecordIndexEntries) -> dict[str, int | None]:
    """The opposite of `entries`."""
    numbers = [int(each.file_id.split("-")[4]) for each in found.locations]
    return {
        key: None if number < 0 else numbers[number]
        for key, number in zip(found.keys.to_pylist(), found.location_ids.tolist(), strict=True)
    }


@dataclass
class IndexedTable:
    """`live` is what the committed changes add up to. `java_order`: base files of the record index are sorted
    as those of Hudi on Spark, by UTF-16 units.
    """

    shards: int = 2
    storage: InMemoryStorage = field(default_factory=InMemoryStorage)
    live: dict[str, int] = field(default_factory=dict)
    java_order: bool = False

    def __post_init__(self) -> None:
        definition = TableDefinition(
            name="t", table_type=TableType.MERGE_ON_READ, record_key_fields=("id",), partition_fields=("p",)
        )
        create_table(self.storage, definition)
        self.times = InstantGenerator(ManualClock())
        bootstrap_metadata_table(self.storage, self.shards, self.times)

    def snapshot(self) -> MetadataTableSnapshot:
        return MetadataTableSnapshot.load(self.storage)

    def commit(self, changes: Mapping[str, int | None], files: Mapping[str, int] | None = None) -> str:
        """A whole commit; returns its instant."""
        instant, data = self.begin(changes, files)
        complete(Unfenced(self.storage), data, self.times.next(), encode_commit_metadata(CommitMetadata()))
        for key, number in changes.items():
            if number is None:
                self.live.pop(key, None)
            else:
                self.live[key] = number
        return instant

    def begin(
        self, changes: Mapping[str, int | None], files: Mapping[str, int] | None = None
    ) -> tuple[str, Instant]:
        """All of a commit but its last step: the data instant is still inflight."""
        instant = self.times.next()
        data = create_inflight(
            Unfenced(self.storage),
            create_requested(Unfenced(self.storage), instant, Action.DELTA_COMMIT),
            encode_commit_metadata(CommitMetadata()),
        )
        self.metadata_commit(instant, changes, files)
        return instant, data

    def metadata_commit(
        self, instant: str, changes: Mapping[str, int | None], files: Mapping[str, int] | None = None
    ) -> None:
        inflight = begin_delta_commit(Unfenced(self.storage), instant)
        logs = self.write_logs(instant, changes)
        added = [FileChange("p", name, size) for name, size in (files or {}).items()]
        logs.append(publish_files_log(Unfenced(self.storage), instant, added))
        complete_delta_commit(
            Unfenced(self.storage), inflight, self.times.next(), delta_commit_metadata(instant, logs)
        )

    def write_logs(self, instant: str, changes: Mapping[str, int | None]) -> list[MetadataLogFile]:
        logs = []
        for shard in range(self.shards):
            mine = {key: value for key, value in changes.items() if self.shard_of(key) == shard}
            if mine:
                deletes = sum(value is None for value in mine.values())
                data = write_record_index_log(entries(mine), instant)
                log = record_index_log(instant, ShardId(shard), len(data), len(mine) - deletes, deletes)
                publish_log(Unfenced(self.storage), log, data)
                logs.append(log)
        return logs

    def shard_of(self, key: str) -> int:
        return int(record_index_shard([key], self.shards)[0])

    def build_anew(self, metadata: bytes = b"") -> None:
        """A bootstrap of some index, under the name of the one before; `metadata`: its commit's content."""
        for built in load_timeline(self.storage, METADATA_TABLE_ROOT).completed():
            if built.requested == "00000000000000001":
                name = f"{METADATA_TABLE_ROOT}/timeline/{built.requested}_{{}}.{built.action.value}"
                self.storage.delete(name.format(built.completion))
                self.storage.create(name.format(self.times.next()), metadata)

    def schedule_compaction(self) -> Instant:
        requested = create_requested(
            Unfenced(self.storage), self.times.next(), Action.COMPACTION, b"plan", root=METADATA_TABLE_ROOT
        )
        return create_inflight(Unfenced(self.storage), requested, root=METADATA_TABLE_ROOT)

    def finish_compaction(self, inflight: Instant, content: Mapping[str, int]) -> None:
        self.write_bases(inflight.requested, content)
        metadata = encode_commit_metadata(CommitMetadata(compacted=True))
        complete(Unfenced(self.storage), inflight, self.times.next(), metadata, root=METADATA_TABLE_ROOT)

    def write_bases(self, instant: str, content: Mapping[str, int]) -> None:
        """A base file of the instant for each shard."""
        for shard in range(self.shards):
            keys = sorted(content, key=_utf16 if self.java_order else None)
            found = entries({key: content[key] for key in keys if self.shard_of(key) == shard})
            values = encode_values(found.location_ids, found.locations, found.instant_ms)
            name = f"record-index-{shard:04d}-0_{shard}-0-0_{instant}.hfile"
            self.storage.create(f"{RECORD_INDEX_FOLDER}/{name}", self._base_file(found.keys, values))

    def _base_file(self, keys: pa.Array, values: pa.Array) -> bytes:
        if not self.java_order:
            return write_hfile(keys, values, metadata_record_schema())
        with patch.object(hfile_writer, "_checked_keys", _unchecked):
            return write_hfile(keys, values, metadata_record_schema())

    def index_content(self) -> dict[str, int | None]:
        """The record index as a fresh snapshot has it, proven against its own lookups."""
        snapshot = self.snapshot()
        content: dict[str, int | None] = {}
        for number in range(snapshot.num_shards):
            shard = snapshot.shard(ShardId(number))
            found = shard.entries()
            content.update(plain(found))
            asked = pa.concat_arrays([found.keys, pa.array(["absent-1", "absent-2"])])
            answers = shard.lookup(asked)
            assert answers.found.tolist() == [True] * len(found) + [False, False]
            located = [answers.locations[each] for each in answers.location_ids[:-2]]
            assert located == [found.locations[each] for each in found.location_ids]
        return content


def _utf16(key: str) -> bytes:
    return key.encode("utf-16-be")


def _unchecked(keys: pa.Array, values: pa.Array) -> pa.Array:
    """As our writer takes them, but for the order, which it refuses."""
    return keys.cast(pa.large_binary())


def archive_instants(storage: InMemoryStorage, instants: Collection[str], root: str = ".hoodie") -> None:
    """Moves completed instants to the archive as Hudi does: rows, manifest, version, then deletions."""
    moved = [each for each in load_timeline(storage, root).completed() if each.requested in instants]
    rows = [
        (
            each.requested,
            str(each.completion),
            each.action.completed_word,
            storage.read(instant_path(each, root)),
        )
        for each in moved
    ]
    if rows:
        write_archive(storage, rows, root)
    for info in storage.list(f"{root}/timeline"):
        if not info.is_dir and info.name.startswith(tuple(each.requested for each in moved)):
            storage.delete(info.path)


def write_archive(
    storage: InMemoryStorage, rows: list[tuple[str, str, str, bytes]], root: str = ".hoodie"
) -> None:
    """Adds instants to the archive: requested, completion, action, metadata."""
    table = pa.table(
        {
            "instantTime": [requested for requested, _, _, _ in rows],
            "completionTime": [completion for _, completion, _, _ in rows],
            "action": [action for _, _, action, _ in rows],
            "metadata": pa.array([metadata for _, _, _, metadata in rows], pa.binary()),
            "plan": pa.array([None for _ in rows], pa.binary()),
            "version": [1 for _ in rows],
        }
    )
    sink = io.BytesIO()
    pq.write_table(table, sink)
    name = f"{min(row[0] for row in rows)}_{max(row[0] for row in rows)}_0.parquet"
    history = f"{root}/timeline/history"
    version = newest_version(storage, history) or 0
    files = json.loads(storage.read(f"{history}/manifest_{version}"))["files"] if version else []
    manifest = json.dumps({"files": [*files, {"fileName": name}]}).encode()
    storage.create(f"{history}/{name}", sink.getvalue())
    storage.create(f"{history}/manifest_{version + 1}", manifest)
    storage.replace(f"{history}/_version_", str(version + 1).encode())


def change_behind_loading(
    monkeypatch: pytest.MonkeyPatch, changes: Sequence[Callable[[], object]]
) -> list[Callable[[], object]]:
    """Makes one of the changes behind each loading of a snapshot, which does not show it then. Returns those
    that are left.
    """
    real, left = MetadataTableSnapshot.load, list(changes)

    def load(storage: Storage) -> MetadataTableSnapshot:
        snapshot = real(storage)
        if left:
            with monkeypatch.context() as undone:
                undone.setattr(MetadataTableSnapshot, "load", real)
                left.pop(0)()
        return snapshot

    monkeypatch.setattr(MetadataTableSnapshot, "load", load)
    return left
