"""Encodes and decodes commit metadata: the records in which completed commits state what they wrote.

Field names are Hudi's in snake case; the Avro layouts are in `resources/*.avsc` (FORMAT.md, sections 3.3
and 14). Plans and results of rollbacks, compactions and cleans are in `timeline/service_records.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from types import MappingProxyType
from typing import Any, Final

from tidemark.hudi_format.errors import CorruptFileError, damage_in
from tidemark.hudi_format.timeline.avro_container import AvroRecord, decode_container, encode_container

OPERATION_UPSERT: Final = "UPSERT"
OPERATION_COMPACT: Final = "COMPACT"
OPERATION_LOG_COMPACT: Final = "LOG_COMPACT"
SCHEMA_KEY: Final = "schema"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteStat:
    """What one commit did to one file group. Sizes are in bytes; `path` is relative to the table's base.

    Readers use `path`, `file_id` and `file_size_in_bytes`, and Hudi's index diff uses `prev_base_file`; the
    counters are for information (FORMAT.md, section 3.4). `prev_commit` is the text "null" for a file group's
    first file.
    """

    file_id: str
    path: str
    partition_path: str
    prev_commit: str | None = "null"
    num_writes: int = 0
    num_deletes: int = 0
    num_update_writes: int = 0
    num_inserts: int = 0
    total_write_bytes: int = 0
    total_write_errors: int = 0
    file_size_in_bytes: int = 0
    log_version: int | None = None
    log_offset: int | None = None
    base_file: str | None = None
    log_files: tuple[str, ...] | None = None
    prev_base_file: str | None = None
    min_event_time: int | None = None
    max_event_time: int | None = None
    total_log_records: int = 0
    total_log_files: int = 0
    total_updated_records_compacted: int = 0
    total_log_blocks: int = 0
    total_corrupt_log_block: int = 0
    total_rollback_blocks: int = 0
    total_log_files_compacted: int = 0
    total_log_read_time_ms: int = 0
    total_log_size_compacted: int = 0
    num_updates: int = 0

    def to_avro(self) -> AvroRecord:
        """The stat as HoodieWriteStat; fields that this class lacks are null."""
        record = {_avro_name(field.name): getattr(self, field.name) for field in fields(self)}
        record["logFiles"] = list(self.log_files) if self.log_files is not None else None
        for absent in ("cdcStats", "runtimeStats", "tempPath"):
            record[absent] = None
        return record

    @classmethod
    def from_avro(cls, record: AvroRecord) -> WriteStat:
        """The stat from HoodieWriteStat; null counters become 0."""
        values: dict[str, Any] = {}
        for stat_field in fields(cls):
            value = record.get(_avro_name(stat_field.name))
            if value is None:
                value = 0 if stat_field.default == 0 else ("" if stat_field.name in _REQUIRED else None)
            values[stat_field.name] = tuple(value) if isinstance(value, list) else value
        return cls(**values)


_REQUIRED: Final = frozenset({"file_id", "path", "partition_path"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitMetadata:
    """The content of a completed (or inflight) commit, deltacommit or compaction: HoodieCommitMetadata. Of a
    compaction `compacted` is set, and its record has no version, as Hudi writes it.

    `write_stats` maps partition path ('' without partitions) to its stats. The writer may put anything into
    `extra_metadata`, which takes effect with the commit; its key "schema" holds the table's Avro schema
    without meta columns.
    """

    write_stats: Mapping[str, tuple[WriteStat, ...]] = field(default_factory=lambda: MappingProxyType({}))
    extra_metadata: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    operation_type: str | None = OPERATION_UPSERT
    compacted: bool = False

    def stats(self) -> list[WriteStat]:
        """The stats of all partitions, in order of partition path."""
        return [stat for _, stats in sorted(self.write_stats.items()) for stat in stats]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceCommitMetadata:
    """The content of a completed replacecommit (insert overwrite, delete partition, clustering).

    `replaced_file_ids` maps partition path to the file groups that readers no longer see.
    """

    commit: CommitMetadata
    replaced_file_ids: Mapping[str, tuple[str, ...]]


def group_stats(stats: list[WriteStat]) -> dict[str, tuple[WriteStat, ...]]:
    """Partition path -> its stats, both in order, as `CommitMetadata.write_stats` takes them."""
    grouped: dict[str, list[WriteStat]] = {}
    for stat in sorted(stats, key=lambda stat: (stat.partition_path, stat.path)):
        grouped.setdefault(stat.partition_path, []).append(stat)
    return {partition: tuple(stats_of) for partition, stats_of in grouped.items()}


def encode_commit_metadata(metadata: CommitMetadata) -> bytes:
    """The content of a commit's completed or inflight file. Equal metadata gives equal bytes."""
    return encode_container("commit-metadata", _commit_to_avro(metadata))


def decode_commit_metadata(data: bytes, path: str) -> CommitMetadata:
    """The metadata of a commit, deltacommit or compaction; errors name `path`. Raises `CorruptFileError`."""
    return _commit_from_avro(decode_container(data, path), path)


def decode_replace_commit_metadata(data: bytes, path: str) -> ReplaceCommitMetadata:
    """The metadata of a replacecommit or clustering; errors name `path`. Raises `CorruptFileError`."""
    record = decode_container(data, path)
    commit = _commit_from_avro(record, path)
    with damage_in(path, "what it replaced"):
        replaced = record.get("partitionToReplaceFileIds") or {}
        ids = {partition: tuple(ids or ()) for partition, ids in replaced.items()}
    return ReplaceCommitMetadata(commit=commit, replaced_file_ids=ids)


def decode_replaced_file_ids(data: bytes, path: str) -> Mapping[str, tuple[str, ...]]:
    """Partition path -> the file groups that a completed replacecommit or clustering replaced.

    It decodes only that part of `decode_replace_commit_metadata`, so it is cheaper. Errors name `path`.
    Raises `CorruptFileError`.
    """
    replaced = decode_container(data, path).get("partitionToReplaceFileIds") or {}
    return {partition: tuple(ids or ()) for partition, ids in replaced.items()}


def _commit_to_avro(metadata: CommitMetadata) -> AvroRecord:
    return {
        "partitionToWriteStats": {
            partition: [stat.to_avro() for stat in stats]
            for partition, stats in sorted(metadata.write_stats.items())
        },
        "compacted": metadata.compacted,
        "extraMetadata": dict(sorted(metadata.extra_metadata.items())),
        "version": None if metadata.compacted else 1,
        "operationType": metadata.operation_type,
    }


def _commit_from_avro(record: AvroRecord, path: str) -> CommitMetadata:
    if "partitionToWriteStats" not in record:
        raise CorruptFileError(f"{path} holds no commit metadata but a record with {sorted(record)}")
    with damage_in(path, "its commit metadata"):
        return CommitMetadata(
            write_stats={
                partition: tuple(WriteStat.from_avro(stat) for stat in stats or ())
                for partition, stats in (record["partitionToWriteStats"] or {}).items()
            },
            extra_metadata={
                key: value for key, value in (record.get("extraMetadata") or {}).items() if value is not None
            },
            operation_type=record.get("operationType"),
            compacted=bool(record.get("compacted")),
        )


@cache
def _avro_name(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
