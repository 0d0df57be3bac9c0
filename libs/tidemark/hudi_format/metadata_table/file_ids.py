"""Where the metadata table lies, and the ids of its file groups (METADATA_TABLE.md, section 6.2).

    files                      files-0000-0
    global record index        record-index-<shard>-0
    partitioned record index   record-index-<escaped data partition>-<shard>-0

Shards are numbered by the position of their id in the sorted list of ids, which is the number in the id up
to 10 000.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from tidemark.hudi_format.errors import CorruptFileError, UnsupportedTableError
from tidemark.hudi_format.model import ShardId

METADATA_TABLE_PATH: Final = ".hoodie/metadata"
FILES_FILE_ID: Final = "files-0000-0"
SHARDS_MAX: Final = 10_000
_RECORD_INDEX: Final = re.compile(r"^record-index-(?:(?P<partition>[^-]*)-)?(?P<shard>\d{4,})-0$")
_ESCAPED: Final = frozenset("\"#%'*/:=?\\{[]^_-\x7f") | {chr(code) for code in range(0x20)}


@dataclass(frozen=True, slots=True)
class RecordIndexFileId:
    """The parts of a record index file id; `partition_path` is None in a global index."""

    partition_path: str | None
    shard: ShardId

    def __str__(self) -> str:
        if self.partition_path is None:
            return f"record-index-{self.shard:04d}-0"
        return f"record-index-{escape_partition(self.partition_path)}-{self.shard:04d}-0"


def record_index_file_id(shard: ShardId, partition_path: str | None = None) -> str:
    """The file id of a shard; `partition_path` for a partitioned index, '' for a table without partitions."""
    if not 0 <= shard < SHARDS_MAX:
        raise UnsupportedTableError(f"shard {shard} is not in 0 to {SHARDS_MAX - 1}", "Use fewer shards")
    return str(RecordIndexFileId(partition_path, shard))


def parse_record_index_file_id(file_id: str) -> RecordIndexFileId:
    """The parts of a file id. Raises CorruptFileError when it is no record index file group."""
    match = _RECORD_INDEX.match(file_id)
    if match is None:
        raise CorruptFileError(f"file group {file_id!r} does not belong in the record index")
    escaped = match["partition"]
    return RecordIndexFileId(None if escaped is None else unquote(escaped), ShardId(int(match["shard"])))


def escape_partition(partition_path: str) -> str:
    """A data partition's path as part of a file id: Hive's escaping, and of '_' and '-' too.

    Raises UnsupportedTableError for a '.', which Hudi 1.2.0 itself cannot read back from a log file's name.
    """
    if "." in partition_path:
        raise UnsupportedTableError(
            f"partition path {partition_path!r} has a '.': Hudi's partitioned record index cannot hold it",
            "Use a global record index, or other partition values",
        )
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED else char for char in partition_path)
