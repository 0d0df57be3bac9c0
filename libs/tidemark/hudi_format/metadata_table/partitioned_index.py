"""A record index whose file groups are divided by data partition (METADATA_TABLE.md, section 6): which group
has a key, what a commit writes, how entries merge and are found.

A row is identified by (data partition, record key). The same key may have a row in each of several
partitions, and nothing moves between them. Each partition has groups of its own, as many as whoever began it
chose. So a key's group follows from the partition, the key, and the number of the partition's groups, which
is counted and never configured:

    groups on disk                   partition eu has 2, us/ca has 3
        record-index-eu-0000-0       ("eu", "k1")       java_hash("k1") = 3366, mod 2 is 0: the first of eu
        record-index-eu-0001-0       ("us/ca", "k1")    3366 mod 3 is 0: the first of us/ca
        record-index-us%2Fca-0000-0  ("asia", "k1")     no groups: certainly absent, nothing is read
        record-index-us%2Fca-0001-0
        record-index-us%2Fca-0002-0

The commit that first writes a partition makes all its groups, each with a file of 80 bytes (section 4.3). Of
a group whose first file belongs to an instant that never completes Hudi shows no later file either. So
these files are published with the commit, under the table's lock, and deleted when the commit is taken back.

The file of 80 bytes has the write token `0-0-0`. The token of a log with entries ends in 1, so that both
have names of their own in a group that the same instant begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.hudi_format.errors import CorruptFileError, HudiFormatError, UnsupportedTableError
from tidemark.hudi_format.file_group.names import LogFileName
from tidemark.hudi_format.metadata_table.bootstrap import INITIAL_TOKEN
from tidemark.hudi_format.metadata_table.delta_commit import empty_log
from tidemark.hudi_format.metadata_table.partitions.partition import LOG_VERSION, MetadataLogFile
from tidemark.hudi_format.metadata_table.partitions.record_index import (
    RECORD_INDEX_PARTITION,
    SHARDS_MAX,
    RecordIndexEntries,
    parse_record_index_file_id,
    record_index_file_id,
    write_record_index_log,
)
from tidemark.hudi_format.metadata_table.shard import LookupResult
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.model import RecordLocation, ShardId, shard_ids
from tidemark.hudi_format.record_index_hash import java_hash

NO_GROUP: Final = -1


class IndexGroup(NamedTuple):
    """One file group: the data partition ('' in a table without partitions), and its number there."""

    partition_path: str
    shard: ShardId

    @property
    def file_id(self) -> str:
        """`record-index-<escaped partition>-<shard>-0`. Raises UnsupportedTableError for a partition path
        with a '.'.
        """
        return record_index_file_id(self.shard, self.partition_path)


@dataclass(frozen=True, slots=True)
class PartitionedLayout:
    """`shards`: data partition -> number of its groups, 1 up. A partition that is missing has none."""

    shards: Mapping[str, int]

    @classmethod
    def of_file_ids(cls, file_ids: Iterable[str]) -> PartitionedLayout:
        """The layout that a listing shows; ids may come several times.

        Raises UnsupportedTableError for a group of a global index, CorruptFileError for an id of another
        partition of the metadata table, and where a group is missing between others: Hudi counts groups and
        would look for keys in the wrong ones.
        """
        found: dict[str, set[int]] = {}
        for file_id in file_ids:
            parsed = parse_record_index_file_id(file_id)
            if parsed.partition_path is None:
                raise UnsupportedTableError(
                    f"file group {file_id!r} belongs to a global record index, and this one is partitioned",
                    "Drop the record index with Hudi and build it again",
                )
            found.setdefault(parsed.partition_path, set()).add(parsed.shard)
        for path, numbers in found.items():
            if missing := set(range(max(numbers) + 1)) - numbers:
                raise CorruptFileError(
                    f"the record index of partition {path!r} has {len(numbers)} file groups, and number "
                    f"{min(missing)} is not among them"
                )
        return cls({path: len(found[path]) for path in sorted(found)})

    def begun(self, partition_paths: Iterable[str], shards: int) -> PartitionedLayout:
        """The layout once those of these partitions that have no groups got `shards` each; the others stay as
        they are.

        Raises UnsupportedTableError for a number that Hudi does not allow, and for a partition path that it
        could not read back from a file's name.
        """
        if not 1 <= shards <= SHARDS_MAX:
            raise UnsupportedTableError(
                f"{shards} shards for each data partition", f"Choose 1 to {SHARDS_MAX}"
            )
        new = {path: shards for path in partition_paths if path not in self.shards}
        for path in new:
            record_index_file_id(ShardId(0), path)
        return PartitionedLayout(dict(sorted({**self.shards, **new}.items())))

    def groups(self) -> list[IndexGroup]:
        """All groups, by partition path and number."""
        return [
            IndexGroup(path, shard) for path in sorted(self.shards) for shard in shard_ids(self.shards[path])
        ]

    def groups_beyond(self, older: PartitionedLayout) -> list[IndexGroup]:
        """The groups that `older` lacks, by partition path and number."""
        return [group for group in self.groups() if group.partition_path not in older.shards]

    def shards_of(
        self, keys: pa.StringArray, partition_ids: npt.NDArray[np.int32], partitions: Sequence[str]
    ) -> npt.NDArray[np.int32]:
        """The number of each key's group within the groups of its partition, `partitions[partition_ids[i]]`;
        `NO_GROUP` where the partition has none.
        """
        if not len(keys):
            return np.empty(0, np.int32)
        counts = np.array([self.shards.get(path, 0) for path in partitions], np.int64)[partition_ids]
        # As `record_index_shard`, with a number of groups for each key. Without groups the divisor is 1.
        shards = np.abs(java_hash(keys).astype(np.int64)) % np.maximum(counts, 1)
        return np.where(counts > 0, shards, NO_GROUP).astype(np.int32)


@dataclass(frozen=True, slots=True)
class PartitionedEntries:
    """n entries: entry i of `entries` belongs to the data partition `partitions[partition_ids[i]]`, deletes
    too, which have no location that would tell. `partitions` has no path twice.
    """

    entries: RecordIndexEntries
    partition_ids: npt.NDArray[np.int32]
    partitions: Sequence[str]

    def __post_init__(self) -> None:
        if len(self.entries) != len(self.partition_ids):
            raise HudiFormatError(f"{len(self.entries)} entries, {len(self.partition_ids)} data partitions")

    def __len__(self) -> int:
        return len(self.entries)

    @classmethod
    def of_partitions(cls, parts: Mapping[str, RecordIndexEntries]) -> PartitionedEntries:
        """Data partition -> its entries, as one."""
        sizes = [len(entries) for entries in parts.values()]
        ids = np.repeat(np.arange(len(parts), dtype=np.int32), sizes)
        return cls(RecordIndexEntries.concat(list(parts.values())), ids, list(parts))

    @classmethod
    def newest_wins(cls, parts: Sequence[PartitionedEntries]) -> PartitionedEntries:
        """One entry for each (partition, key): its last one in the order of the parts. Deletes stay."""
        numbers: dict[str, int] = {}
        ids = [np.empty(0, np.int32)]
        for part in parts:
            mapped = [numbers.setdefault(path, len(numbers)) for path in part.partitions]
            ids.append(np.array(mapped, np.int32)[part.partition_ids])
        merged = cls(
            RecordIndexEntries.concat([part.entries for part in parts]), np.concatenate(ids), list(numbers)
        )
        encoded = merged.entries.keys.dictionary_encode()
        codes = encoded.indices.to_numpy().astype(np.int64)
        # Each (partition, key) as one number. Numpy assigns repeated indices in order, so the last position
        # of each is left.
        identities = merged.partition_ids.astype(np.int64) * max(len(encoded.dictionary), 1) + codes
        distinct, inverse = np.unique(identities, return_inverse=True)
        last = np.zeros(len(distinct), np.int64)
        last[inverse] = np.arange(len(merged))
        return merged if len(distinct) == len(merged) else merged.take(np.sort(last))

    def take(self, positions: npt.NDArray[np.int64]) -> PartitionedEntries:
        """The entries at these positions."""
        return PartitionedEntries(
            self.entries.take(positions), self.partition_ids[positions], self.partitions
        )

    def live(self) -> PartitionedEntries:
        """The entries that are not deletes."""
        return self.take(np.flatnonzero(self.entries.location_ids >= 0))

    def by_group(self, layout: PartitionedLayout) -> dict[IndexGroup, RecordIndexEntries]:
        """The entries of each group that has any, ordered by partition path and number; within a group they
        keep their order. Raises HudiFormatError for an entry of a partition without groups, and for one whose
        row is in another partition.
        """
        self._check_locations()
        shards = layout.shards_of(self.entries.keys, self.partition_ids, self.partitions)
        if len(lost := np.flatnonzero(shards == NO_GROUP)):
            path = self.partitions[self.partition_ids[lost[0]]]
            raise HudiFormatError(f"index entries of partition {path!r}, which has no file groups")
        divided = {
            IndexGroup(self.partitions[partition], ShardId(shard)): self.entries.take(positions)
            for partition, shard, positions in _divided(self.partition_ids, shards)
        }
        return dict(sorted(divided.items()))

    def _check_locations(self) -> None:
        locations, numbers = self.entries.locations, {path: at for at, path in enumerate(self.partitions)}
        # The extra last cell is what a delete's -1 reads.
        of_location = np.array([*(numbers.get(at.partition_path, NO_GROUP) for at in locations), NO_GROUP])
        found = of_location[self.entries.location_ids]
        wrong = np.flatnonzero((self.entries.location_ids >= 0) & (found != self.partition_ids))
        if len(wrong):
            at = int(wrong[0])
            path = self.partitions[self.partition_ids[at]]
            raise HudiFormatError(
                f"an index entry of partition {path!r} names {locations[self.entries.location_ids[at]]}"
            )


def _divided(
    partition_ids: npt.NDArray[np.int32], shards: npt.NDArray[np.int32]
) -> Iterator[tuple[int, int, npt.NDArray[np.int64]]]:
    """Each (partition, shard) that occurs, with the positions at which it does, ascending."""
    if not len(shards):
        return
    order = np.lexsort((shards, partition_ids))
    sorted_ids, sorted_shards = partition_ids[order], shards[order]
    is_first = np.diff(sorted_ids, prepend=-1).astype(bool) | np.diff(sorted_shards, prepend=-2).astype(bool)
    starts = np.flatnonzero(is_first)
    for start, positions in zip(starts, np.split(order, starts[1:]), strict=True):
        yield int(sorted_ids[start]), int(sorted_shards[start]), positions.astype(np.int64)


def initial_logs(groups: Iterable[IndexGroup], instant: str) -> list[tuple[MetadataLogFile, bytes]]:
    """The files of 80 bytes with which these groups begin in the deltacommit `instant`."""
    data = empty_log(instant)
    return [(_log(group, instant, INITIAL_TOKEN, len(data), 0, 0), data) for group in groups]


def commit_logs(
    changes: PartitionedEntries, layout: PartitionedLayout, instant: str
) -> list[tuple[MetadataLogFile, bytes]]:
    """The log file of each group that the deltacommit `instant` changes, and its bytes. `layout` has the
    groups that the commit begins, too. Raises as `by_group` and `write_record_index_log`.
    """
    logs = []
    for group, entries in changes.by_group(layout).items():
        deletes = int((entries.location_ids < 0).sum())
        data = write_record_index_log(entries, instant)
        logs.append((commit_log(group, instant, len(data), len(entries) - deletes, deletes), data))
    return logs


def commit_log(group: IndexGroup, instant: str, size: int, upserts: int, deletes: int) -> MetadataLogFile:
    """The log file with entries of a group in the deltacommit `instant`; `size` in bytes."""
    return _log(group, instant, f"{group.shard}-0-1", size, upserts, deletes)


def _log(
    group: IndexGroup, instant: str, token: str, size: int, upserts: int, deletes: int
) -> MetadataLogFile:
    name = str(LogFileName(group.file_id, instant, LOG_VERSION, token))
    return MetadataLogFile(RECORD_INDEX_PARTITION, group.shard, group.file_id, name, size, upserts, deletes)


def layout_of(snapshot: MetadataTableSnapshot) -> PartitionedLayout:
    """The layout that a snapshot shows. Raises as `PartitionedLayout.of_file_ids`."""
    return PartitionedLayout.of_file_ids(one.file_id for one in snapshot.slices[RECORD_INDEX_PARTITION])


def layout_before(snapshot: MetadataTableSnapshot, instant: str) -> PartitionedLayout:
    """The layout that a snapshot shows, without the partitions whose groups began after `instant`. A log file
    of that instant would be the first one there, and hide the whole group until the instant is completed.
    Raises as `layout_of`.
    """
    slices = snapshot.slices[RECORD_INDEX_PARTITION]
    later = {
        parse_record_index_file_id(one.file_id).partition_path
        for one in slices
        if one.base_file is None and one.base_instant > instant
    }
    shards = layout_of(snapshot).shards
    return PartitionedLayout({path: shards[path] for path in shards if path not in later})


def find(
    snapshot: MetadataTableSnapshot,
    keys: pa.StringArray,
    partition_ids: npt.NDArray[np.int32],
    partitions: Sequence[str],
) -> LookupResult:
    """Where the row of each (`partitions[partition_ids[i]]`, `keys[i]`) is. A partition without groups has no
    rows, and nothing is read for it. Raises FileMissingError when a file was cleaned away since the snapshot
    was loaded, CorruptFileError.
    """
    shards = layout_of(snapshot).shards_of(keys, partition_ids, partitions)
    found = np.zeros(len(keys), np.bool_)
    location_ids = np.full(len(keys), NO_GROUP, np.int32)
    instant_ms = np.zeros(len(keys), np.int64)
    numbers: dict[RecordLocation, int] = {}
    for partition, shard, positions in _divided(partition_ids, shards):
        if shard == NO_GROUP:
            continue
        part = snapshot.shard(ShardId(shard), partitions[partition]).lookup(keys.take(pa.array(positions)))
        mapped = [numbers.setdefault(location, len(numbers)) for location in part.locations]
        found[positions] = part.found
        location_ids[positions] = np.array([*mapped, NO_GROUP], np.int32)[part.location_ids]
        instant_ms[positions] = part.instant_ms
    return LookupResult(found, location_ids, list(numbers), instant_ms)
