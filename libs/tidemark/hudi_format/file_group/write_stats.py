"""Makes write statuses as HoodieWriteStat, filled as Hudi's own writers fill them (FORMAT.md, section 3.4).

Readers and the metadata table use path, size and file id. A counter that does not apply is 0, never null.
"""

from __future__ import annotations

from typing import Final

from tidemark.hudi_format.errors import HudiFormatError
from tidemark.hudi_format.file_group.merge import MergeResult
from tidemark.hudi_format.file_group.names import BaseFileName
from tidemark.hudi_format.storage.base import join_path
from tidemark.hudi_format.timeline.avro_records import WriteStat

# Hudi writes this text as the previous commit of a file group's first file.
_NO_COMMIT: Final = "null"
_LOG_VERSION: Final = 1


def new_base_file_stat(
    partition_path: str, file_id: str, file_name: str, size_bytes: int, rows: int
) -> WriteStat:
    """The write status of the first base file of a file group."""
    return WriteStat(
        file_id=file_id,
        path=join_path(partition_path, file_name),
        partition_path=partition_path,
        prev_commit=_NO_COMMIT,
        num_writes=rows,
        num_inserts=rows,
        total_write_bytes=size_bytes,
        file_size_in_bytes=size_bytes,
    )


def rewritten_base_file_stat(
    partition_path: str,
    file_id: str,
    file_name: str,
    size_bytes: int,
    prev_base_file: str,
    merged: MergeResult,
) -> WriteStat:
    """The write status of a COPY_ON_WRITE rewrite; `prev_base_file` is the replaced file's name without
    folder.
    """
    return WriteStat(
        file_id=file_id,
        path=join_path(partition_path, file_name),
        partition_path=partition_path,
        prev_commit=_instant_of(prev_base_file),
        prev_base_file=prev_base_file,
        num_writes=merged.rows.num_rows,
        num_update_writes=merged.updates,
        num_inserts=merged.inserts,
        num_deletes=merged.deletes,
        total_write_bytes=size_bytes,
        file_size_in_bytes=size_bytes,
    )


def log_append_stat(
    partition_path: str,
    file_id: str,
    log_file_name: str,
    size_bytes: int,
    instant: str,
    base_file: str | None,
    *,
    updates: int,
    inserts: int = 0,
    deletes: int = 0,
) -> WriteStat:
    """The write status of a log file.

    `instant` is the commit's own. `base_file` is the name of the slice's base file; None is written as '', as
    Spark does.
    """
    return WriteStat(
        file_id=file_id,
        path=join_path(partition_path, log_file_name),
        partition_path=partition_path,
        prev_commit=instant,
        num_writes=updates + inserts,
        num_update_writes=updates,
        num_inserts=inserts,
        num_deletes=deletes,
        total_write_bytes=size_bytes,
        file_size_in_bytes=size_bytes,
        log_version=_LOG_VERSION,
        log_offset=0,
        base_file=base_file or "",
        log_files=(log_file_name,),
    )


def _instant_of(base_file: str) -> str:
    parsed = BaseFileName.parse(base_file)
    if parsed is None:
        raise HudiFormatError(f"{base_file!r} is no base file's name, so its commit cannot be told")
    return parsed.instant
