"""A consistent view of the metadata table: all its partitions in use as of one listing.

Loading lists in this order:

1. the data table's timeline,
2. the metadata table's timeline. That it comes after the first makes the rule of `validity` sound,
3. the folders of the partitions,
4. the metadata table's timeline again. If it shows a compaction, clean or rollback that step 2 did not, the
   folders may have changed while they were listed. So they may if the record index is another one than before
   step 3 (`index_life`).

In these cases, and where the first listing is older than what a compaction has merged, everything is listed
again, at most `_LOADS_MAX` times.

A snapshot does not change. Its files may be cleaned away later: reading then raises FileMissingError, and the
caller loads a new snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from tidemark.hudi_format.errors import FileMissingError, TimelineConflictError, UnsupportedTableError
from tidemark.hudi_format.file_group.slices import FileGroupId, FileSlice
from tidemark.hudi_format.file_group.slicing import all_slices, build_slices
from tidemark.hudi_format.metadata_table.index_life import index_life
from tidemark.hudi_format.metadata_table.log_records import slice_entries
from tidemark.hudi_format.metadata_table.partitions.files import FILES, ListedFiles
from tidemark.hudi_format.metadata_table.partitions.partition import (
    METADATA_TABLE_PATH,
    MetadataPartition,
    StoredEntries,
)
from tidemark.hudi_format.metadata_table.partitions.record_index import (
    RECORD_INDEX,
    RECORD_INDEX_FOLDER,
    parse_record_index_file_id,
)
from tidemark.hudi_format.metadata_table.partitions_in_use import partitions_in_use
from tidemark.hudi_format.metadata_table.shard import ShardSnapshot
from tidemark.hudi_format.metadata_table.shard_changes import ShardChanges
from tidemark.hudi_format.metadata_table.validity import InstantValidity
from tidemark.hudi_format.model import ShardId
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.timeline import DATA_ROOT, METADATA_TABLE_ROOT, Timeline, load_timeline

_LOADS_MAX: Final = 5


@dataclass(frozen=True)
class MetadataTableSnapshot:
    """`slices`: name of the partition -> the slice to read of each of its file groups.

    The shards of a global record index are numbered from 0. A partitioned index has shards for each data
    partition: its methods take a `partition_path`.
    """

    storage: Storage
    validity: InstantValidity
    slices: dict[str, list[FileSlice]]
    changes: ShardChanges
    index_life: str = ""
    """Which building of the record index it shows (`index_life`)."""

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
            life = index_life(storage)
            names = {
                partition.name: storage.names(join_path(METADATA_TABLE_PATH, partition.name))
                for partition in partitions_in_use(storage)
            }
            again = InstantValidity(data, load_timeline(storage, METADATA_TABLE_ROOT))
            early = validity.folded_too_early()
            changed = again.services() != validity.services() or index_life(storage) != life
            if not early and not changed:
                return cls._of_names(storage, validity, names, life)
        if early:
            raise TimelineConflictError(
                f"{storage.base_uri}: the compacted metadata table holds changes of {', '.join(early[:5])}, "
                "which the data timeline does not show as completed: try again; if this error stays, build "
                "the record index anew"
            )
        raise TimelineConflictError(
            f"{storage.base_uri}: the metadata table changed during each of {_LOADS_MAX} listings: try again"
        )

    @classmethod
    def _of_names(
        cls, storage: Storage, validity: InstantValidity, names: dict[str, list[str]], life: str
    ) -> MetadataTableSnapshot:
        slices: dict[str, list[FileSlice]] = {}
        for partition, of_partition in names.items():
            slices[partition] = metadata_slices({partition: of_partition}, validity)
        changes = ShardChanges.of_names(storage, RECORD_INDEX_FOLDER, validity, names[RECORD_INDEX.name])
        return cls(storage, validity, slices, changes, life)

    @property
    def data_timeline(self) -> Timeline:
        """The data table's timeline as the snapshot listed it."""
        return self.validity.data

    @property
    def metadata_timeline(self) -> Timeline:
        """The metadata table's own timeline as the snapshot listed it."""
        return self.validity.metadata

    @cached_property
    def files(self) -> ListedFiles:
        """The merged partition `files`."""
        return FILES.merge(self._stored(FILES))

    def _stored(self, partition: MetadataPartition[Any, Any]) -> Iterator[StoredEntries]:
        """All entries of a partition, of each file group oldest first."""
        folder = join_path(METADATA_TABLE_PATH, partition.name)
        for file_slice in self.slices[partition.name]:
            yield from slice_entries(self.storage, folder, file_slice, self.validity.is_valid)

    @cached_property
    def _shards(self) -> dict[str | None, list[FileSlice]]:
        """Data partition (None: global index) -> its slices in the order of their file ids, which is that of
        the shards.
        """
        shards: dict[str | None, list[FileSlice]] = {}
        for file_slice in sorted(self.slices[RECORD_INDEX.name], key=lambda file_slice: file_slice.file_id):
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
        """Whether the record index has shards for each data partition. False also while it has no shard."""
        return bool(self._shards) and None not in self._shards

    @property
    def num_shards(self) -> int:
        """Number of shards of the global index, counted by its file groups; 0 without a global index."""
        return self.shard_count(None)

    def shard_count(self, partition_path: str | None) -> int:
        """Number of shards of a data partition in a partitioned index (None: of the global index)."""
        return len(self._shards.get(partition_path, ()))

    def shard(self, number: ShardId, partition_path: str | None = None) -> ShardSnapshot:
        """Shard `number` of the global index, or of one data partition in a partitioned index.

        Raises IndexError where there is no such shard.
        """
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


def metadata_slices(
    files: Mapping[str, Iterable[str]], validity: InstantValidity, as_of: str | None = None
) -> list[FileSlice]:
    """The slice to read of each file group of the metadata table. `files`: its partition -> names of files.
    `as_of`: a completion time; whatever completed later is ignored.

    Nothing replaces file groups of the metadata table, and a reader needs no plans of pending compactions.
    """
    shown = {partition: filter(validity.shows, names) for partition, names in files.items()}
    return build_slices(shown, validity.metadata, pending_compactions={}, replaced={}, as_of=as_of)


def every_metadata_slice(
    files: Mapping[str, Iterable[str]], validity: InstantValidity
) -> dict[FileGroupId, list[FileSlice]]:
    """All slices of each file group of the metadata table, oldest first; `files` as `metadata_slices`."""
    shown = {partition: filter(validity.shows, names) for partition, names in files.items()}
    return all_slices(shown, validity.metadata, pending_compactions={})
