"""The `column_stats` partition of the metadata table: the range of each indexed column in each file of the
data table (METADATA_TABLE.md, section 10.3).

A file has a record of each indexed column or of none, and one instant writes them: that which makes the file.
A clean deletes them with the file. Until then those of files that no reader reads any more do no harm.

    key      base64(xxh64(column)) + base64(xxh64(partition path)) + base64(md5(file name))
    group    of a key: by Java's hash, as in the record index (`record_index_hash`)
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import pyarrow as pa

from tidemark.hudi_format.column_ranges import ColumnRange
from tidemark.hudi_format.errors import HudiFormatError, UnsupportedTableError
from tidemark.hudi_format.hfile import write_hfile
from tidemark.hudi_format.log_file import BlockType, HeaderKey, encode_deletes, frame_block
from tidemark.hudi_format.metadata_table.partitions.column_stats_codec import (
    ColumnStats,
    decode_stats,
    encode_stats,
    merge_stats,
)
from tidemark.hudi_format.metadata_table.partitions.column_stats_fold import StatsFold
from tidemark.hudi_format.metadata_table.partitions.partition import MetadataLogFile, StoredEntries
from tidemark.hudi_format.metadata_table.record_schema import has_own_layout, metadata_record_schema
from tidemark.hudi_format.model import ShardId
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.hudi_format.xxh64 import xxh64

COLUMN_STATS_PARTITION: Final = "column_stats"
GROUPS_MAX: Final = 10_000
_SEED: Final = 0xFFFFFFFFDABADABA
_UNPARTITIONED: Final = "."


@dataclass(frozen=True, slots=True)
class StatsChanges:
    """What one instant changes in the partition, or in one group of it: key -> value of new records, and the
    keys that it deletes.
    """

    records: Mapping[str, bytes] = field(default_factory=dict)
    deleted: Sequence[str] = ()

    def __bool__(self) -> bool:
        return bool(self.records) or bool(self.deleted)

    def by_group(self, groups: int) -> dict[ShardId, StatsChanges]:
        """The changes of each group that has some. `groups`: how many the partition has on disk."""
        records: dict[int, dict[str, bytes]] = {}
        deleted: dict[int, list[str]] = {}
        for key, group in _with_groups(list(self.records), groups):
            records.setdefault(group, {})[key] = self.records[key]
        for key, group in _with_groups(self.deleted, groups):
            deleted.setdefault(group, []).append(key)
        return {
            ShardId(group): StatsChanges(records.get(group, {}), deleted.get(group, []))
            for group in sorted(records.keys() | deleted.keys())
        }


def _with_groups(keys: Sequence[str], groups: int) -> Iterator[tuple[str, int]]:
    return zip(keys, record_index_shard(keys, groups).tolist(), strict=True)


def column_stats_key(column: str, partition_path: str, file_name: str) -> str:
    """The key of a column's record of one file. `partition_path` is '' in a table without partitions; a log
    file's name has its dot.
    """
    return _hash_text(column) + _file_part(partition_path, file_name)


def _file_part(partition_path: str, file_name: str) -> str:
    """What the keys of all columns of a file end with."""
    file = base64.b64encode(hashlib.md5(file_name.encode(), usedforsecurity=False).digest()).decode()
    return _hash_text(partition_path or _UNPARTITIONED) + file


@lru_cache(maxsize=1 << 12)
def _hash_text(text: str) -> str:
    return base64.b64encode(xxh64(text.encode(), _SEED).to_bytes(8, "big")).decode()


def file_records(partition_path: str, file_name: str, ranges: Iterable[ColumnRange]) -> dict[str, bytes]:
    """Key -> value of the records of one new file."""
    return {
        column_stats_key(found.column, partition_path, file_name): encode_stats(ColumnStats(file_name, found))
        for found in ranges
    }


def file_keys(partition_path: str, file_name: str, columns: Iterable[str]) -> list[str]:
    """The keys of one file's records: what goes when the file does."""
    file = _file_part(partition_path, file_name)
    return [_hash_text(column) + file for column in columns]


class ColumnStatsPartition:
    """The partition `column_stats`."""

    name: Final = COLUMN_STATS_PARTITION
    shards_max: Final = GROUPS_MAX
    newest_wins: Final = False
    fold: Final = StatsFold()

    def file_id(self, shard: ShardId) -> str:
        """`col-stats-<group>-0`. Raises UnsupportedTableError for a group that there cannot be."""
        if not 0 <= shard < GROUPS_MAX:
            raise UnsupportedTableError(
                f"group {shard} of the column stats is not in 0 to {GROUPS_MAX - 1}", "Use fewer groups"
            )
        return f"col-stats-{shard:04d}-0"

    def log_file(self, changes: StatsChanges, instant: str, shard: ShardId) -> tuple[MetadataLogFile, bytes]:
        """The group's log file and its bytes: an HFILE block of the new records, then a DELETE block. Raises
        HudiFormatError for no changes at all, and for a key that is new and deleted.
        """
        if not changes:
            raise HudiFormatError(f"instant {instant}: a log of column stats without records; leave it out")
        if both := changes.records.keys() & set(changes.deleted):
            raise HudiFormatError(f"instant {instant}: it makes and deletes column stats ({min(both)})")
        data = _log_bytes(changes, instant)
        records, deletes = len(changes.records), len(set(changes.deleted))
        return column_stats_log(instant, shard, len(data), records, deletes), data

    def merge(self, parts: Iterable[StoredEntries]) -> dict[str, ColumnStats]:
        """Key -> its living record. Raises CorruptFileError."""
        merged: dict[str, ColumnStats] = {}
        for key, value, part in _entries(parts):
            if value is None:
                merged.pop(key, None)
                continue
            newer = decode_stats(value, part.schema, part.source)
            older = merged.get(key)
            merged[key] = newer if older is None else merge_stats(older, newer, part.source)
        return {key: stats for key, stats in merged.items() if not stats.is_deleted}

    def base_records(self, parts: Iterable[StoredEntries]) -> Mapping[str, bytes]:
        """Key -> value of all living records. The value of a key that has one record is copied as it is.
        Raises CorruptFileError.
        """
        values: dict[str, bytes] = {}
        merged: dict[str, ColumnStats] = {}
        for key, value, part in _entries(parts):
            if value is None:
                values.pop(key, None)
                merged.pop(key, None)
                continue
            newer = decode_stats(value, part.schema, part.source)
            older = merged.get(key)
            if older is None or (combined := merge_stats(older, newer, part.source)) is newer:
                is_own = not part.schema or has_own_layout(part.schema)
                merged[key], values[key] = newer, value if is_own else encode_stats(newer)
            else:
                merged[key], values[key] = combined, encode_stats(combined)
        living = [key for key, stats in merged.items() if not stats.is_deleted]
        return {key: values[key] for key in sorted(living)}


COLUMN_STATS: Final = ColumnStatsPartition()


def column_stats_log(
    instant: str, group: ShardId, size: int, records: int, deletes: int = 0
) -> MetadataLogFile:
    """The log file of a group in the deltacommit `instant`, whoever writes it. `size` is in bytes."""
    file_id = COLUMN_STATS.file_id(group)
    return MetadataLogFile.of_commit(COLUMN_STATS_PARTITION, group, file_id, instant, size, records, deletes)


def _entries(parts: Iterable[StoredEntries]) -> Iterator[tuple[str, bytes | None, StoredEntries]]:
    """(key, value, part) of all entries, oldest first; value None: the key is deleted."""
    for part in parts:
        keys = part.keys.to_pylist()
        values = [None] * len(keys) if part.values is None else part.values.to_pylist()
        yield from ((key, value, part) for key, value in zip(keys, values, strict=True))


def _log_bytes(changes: StatsChanges, instant: str) -> bytes:
    schema = metadata_record_schema()
    headers = {HeaderKey.INSTANT_TIME: instant, HeaderKey.SCHEMA: schema}
    blocks: list[bytes] = []
    if changes.records:
        # Keys are ASCII, so that their order is that of their bytes.
        ordered = sorted(changes.records)
        values = pa.array([changes.records[key] for key in ordered], pa.binary())
        content = write_hfile(pa.array(ordered, pa.string()), values, schema)
        blocks.append(frame_block(BlockType.HFILE_DATA, headers, content))
    if changes.deleted:
        deleted = pa.array(sorted(set(changes.deleted)), pa.string())
        blocks.append(frame_block(BlockType.DELETE, headers, encode_deletes(deleted, COLUMN_STATS_PARTITION)))
    return b"".join(blocks)
