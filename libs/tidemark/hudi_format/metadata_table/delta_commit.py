"""The pieces of one deltacommit of the metadata table: names, log files, commit metadata, the instant's
three files.

A data instant T has one metadata deltacommit with the same instant, and it completes before T does: that
the data instant is still pending then keeps every reader from seeing it (METADATA_TABLE.md, section
8.2). In order:

1. data `.requested` and `.inflight` exist (not this module's part),
2. `begin_delta_commit`: requested, inflight,
3. the log files: `record_index` by whoever wrote the shard, `files` by `write_files_log`,
4. `complete_delta_commit`, naming all of them,
5. the data instant completes (not this module's part).

Everything is a function of its arguments: the same inputs give the same names and the same bytes, so a step
that is repeated after a crash finds its own work and goes on. Log files have version 1 and write token
`<shard>-0-0`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidemark.hudi_format.commit.instants import complete, create_inflight, create_requested
from tidemark.hudi_format.errors import HudiFormatError
from tidemark.hudi_format.file_group.names import LogFileName
from tidemark.hudi_format.log_file import BlockType, HeaderKey, empty_delete_content, frame_block
from tidemark.hudi_format.metadata_table.file_ids import (
    FILES_FILE_ID,
    METADATA_TABLE_PATH,
    record_index_file_id,
)
from tidemark.hudi_format.metadata_table.files_partition import FILES_PARTITION, FileChange, write_files_log
from tidemark.hudi_format.metadata_table.record_index import RECORD_INDEX_PARTITION
from tidemark.hudi_format.metadata_table.record_schema import commit_schema
from tidemark.hudi_format.model import ShardId
from tidemark.hudi_format.publication.port import Publisher
from tidemark.hudi_format.publication.tickets import Lease
from tidemark.hudi_format.storage.base import join_path, name_of
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action, Instant
from tidemark.hudi_format.timeline.avro_records import (
    SCHEMA_KEY,
    CommitMetadata,
    WriteStat,
    encode_commit_metadata,
    group_stats,
)

OPERATION_UPSERT_PREPPED: Final = "UPSERT_PREPPED"
_LOG_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class MetadataLogFile:
    """One log file of the metadata table: where it belongs, its size in bytes, how many records it brings."""

    partition: str
    file_id: str
    name: str
    size: int
    upserts: int = 0
    deletes: int = 0

    @property
    def path(self) -> str:
        """Relative to the data table's base."""
        return join_path(METADATA_TABLE_PATH, self.partition, self.name)


def record_index_log(
    instant: str, shard: int, size: int, upserts: int, deletes: int, partition_path: str | None = None
) -> MetadataLogFile:
    """The log file of a shard in the deltacommit of `instant`; `partition_path` for a partitioned index."""
    file_id = record_index_file_id(ShardId(shard), partition_path)
    name = str(LogFileName(file_id, instant, _LOG_VERSION, f"{shard}-0-0"))
    return MetadataLogFile(RECORD_INDEX_PARTITION, file_id, name, size, upserts, deletes)


def record_index_log_path(instant: str, shard: int, partition_path: str | None = None) -> str:
    """Where that log file lies, relative to the data table's base."""
    return record_index_log(instant, shard, 0, 0, 0, partition_path).path


def files_log(instant: str, size: int, records: int) -> MetadataLogFile:
    """The log file of the `files` partition in the deltacommit of `instant`."""
    name = str(LogFileName(FILES_FILE_ID, instant, _LOG_VERSION, "0-0-0"))
    return MetadataLogFile(FILES_PARTITION, FILES_FILE_ID, name, size, records)


def empty_log(instant: str) -> bytes:
    """The 80-byte log file that makes a file group without records exist: an empty DELETE block.

    At bootstrap every group gets one. A data partition that is new to a partitioned index gets one, in the
    commit that first writes it, for each shard that this commit has no entries for.
    """
    return frame_block(BlockType.DELETE, {HeaderKey.INSTANT_TIME: instant}, empty_delete_content())


def file_changes(stats: Iterable[WriteStat]) -> list[FileChange]:
    """The files that a data commit's write stats add to the `files` partition."""
    return [FileChange(stat.partition_path, name_of(stat.path), stat.file_size_in_bytes) for stat in stats]


def publish_files_log(by: Publisher, instant: str, changes: Sequence[FileChange]) -> MetadataLogFile:
    """Writes the `files` log file of the deltacommit. Repeatable.

    Raises TimelineConflictError when the file exists with another content, FencedOutError when the writer
    is fenced.
    """
    data = write_files_log(changes, instant)
    log = files_log(instant, len(data), len({change.partition_path for change in changes}) + 1)
    publish_log(by, log, data)
    return log


def publish_log(by: Publisher, log: MetadataLogFile, data: bytes) -> None:
    """Writes one log file. Repeatable with the same data."""
    if len(data) != log.size:
        raise HudiFormatError(f"{log.path}: {len(data)} bytes, but its description says {log.size}")
    by.publish([by.prepare(log.path, data)])


def delta_commit_metadata(
    instant: str, logs: Sequence[MetadataLogFile], extra_metadata: Mapping[str, str] | None = None
) -> CommitMetadata:
    """What the completed deltacommit says: one write stat per log file. Raises HudiFormatError for no log
    files.
    """
    if not logs:
        raise HudiFormatError(
            f"instant {instant}: a metadata deltacommit without log files; it needs `files` at least"
        )
    stats = [_write_stat(instant, log) for log in logs]
    return CommitMetadata(
        write_stats=group_stats(stats),
        extra_metadata={**(extra_metadata or {}), SCHEMA_KEY: commit_schema()},
        operation_type=OPERATION_UPSERT_PREPPED,
    )


def begin_delta_commit(by: Publisher, instant: str) -> Instant:
    """Makes the requested and the inflight file. Repeatable. Raises TimelineConflictError,
    FencedOutError.
    """
    requested = create_requested(by, instant, Action.DELTA_COMMIT, root=METADATA_TABLE_ROOT)
    nothing_yet = CommitMetadata(operation_type=OPERATION_UPSERT_PREPPED)
    return create_inflight(by, requested, encode_commit_metadata(nothing_yet), root=METADATA_TABLE_ROOT)


def complete_delta_commit(
    by: Publisher, inflight: Instant, completion: str, metadata: CommitMetadata, lease: Lease | None = None
) -> Instant:
    """Completes the deltacommit. Repeatable with the same completion time and metadata; hold the table's
    lock, whose `lease` it is.

    Readers still see nothing of it until the data instant completes. Raises TimelineConflictError when the
    instant was rolled back or completed otherwise, FencedOutError when the writer is fenced.
    """
    content = encode_commit_metadata(metadata)
    return complete(by, inflight, completion, content, root=METADATA_TABLE_ROOT, lease=lease)


def _write_stat(instant: str, log: MetadataLogFile) -> WriteStat:
    return WriteStat(
        file_id=log.file_id,
        path=join_path(log.partition, log.name),
        partition_path=log.partition,
        prev_commit=instant,
        num_writes=log.upserts,
        num_update_writes=log.upserts,
        num_deletes=log.deletes,
        total_write_bytes=log.size,
        file_size_in_bytes=log.size,
        log_version=_LOG_VERSION,
        log_offset=0,
        base_file="",
        log_files=(log.name,),
    )
