"""The `files` partition of the metadata table: which files each data partition has (METADATA_TABLE.md,
section 7).

One record per data partition maps file names to sizes; one record, `__all_partitions__`, lists the
partitions. A commit writes its own changes only, so records of one key are merged name by name
(`FilesRecord.apply`):

    older        newer        merged
    f: 100       f: 120       f: 120           two live entries: the larger size
    f: 100       f deleted    -                a tombstone removes a live entry, and itself
    -            f deleted    f deleted        without a live entry it stays, until it meets the base file's
    f deleted    f: 100       f: 100           a live entry replaces a tombstone
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from tidemark.hudi_format.errors import CorruptFileError, HudiFormatError, UnsupportedTableError, damage_in
from tidemark.hudi_format.hfile import write_hfile
from tidemark.hudi_format.log_file import BlockType, HeaderKey, frame_block
from tidemark.hudi_format.metadata_table.partitions.partition import MetadataLogFile, StoredEntries
from tidemark.hudi_format.metadata_table.record_schema import (
    RECORD_TYPE_ALL_PARTITIONS,
    RECORD_TYPE_FILES,
    decode_record,
    encode_record,
    metadata_record_schema,
)
from tidemark.hudi_format.model import ShardId

FILES_PARTITION: Final = "files"
ALL_PARTITIONS_KEY: Final = "__all_partitions__"
_UNPARTITIONED: Final = "."


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file that a commit adds (`size` in bytes, above 0) or removes (`size` None). The name has no
    folder.
    """

    partition_path: str
    name: str
    size: int | None


@dataclass(slots=True)
class FilesRecord:
    """The content of one key: file name -> size in bytes, and the names that have tombstones."""

    live: dict[str, int] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)

    def apply(self, name: str, size: int, is_deleted: bool) -> None:
        """Merges one newer entry; the module's table has the cases."""
        if not is_deleted:
            self.deleted.discard(name)
            self.live[name] = max(size, self.live.get(name, 0))
        elif self.live.pop(name, None) is None:
            self.deleted.add(name)

    def encode(self, record_type: int) -> bytes:
        """The record's value."""
        entries = {name: {"size": size, "isDeleted": False} for name, size in sorted(self.live.items())}
        entries.update({name: {"size": 0, "isDeleted": True} for name in sorted(self.deleted)})
        return encode_record({"key": "", "type": record_type, "filesystemMetadata": entries})


@dataclass(slots=True)
class ListedFiles:
    """The merged content of the partition: path of a data partition ('' where the table has none) -> file
    name -> size in bytes.
    """

    _records: dict[str, FilesRecord] = field(default_factory=dict)
    _partitions: FilesRecord = field(default_factory=FilesRecord)

    @property
    def partitions(self) -> list[str]:
        """Partition paths of the table, sorted."""
        return sorted(_path(key) for key in self._partitions.live)

    def files(self, partition_path: str) -> Mapping[str, int]:
        """File name -> size of one partition; empty when the partition is unknown."""
        record = self._records.get(_key(partition_path))
        return record.live if record is not None else {}

    def names(self) -> dict[str, list[str]]:
        """Partition path -> file names, for all partitions: what `TableView.slices` takes."""
        return {partition_path: sorted(self.files(partition_path)) for partition_path in self.partitions}

    def __iter__(self) -> Iterator[tuple[str, str, int]]:
        """(partition path, file name, size in bytes) of every file."""
        for partition_path in self.partitions:
            for name, size in sorted(self.files(partition_path).items()):
                yield partition_path, name, size

    def apply(self, key: str, value: bytes, schema: str, source: str) -> None:
        """Merges one newer record. `schema` is the one it was written under, `source` names its file in
        errors. Raises CorruptFileError.
        """
        record = decode_record(value, schema, source)
        kind = record.get("type")
        if kind not in (RECORD_TYPE_ALL_PARTITIONS, RECORD_TYPE_FILES):
            raise CorruptFileError(f"{source}: record {key!r} of the files partition is of type {kind}")
        is_list = key == ALL_PARTITIONS_KEY
        target = self._partitions if is_list else self._records.setdefault(key, FilesRecord())
        with damage_in(source, f"record {key!r} of the files partition"):
            entries: dict[str, dict[str, Any]] = record.get("filesystemMetadata") or {}
            for name, entry in entries.items():
                target.apply(name, int(entry["size"]), bool(entry["isDeleted"]))

    def remove(self, key: str) -> None:
        """Merges a newer delete of a key: the data partition's record goes as a whole, as after a clean that
        removed the partition.
        """
        self._records.pop(key, None)

    def is_listed(self, partition_path: str) -> bool:
        """Whether the partition is in the list of partitions."""
        return _key(partition_path) in self._partitions.live

    def records(self) -> dict[str, bytes]:
        """Key -> value of all records, sorted by key, without tombstones: the content of a base file."""
        merged = {
            key: FilesRecord(record.live).encode(RECORD_TYPE_FILES) for key, record in self._records.items()
        }
        if self._partitions.live:
            merged[ALL_PARTITIONS_KEY] = FilesRecord(self._partitions.live).encode(RECORD_TYPE_ALL_PARTITIONS)
        return dict(sorted(merged.items(), key=lambda item: item[0].encode()))


class FilesPartition:
    """The partition `files`. It has one file group, `files-0000-0`."""

    name: Final = FILES_PARTITION
    shards_max: Final = 1
    newest_wins: Final = False
    fold: Final = None

    def file_id(self, shard: ShardId) -> str:
        """The only file group's id. Raises UnsupportedTableError for another shard than 0."""
        if shard != 0:
            raise UnsupportedTableError(f"`files` has no shard {shard}", "It has one file group: use shard 0")
        return "files-0000-0"

    def log_file(
        self, changes: Sequence[FileChange], instant: str, shard: ShardId
    ) -> tuple[MetadataLogFile, bytes]:
        """The log file and its bytes. A commit without changes has one, too.

        Raises HudiFormatError as `write_files_log`.
        """
        data = write_files_log(changes, instant)
        records = len({change.partition_path for change in changes}) + (not _only_removes(changes))
        file_id = self.file_id(shard)
        return MetadataLogFile.of_commit(self.name, shard, file_id, instant, len(data), records, 0), data

    def merge(self, parts: Iterable[StoredEntries]) -> ListedFiles:
        """The union of all records, by the table in the module's docstring. Raises CorruptFileError."""
        merged = ListedFiles()
        for part in parts:
            keys = part.keys.to_pylist()
            if part.values is None:
                for key in keys:
                    merged.remove(key)
            else:
                for key, value in zip(keys, part.values.to_pylist(), strict=True):
                    merged.apply(key, value, part.schema, part.source)
        return merged

    def base_records(self, parts: Iterable[StoredEntries]) -> Mapping[str, bytes]:
        """Key -> value, without tombstones. Raises CorruptFileError."""
        return self.merge(parts).records()


FILES: Final = FilesPartition()


def _only_removes(changes: Sequence[FileChange]) -> bool:
    """Whether the changes are a clean's."""
    return bool(changes) and all(change.size is None for change in changes)


def write_files_log(changes: Sequence[FileChange], instant: str) -> bytes:
    """The bytes of a log file: a record for each data partition that the instant touches, and one that lists
    those of them which got files (listing a partition again does no harm).

    A commit without changes still gets the list record, and a clean gets none, as Hudi writes them. Raises
    HudiFormatError for a name with a folder, and for an added file without a size.
    """
    records: dict[str, FilesRecord] = {}
    partitions = FilesRecord()
    for change in changes:
        if not change.name or "/" in change.name:
            raise HudiFormatError(
                f"file name {change.name!r} in partition {change.partition_path!r} is no bare name"
            )
        if change.size is not None and change.size <= 0:
            raise HudiFormatError(f"file {change.name!r} is {change.size} bytes: Hudi needs a size above 0")
        key = _key(change.partition_path)
        records.setdefault(key, FilesRecord()).apply(change.name, change.size or 0, change.size is None)
        if change.size is not None:
            partitions.apply(key, 0, False)
    values = {key: record.encode(RECORD_TYPE_FILES) for key, record in records.items()}
    if not _only_removes(changes):
        values[ALL_PARTITIONS_KEY] = partitions.encode(RECORD_TYPE_ALL_PARTITIONS)
    return _log_of_records(values, instant)


def _log_of_records(values: Mapping[str, bytes], instant: str) -> bytes:
    """A log file of one HFILE block with these records (key -> value)."""
    schema = metadata_record_schema()
    ordered = sorted(values, key=str.encode)
    content = write_hfile(
        pa.array(ordered, pa.string()), pa.array([values[key] for key in ordered], pa.binary()), schema
    )
    headers = {HeaderKey.INSTANT_TIME: instant, HeaderKey.SCHEMA: schema}
    return frame_block(BlockType.HFILE_DATA, headers, content)


def _key(partition_path: str) -> str:
    return partition_path or _UNPARTITIONED


def _path(key: str) -> str:
    return "" if key == _UNPARTITIONED else key
