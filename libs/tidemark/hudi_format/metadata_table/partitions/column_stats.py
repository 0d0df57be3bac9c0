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
import pyarrow.compute as pc

from tidemark.hudi_format.column_ranges import ColumnRange
from tidemark.hudi_format.errors import HudiFormatError, UnsupportedTableError
from tidemark.hudi_format.hfile import write_hfile
from tidemark.hudi_format.log_file import BlockType, HeaderKey, encode_deletes, frame_block
from tidemark.hudi_format.metadata_table.partitions.column_stats_codec import (
    ColumnStats,
    decode_stats,
    encode_stats,
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
_MERGED: Final = "the merged column stats"


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


def columns_left_out(keys: pa.StringArray, columns: Iterable[str]) -> list[str]:
    """Those of the columns of which one of the files with these keys has no record. Example: the keys of a
    and b of one file, and of a alone of another one, leave b out.
    """
    keys = pc.unique(keys)
    at = len(_hash_text(""))
    files = pc.count_distinct(pc.utf8_slice_codeunits(keys, at)).as_py()
    of_columns = pc.utf8_slice_codeunits(keys, 0, at).value_counts().to_pylist()
    counts = {found["values"]: found["counts"] for found in of_columns}
    return [column for column in columns if counts.get(_hash_text(column), 0) < files]


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
        return {key: decode_stats(value, "", _MERGED) for key, value in self.living(parts).items()}

    def base_records(self, parts: Iterable[StoredEntries]) -> Mapping[str, bytes]:
        """Key -> value of all living records. The value of a key that has one record is copied as it is.
        Raises CorruptFileError.
        """
        return dict(sorted(self.living(parts).items()))

    def living(
        self, parts: Iterable[StoredEntries], wanted: pa.StringArray | None = None
    ) -> dict[str, bytes]:
        """Key -> value, under our own schema, of the living records of the keys `wanted`; None: of all. Parts
        may be those of several groups, one after the other. Memory holds one part, and what is returned.
        Raises CorruptFileError.
        """
        living: dict[str, bytes] = {}
        for part in parts:
            some = part if wanted is None else _only(part, wanted)
            keys = some.keys.to_pylist()
            if some.values is None:
                for key in keys:
                    living.pop(key, None)
                continue
            values = _own_values(some)
            # Most keys have one record, which need not be decoded.
            alone = self.fold.without_deleted(values, part.source).to_pylist()
            for number, (key, value) in enumerate(zip(keys, alone, strict=True)):
                if key in living and value is not None:
                    value = self.fold.of_key([living[key], values[number].as_py()], part.source)
                if value is None:
                    living.pop(key, None)
                else:
                    living[key] = value
        return living


COLUMN_STATS: Final = ColumnStatsPartition()


def column_stats_log(
    instant: str, group: ShardId, size: int, records: int, deletes: int = 0
) -> MetadataLogFile:
    """The log file of a group in the deltacommit `instant`, whoever writes it. `size` is in bytes."""
    file_id = COLUMN_STATS.file_id(group)
    return MetadataLogFile.of_commit(COLUMN_STATS_PARTITION, group, file_id, instant, size, records, deletes)


def _only(part: StoredEntries, wanted: pa.StringArray) -> StoredEntries:
    """Of these keys."""
    mask = pc.is_in(part.keys, value_set=wanted)
    values = None if part.values is None else part.values.filter(mask)
    return StoredEntries(part.keys.filter(mask), values, part.schema, part.source)


def _own_values(part: StoredEntries) -> pa.BinaryArray:
    """The values of a part that has some, under our own schema."""
    assert part.values is not None
    if not part.schema or has_own_layout(part.schema):
        return part.values
    decoded = (decode_stats(value, part.schema, part.source) for value in part.values.to_pylist())
    return pa.array([encode_stats(stats) for stats in decoded], pa.binary())


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
