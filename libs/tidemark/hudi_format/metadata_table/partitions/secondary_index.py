"""The partitions `secondary_index_<name>` of the metadata table: which record keys have which value in a
column (METADATA_TABLE.md, section 10.2). Keys and values are in `secondary_index_codec`.

An entry says nothing but that it is there. A missing entry loses its row in queries by the column; one too
many only costs. So of a put and a delete of one composite key in one commit the put counts: a row that moved
to another partition with its value is deleted in one file group and inserted in another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.hudi_format.errors import HudiFormatError, UnsupportedTableError
from tidemark.hudi_format.hfile import write_hfile
from tidemark.hudi_format.log_file import BlockType, HeaderKey, encode_deletes, frame_block
from tidemark.hudi_format.metadata_table.partitions.partition import MetadataLogFile, StoredEntries
from tidemark.hudi_format.metadata_table.partitions.secondary_index_codec import (
    ENTRY_VALUE,
    entry_values,
    live_values,
)
from tidemark.hudi_format.metadata_table.record_schema import metadata_record_schema
from tidemark.hudi_format.model import ShardId

SECONDARY_PREFIX: Final = "secondary_index_"
GROUPS_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class SecondaryChanges:
    """What an instant changes in one file group: composite keys, each at most once, in no order."""

    puts: pa.StringArray
    deletes: pa.StringArray


@dataclass(frozen=True)
class SecondaryIndexPartition:
    """The partition of one secondary index; ``name`` is its folder's."""

    name: str

    shards_max: Final = GROUPS_MAX
    newest_wins: Final = True
    fold: Final[None] = None

    def file_id(self, shard: ShardId) -> str:
        """`secondary-index-<name>-<group>-0`. Raises UnsupportedTableError."""
        if not 0 <= shard < GROUPS_MAX:
            raise UnsupportedTableError(
                f"group {shard} of {self.name} is not in 0 to {GROUPS_MAX - 1}", "Use fewer groups"
            )
        return f"{self.name.replace('_', '-')}-{shard:04d}-0"

    def log_file(
        self, changes: SecondaryChanges, instant: str, shard: ShardId
    ) -> tuple[MetadataLogFile, bytes]:
        """The group's log file and its bytes: an HFILE block of the puts, then a DELETE block. Raises
        HudiFormatError for no changes at all, and for a key that is both put and deleted.
        """
        puts, deletes = _ordered(changes.puts), _ordered(changes.deletes)
        if not len(puts) and not len(deletes):
            raise HudiFormatError(f"instant {instant}: a log of {self.name} without entries; leave it out")
        if pc.any(pc.is_in(puts, value_set=deletes)).as_py():
            raise HudiFormatError(f"instant {instant}: {self.name} has a key that is put and deleted")
        schema = metadata_record_schema()
        headers = {HeaderKey.INSTANT_TIME: instant, HeaderKey.SCHEMA: schema}
        blocks: list[bytes] = []
        if len(puts):
            content = write_hfile(puts, entry_values(len(puts)), schema)
            blocks.append(frame_block(BlockType.HFILE_DATA, headers, content))
        if len(deletes):
            content = encode_deletes(deletes, self.name)
            blocks.append(frame_block(BlockType.DELETE, headers, content))
        data = b"".join(blocks)
        return secondary_index_log(self.name, instant, shard, len(data), len(puts), len(deletes)), data

    def merge(self, parts: Iterable[StoredEntries]) -> frozenset[str]:
        """The living composite keys. Raises CorruptFileError."""
        living: set[str] = set()
        for part in parts:
            if part.values is None:
                living.difference_update(part.keys.to_pylist())
                continue
            is_live = pa.array(live_values(part.values, part.schema, part.source))
            living.update(part.keys.filter(is_live).to_pylist())
            living.difference_update(part.keys.filter(pc.invert(is_live)).to_pylist())
        return frozenset(living)

    def base_records(self, parts: Iterable[StoredEntries]) -> Mapping[str, bytes]:
        """Composite key -> value of all living entries."""
        return dict.fromkeys(sorted(self.merge(parts), key=str.encode), ENTRY_VALUE)


def secondary_index_log(
    name: str, instant: str, group: ShardId, size: int, puts: int, deletes: int
) -> MetadataLogFile:
    """The log file of a group in the deltacommit `instant`, whoever writes it. `size` is in bytes."""
    file_id = SecondaryIndexPartition(name).file_id(group)
    return MetadataLogFile.of_commit(name, group, file_id, instant, size, puts, deletes)


def _ordered(keys: pa.StringArray) -> pa.StringArray:
    return keys.take(pc.sort_indices(keys))
