"""Compactions and cleans of small tables as Tidemark commits them, with faults that a test plants."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from tests.unit.table_files import table_schema
from tests.unit.table_verification.damage import Damage
from tidemark.hudi_format.commit.instants import complete, create_inflight, create_requested
from tidemark.hudi_format.file_group.base_file import RECORD_KEY, write_base_file
from tidemark.hudi_format.file_group.slice_reader import read_slice
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.file_group.write_stats import new_base_file_stat
from tidemark.hudi_format.hfile import write_hfile
from tidemark.hudi_format.key_digest import DIGESTS_KEY, MODULUS, Digest, digests_text, key_digest
from tidemark.hudi_format.metadata_table.delta_commit import (
    begin_delta_commit,
    complete_delta_commit,
    delta_commit_metadata,
    publish_files_log,
)
from tidemark.hudi_format.metadata_table.partitions.files import FileChange
from tidemark.hudi_format.metadata_table.partitions.partition import METADATA_TABLE_PATH
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX_FOLDER
from tidemark.hudi_format.metadata_table.partitions.record_index_codec import encode_values
from tidemark.hudi_format.metadata_table.record_schema import metadata_record_schema
from tidemark.hudi_format.metadata_table.shard import ShardSnapshot
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.model import ShardId
from tidemark.hudi_format.ordering import OrderingField
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import read_table_config
from tidemark.hudi_format.table_view import TableView
from tidemark.hudi_format.timeline import DATA_ROOT, METADATA_TABLE_ROOT, Action, Instant
from tidemark.hudi_format.timeline.avro_records import (
    SCHEMA_KEY,
    CommitMetadata,
    WriteStat,
    encode_commit_metadata,
)
from tidemark.hudi_format.timeline.clean_records import CleanMetadata, encode_clean_metadata
from tidemark.hudi_format.timeline.service_records import (
    CompactionOperation,
    RequestedCompaction,
    compaction_metrics,
    encode_compaction_plan,
)


@dataclass(frozen=True)
class Faults:
    """``leaves_out``: log files that the plan has not, as if they had not been there. ``loses``: keys that
    are not written, although they were read. ``says``: the digest in the commit, if not the right one; with
    ``silent`` there is none, as other engines write it.
    """

    leaves_out: Collection[str] = ()
    loses: Collection[str] = ()
    says: Digest | None = None
    silent: bool = False


RIGHT = Faults()


class Services:
    """Table services of one table; each method commits one action and returns its instant."""

    def __init__(self, path: Path) -> None:
        self.storage = LocalStorage(path)
        self.times = Damage(path).times

    def compact_data(self, faults: Faults = RIGHT, groups: int | None = None) -> str:
        """Compacts the data file groups with log files, or the first ``groups`` of them."""
        slices = [each for each in self._data_slices() if each.log_files][:groups]
        kept = [_without(each, faults.leaves_out) for each in slices]
        instant = self.times.next()
        inflight = self._begin(instant, kept, DATA_ROOT)
        written = [self._data_base(each, instant, faults) for each in kept]
        stats = [stat for stat, _ in written]
        changes = [
            FileChange(stat.partition_path, stat.path.rpartition("/")[2], stat.file_size_in_bytes)
            for stat in stats
        ]
        self._index_hears(instant, changes)
        digests = {stat.file_id: digest for stat, digest in written}
        self._end(inflight, stats, digests, faults, DATA_ROOT)
        return instant

    def compact_index(self, faults: Faults = RIGHT) -> str:
        """Compacts the shards of the record index."""
        snapshot = MetadataTableSnapshot.load(self.storage)
        slices = [snapshot.shard(ShardId(shard)).file_slice for shard in range(snapshot.num_shards)]
        kept = [_without(each, faults.leaves_out) for each in slices]
        instant = self.times.next()
        inflight = self._begin(instant, kept, METADATA_TABLE_ROOT)
        written = [self._index_base(snapshot, each, instant, faults) for each in kept]
        digests = {stat.file_id: digest for stat, digest in written}
        self._end(inflight, [stat for stat, _ in written], digests, faults, METADATA_TABLE_ROOT)
        return instant

    def clean(self, paths: Sequence[str], sweeps: bool = True) -> str:
        """Commits that these data files are gone, and then deletes them."""
        instant = self.times.next()
        requested = create_requested(Unfenced(self.storage), instant, Action.CLEAN)
        inflight = create_inflight(Unfenced(self.storage), requested)
        named = [path.rpartition("/") for path in paths]
        self._index_hears(instant, [FileChange(folder, name, None) for folder, _, name in named])
        deleted: dict[str, tuple[str, ...]] = {}
        for folder, _, name in named:
            deleted[folder] = (*deleted.get(folder, ()), name)
        content = encode_clean_metadata(CleanMetadata(earliest_commit_to_retain="", deleted=deleted))
        complete(Unfenced(self.storage), inflight, self.times.next(), content)
        if sweeps:
            self.sweep(paths)
        return instant

    def sweep(self, paths: Sequence[str]) -> None:
        """Deletes what a clean named."""
        for path in paths:
            self.storage.delete(path)

    def superseded(self) -> list[str]:
        """Paths of the data files that no current slice has."""
        current = {path for each in self._data_slices() for path in each.paths()}
        return [
            path
            for partition in self._partitions()
            for name in self.storage.names(partition)
            if (path := f"{partition}/{name}") not in current and not name.startswith(".hoodie")
        ]

    def _partitions(self) -> list[str]:
        return [info.name for info in self.storage.list("") if info.is_dir and info.name != ".hoodie"]

    def _data_slices(self) -> list[FileSlice]:
        names = {partition: self.storage.names(partition) for partition in self._partitions()}
        return TableView.load(self.storage).slices(names)

    def _begin(self, instant: str, slices: Sequence[FileSlice], root: str) -> Instant:
        operations = tuple(
            CompactionOperation(
                partition_path=each.partition_path,
                file_id=each.file_id,
                base_instant=each.base_instant,
                log_files=each.log_files,
                base_file=each.base_file,
                metrics=compaction_metrics(len(each.log_files), 1, 1),
            )
            for each in slices
        )
        plan = encode_compaction_plan(RequestedCompaction(operations=operations))
        requested = create_requested(Unfenced(self.storage), instant, Action.COMPACTION, plan, root=root)
        return create_inflight(Unfenced(self.storage), requested, root=root)

    def _end(
        self,
        inflight: Instant,
        stats: Sequence[WriteStat],
        digests: Mapping[str, Digest],
        faults: Faults,
        root: str,
    ) -> None:
        extra = {SCHEMA_KEY: table_schema().avro_json}
        if not faults.silent:
            said = {file_id: faults.says or digest for file_id, digest in digests.items()}
            extra[DIGESTS_KEY] = digests_text(said)
        grouped: dict[str, tuple[WriteStat, ...]] = {}
        for stat in stats:
            grouped[stat.partition_path] = (*grouped.get(stat.partition_path, ()), stat)
        content = encode_commit_metadata(
            CommitMetadata(
                write_stats=grouped, extra_metadata=extra, operation_type="COMPACT", compacted=True
            )
        )
        complete(Unfenced(self.storage), inflight, self.times.next(), content, root=root)

    def _index_hears(self, instant: str, changes: Sequence[FileChange]) -> None:
        inflight = begin_delta_commit(Unfenced(self.storage), instant)
        log = publish_files_log(Unfenced(self.storage), instant, changes)
        metadata = delta_commit_metadata(instant, [log])
        complete_delta_commit(Unfenced(self.storage), inflight, self.times.next(), metadata)

    def _data_base(self, file_slice: FileSlice, instant: str, faults: Faults) -> tuple[WriteStat, Digest]:
        config, schema = read_table_config(self.storage), table_schema()
        ordering = OrderingField.of(schema, "at")
        rows = read_slice(self.storage, file_slice, schema, config.merge_mode, ordering)
        digest = key_digest(rows.column(RECORD_KEY))
        lost = pa.array(list(faults.loses), pa.string())
        rows = rows.filter(pc.invert(pc.is_in(rows.column(RECORD_KEY), lost)))
        name = f"{file_slice.file_id}_0-0-0_{instant}.parquet"
        content = write_base_file(rows, schema)
        self.storage.create(f"{file_slice.partition_path}/{name}", content)
        stat = new_base_file_stat(
            file_slice.partition_path, file_slice.file_id, name, len(content), rows.num_rows
        )
        return stat, digest

    def _index_base(
        self, snapshot: MetadataTableSnapshot, file_slice: FileSlice, instant: str, faults: Faults
    ) -> tuple[WriteStat, Digest]:
        valid = snapshot.validity.is_valid
        before = replace(file_slice, log_files=())
        merged, base = (
            ShardSnapshot(self.storage, RECORD_INDEX_FOLDER, each, valid, lambda _: None).entries()
            for each in (file_slice, before)
        )
        came, went = (
            set(one.keys.to_pylist()) - set(two.keys.to_pylist())
            for one, two in ((merged, base), (base, merged))
        )
        total = key_digest(pa.array(sorted(came), pa.string()))[1]
        total -= key_digest(pa.array(sorted(went), pa.string()))[1]
        found = merged.sorted_by_key()
        values = encode_values(found.location_ids, found.locations, found.instant_ms)
        stays = pc.invert(pc.is_in(found.keys, pa.array(list(faults.loses), pa.string())))
        name = f"{file_slice.file_id}_0-0-0_{instant}.hfile"
        content = write_hfile(found.keys.filter(stays), values.filter(stays), metadata_record_schema())
        self.storage.create(f"{METADATA_TABLE_PATH}/{file_slice.partition_path}/{name}", content)
        stat = WriteStat(
            file_id=file_slice.file_id,
            path=f"{file_slice.partition_path}/{name}",
            partition_path=file_slice.partition_path,
        )
        return stat, (len(merged), total % MODULUS)


def _without(file_slice: FileSlice, left_out: Collection[str]) -> FileSlice:
    kept = tuple(log for log in file_slice.log_files if log not in left_out)
    return replace(file_slice, log_files=kept)
