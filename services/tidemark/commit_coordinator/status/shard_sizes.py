"""Which shards of the record index have too many entries, by the trailers of their base files. In a
partitioned index each data partition has shards of its own.

A base file's trailer is read once, and only of a file that is large enough to hold so many entries. Entries
in log files are not counted: the next compaction brings them into the base file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidemark.hudi_format.hfile import HFileReader
from tidemark.hudi_format.metadata_table.partitions.record_index import (
    RECORD_INDEX_FOLDER,
    RECORD_INDEX_PARTITION,
    parse_record_index_file_id,
)
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.storage.base import join_path
from tidemark.hudi_format.table_services.rebuilding.numbers import (
    SHARD_ENTRIES_MAX,
    enough_shards,
    large_partition_text,
    large_shards_text,
)

# Compressed, an entry takes at least so much: keys differ, and most have 20 bytes.
_ENTRY_BYTES_MIN: Final = 4


@dataclass(frozen=True)
class ShardSizes:
    """``shards``: of the index, in all data partitions. ``large``: how many have more than ``limit`` entries,
    ``largest``: entries of the largest of these, ``entries``: of all large ones. ``partition``: the data
    partition of the largest, where the index is partitioned and there is one.
    """

    shards: int
    large: int = 0
    largest: int = 0
    entries: int = 0
    partition: str | None = None

    def warnings(self, lanes: int) -> list[str]:
        """What `status` says of large shards; nothing where there are none."""
        if not self.large:
            return []
        if self.partition is not None:
            return [large_partition_text(self.shards, self.largest, self.large, self.partition)]
        # The others are counted like the average of these: keys are spread by their hash.
        wanted = enough_shards(self.shards, lanes, self.entries * self.shards // self.large)
        return [large_shards_text(self.shards, self.largest, self.large, wanted)]


class ShardSizeLooks:
    """Looks at one table's index again and again. For one thread."""

    def __init__(self, limit: int = SHARD_ENTRIES_MAX) -> None:
        self._limit = limit
        self._known: dict[str, int] = {}

    def look(self, snapshot: MetadataTableSnapshot) -> ShardSizes:
        """The sizes as of the snapshot. Raises OSError, FileMissingError, CorruptFileError."""
        file_ids = {slice_.base_file: slice_.file_id for slice_ in snapshot.slices[RECORD_INDEX_PARTITION]}
        there = [name for name in file_ids if name is not None]
        fresh = snapshot.storage.sizes(
            RECORD_INDEX_FOLDER, [name for name in there if name not in self._known]
        )
        counted = {
            name: self._count(snapshot, name) if size >= self._limit * _ENTRY_BYTES_MIN else 0
            for name, size in fresh.items()
        }
        self._known = {name: {**self._known, **counted}.get(name, 0) for name in there}
        large = {name: count for name, count in self._known.items() if count > self._limit}
        shards = len(snapshot.slices[RECORD_INDEX_PARTITION])
        if not large:
            return ShardSizes(shards)
        largest = max(large, key=lambda name: large[name])
        partition = parse_record_index_file_id(file_ids[largest]).partition_path
        return ShardSizes(shards, len(large), large[largest], sum(large.values()), partition)

    def _count(self, snapshot: MetadataTableSnapshot, name: str) -> int:
        return HFileReader.open(snapshot.storage, join_path(RECORD_INDEX_FOLDER, name)).entry_count
