"""The steps of one deltacommit of the metadata table: its log files, its commit metadata, its three timeline
files.

A data instant T has one deltacommit here, with the same instant. It completes before T does, and no reader
sees it as long as T is pending (METADATA_TABLE.md, section 8.2). The order:

1. `T.….requested` and `T.….inflight` of the data table exist (made elsewhere),
2. `begin_delta_commit` makes `T.deltacommit.requested` and `T.deltacommit.inflight`,
3. the log files appear: those of `record_index` by the tasks that had the shards' changes, the one of `files`
   by `publish_files_log`,
4. `complete_delta_commit` makes `T_C.deltacommit`, which names all log files,
5. T completes on the data timeline (made elsewhere).

Names and bytes follow from the arguments, so a step that is repeated after a crash finds the files that it
made before, and goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tidemark.hudi_format.commit.instants import complete, create_inflight, create_requested
from tidemark.hudi_format.errors import HudiFormatError
from tidemark.hudi_format.log_file import BlockType, HeaderKey, empty_delete_content, frame_block
from tidemark.hudi_format.metadata_table.partitions.files import FILES, FileChange
from tidemark.hudi_format.metadata_table.partitions.partition import LOG_VERSION, MetadataLogFile
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


def empty_log(instant: str) -> bytes:
    """A log file of 80 bytes, an empty DELETE block (METADATA_TABLE.md, section 4.3).

    Every file group of a new metadata table begins with one, because the number of a partition's shards is
    the number of its file groups.
    """
    return frame_block(BlockType.DELETE, {HeaderKey.INSTANT_TIME: instant}, empty_delete_content())


def file_changes(stats: Iterable[WriteStat]) -> list[FileChange]:
    """The files that a data commit's write stats add to the partition `files`."""
    return [FileChange(stat.partition_path, name_of(stat.path), stat.file_size_in_bytes) for stat in stats]


def publish_files_log(by: Publisher, instant: str, changes: Sequence[FileChange]) -> MetadataLogFile:
    """Publishes the log file of `files` in the deltacommit. Repeatable.

    Raises TimelineConflictError when the file exists with another content, FencedOutError when the writer
    is fenced, HudiFormatError for a change that `files` cannot hold.
    """
    log, data = FILES.log_file(changes, instant, ShardId(0))
    publish_log(by, log, data)
    return log


def publish_log(by: Publisher, log: MetadataLogFile, data: bytes) -> None:
    """Publishes one log file. Repeatable with the same data. Raises as `publish_files_log`."""
    if len(data) != log.size:
        raise HudiFormatError(f"{log.path}: {len(data)} bytes, but its MetadataLogFile says {log.size}")
    by.publish([by.prepare(log.path, data)])


def delta_commit_metadata(
    instant: str,
    logs: Sequence[MetadataLogFile],
    extra_metadata: Mapping[str, str] | None = None,
    bases: Sequence[WriteStat] = (),
) -> CommitMetadata:
    """The content of the completed deltacommit: one write stat per log file behind `bases`, those of its base
    files. Raises HudiFormatError where there is no log file.
    """
    if not logs:
        raise HudiFormatError(
            f"instant {instant}: a metadata deltacommit without log files; it needs the one of `files`"
        )
    stats = [*bases, *(_write_stat(instant, log) for log in logs)]
    return CommitMetadata(
        write_stats=group_stats(stats),
        extra_metadata={**(extra_metadata or {}), SCHEMA_KEY: commit_schema()},
        operation_type=OPERATION_UPSERT_PREPPED,
    )


def begin_delta_commit(by: Publisher, instant: str) -> Instant:
    """Step 2. Repeatable. Raises TimelineConflictError, FencedOutError."""
    requested = create_requested(by, instant, Action.DELTA_COMMIT, root=METADATA_TABLE_ROOT)
    nothing_yet = CommitMetadata(operation_type=OPERATION_UPSERT_PREPPED)
    return create_inflight(by, requested, encode_commit_metadata(nothing_yet), root=METADATA_TABLE_ROOT)


def complete_delta_commit(
    by: Publisher,
    inflight: Instant,
    completion: str,
    metadata: CommitMetadata | bytes,
    lease: Lease | None = None,
) -> Instant:
    """Step 4. Repeatable with the same completion time and metadata, which may be encoded already. The caller
    holds the table's lock, of which `lease` is a sign.

    No reader sees the deltacommit before the data instant completes. Raises TimelineConflictError when the
    instant was rolled back, or completed at another time; FencedOutError when the writer is fenced.
    """
    content = metadata if isinstance(metadata, bytes) else encode_commit_metadata(metadata)
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
        log_version=LOG_VERSION,
        log_offset=0,
        base_file="",
        log_files=(log.name,),
    )
