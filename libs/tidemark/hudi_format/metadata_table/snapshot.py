"""A consistent view of the metadata table: the `files` partition and the record index, as of one listing.

Loading lists, in this order, the data table's timeline, the metadata table's, the folders of its
partitions, and the metadata table's timeline once more. The first two in this order make the validity rule
sound (see validity); the last one tells that no compaction, clean or rollback changed the folders in
between. If it did, or if the data listing is behind a compaction, everything is listed again, at most
`_LOADS_MAX` times.

A snapshot does not change. Its files may be cleaned away later: reading then raises FileMissingError, and
the caller loads a new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from tidemark.hudi_format.errors import FileMissingError, TimelineConflictError, UnsupportedTableError
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.file_group.slicing import build_slices
from tidemark.hudi_format.hfile import HFileReader
from tidemark.hudi_format.log_file import BlockType, decode_deletes
from tidemark.hudi_format.metadata_table.file_ids import METADATA_TABLE_PATH, parse_record_index_file_id
from tidemark.hudi_format.metadata_table.files_partition import FILES_PARTITION, FilesPartition
from tidemark.hudi_format.metadata_table.log_records import merge_order, read_log_blocks
from tidemark.hudi_format.metadata_table.record_index import RECORD_INDEX_FOLDER, RECORD_INDEX_PARTITION
from tidemark.hudi_format.metadata_table.shard import ShardSnapshot
from tidemark.hudi_format.metadata_table.shard_changes import ShardChanges
from tidemark.hudi_format.metadata_table.validity import InstantValidity
from tidemark.hudi_format.model import ShardId
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.timeline import DATA_ROOT, METADATA_TABLE_ROOT, Timeline, load_timeline

_LOADS_MAX: Final = 5


@dataclass(frozen=True)
class MetadataTableSnapshot:
    """See the module. `slices` are those of the partitions `files` and `record_index`, by partition.

    The shards of a global record index are numbered from 0. A partitioned index has shards per data
    partition: ask with `partition_path`.
    """

    storage: Storage
    validity: InstantValidity
    slices: dict[str, list[FileSlice]]
    changes: ShardChanges

    @classmethod
    def load(cls, storage: Storage) -> MetadataTableSnapshot:
        """Loads the newest snapshot.

        Raises FileMissingError when there is no metadata table, TimelineConflictError (try again later)
        when listings keep changing, CorruptFileError, UnsupportedTableError.
        """
        if not storage.exists(f"{METADATA_TABLE_ROOT}/hoodie.properties"):
            raise FileMissingError(f"{storage.base_uri} has no metadata table ({METADATA_TABLE_PATH})")
        early: list[str] = []
        for _ in range(_LOADS_MAX):
            data = load_timeline(storage, DATA_ROOT)
            validity = InstantValidity(data, load_timeline(storage, METADATA_TABLE_ROOT))
            names = {
                partition: [info.name for info in storage.list(join_path(METADATA_TABLE_PATH, partition))]
                for partition in (FILES_PARTITION, RECORD_INDEX_PARTITION)
            }
            again = InstantValidity(data, load_timeline(storage, METADATA_TABLE_ROOT))
            early = validity.folded_too_early()
            if not early and again.services() == validity.services():
                return cls._of_names(storage, validity, names)
        if early:
            raise TimelineConflictError(
                f"{storage.base_uri}: compacted metadata holds changes of {', '.join(early[:5])}, "
                "which the data timeline does not show as completed: try again; if it stays, build the "
                "record index anew"
            )
        raise TimelineConflictError(
            f"{storage.base_uri}: the metadata table changed during each of {_LOADS_MAX} listings: try again"
        )

    @classmethod
    def _of_names(
        cls, storage: Storage, validity: InstantValidity, names: dict[str, list[str]]
    ) -> MetadataTableSnapshot:
        slices: dict[str, list[FileSlice]] = {}
        for partition, of_partition in names.items():
            slices[partition] = metadata_slices({partition: of_partition}, validity)
        changes = ShardChanges.of_names(storage, RECORD_INDEX_FOLDER, validity, names[RECORD_INDEX_PARTITION])
        return cls(storage, validity, slices, changes)

    @property
    def data_timeline(self) -> Timeline:
        """The data table's timeline that the snapshot stands for."""
        return self.validity.data

    @property
    def metadata_timeline(self) -> Timeline:
        """The metadata table's own timeline."""
        return self.validity.metadata

    @cached_property
    def files(self) -> FilesPartition:
        """The merged `files` partition."""
        merged = FilesPartition()
        for file_slice in self.slices[FILES_PARTITION]:
            _merge_files(self.storage, file_slice, self.validity, merged)
        return merged

    @cached_property
    def _shards(self) -> dict[str | None, list[FileSlice]]:
        """Slices by data partition (None: global index), in order of file id, which is the order of the
        shards.
        """
        shards: dict[str | None, list[FileSlice]] = {}
        for file_slice in sorted(self.slices[RECORD_INDEX_PARTITION], key=lambda each: each.file_id):
            parsed = parse_record_index_file_id(file_slice.file_id)
            shards.setdefault(parsed.partition_path, []).append(file_slice)
        if None in shards and len(shards) > 1:
            raise UnsupportedTableError(
                "the record index has file groups of a global and of a partitioned index",
                "Drop the record index with Hudi and build it again",
            )
        return shards

    @property
    def is_partitioned_index(self) -> bool:
        """Whether the record index has shards per data partition. False, too, while it has no file group."""
        return bool(self._shards) and None not in self._shards

    @property
    def num_shards(self) -> int:
        """Number of shards of the global index, as found on disk; 0 when there is no global index."""
        return self.shard_count(None)

    def shard_count(self, partition_path: str | None) -> int:
        """Number of shards of a data partition in a partitioned index (None: of the global index)."""
        return len(self._shards.get(partition_path, ()))

    def shard(self, number: ShardId, partition_path: str | None = None) -> ShardSnapshot:
        """Shard `number` of the global index, or of a data partition's part of a partitioned one."""
        of_partition = self._shards.get(partition_path, [])
        if not 0 <= number < len(of_partition):
            where = "" if partition_path is None else f" of partition {partition_path!r}"
            raise IndexError(f"shard {number}{where}: the record index has {len(of_partition)} there")
        file_slice = of_partition[number]
        return ShardSnapshot(
            self.storage,
            RECORD_INDEX_FOLDER,
            file_slice,
            self.validity.is_valid,
            lambda completion_time: self.changes.after(file_slice.file_id, completion_time),
        )


def metadata_slices(files: Mapping[str, Iterable[str]], validity: InstantValidity) -> list[FileSlice]:
    """The slice to read of each file group of the metadata table. `files`: its partition -> names of files.

    Nothing replaces file groups there, and a pending compaction of it changes nothing for who reads.
    """
    shown = {partition: filter(validity.shows, names) for partition, names in files.items()}
    return build_slices(shown, validity.metadata, pending_compactions={}, replaced={})


def _merge_files(
    storage: Storage, file_slice: FileSlice, validity: InstantValidity, merged: FilesPartition
) -> None:
    folder = join_path(METADATA_TABLE_PATH, FILES_PARTITION)
    if file_slice.base_file is not None:
        base = HFileReader.open(storage, join_path(folder, file_slice.base_file))
        _apply_all(base, "", merged)
    for each in merge_order(read_log_blocks(storage, folder, file_slice.log_files), validity.is_valid):
        if each.block.block_type is BlockType.DELETE:
            for key in decode_deletes(each.block.content, each.path).keys.to_pylist():
                merged.remove(key)
        else:
            _apply_all(HFileReader.from_bytes(each.block.content, each.path), each.block.schema, merged)


def _apply_all(reader: HFileReader, schema: str, merged: FilesPartition) -> None:
    content = reader.read_all()
    for key, value in zip(content.keys.to_pylist(), content.values.to_pylist(), strict=True):
        merged.apply(key, value, reader.schema or schema, reader.name)
