"""Plans and results of cleans, and what savepoints keep, as the timeline stores them (TABLE_SERVICES.md,
section 3).

Paths in plans are absolute, those in results and savepoints are file names within their partition. All
decoders name `path` in errors and raise `CorruptFileError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tidemark.hudi_format.errors import CorruptFileError, damage_in
from tidemark.hudi_format.timeline.avro_container import AvroRecord, decode_container, encode_container

POLICY: Final = "KEEP_LATEST_COMMITS"
_VERSION: Final = 2
_COMPLETED: Final = "COMPLETED"


class RetainedInstant(NamedTuple):
    """The earliest instant whose slices a clean keeps; `action` is the word of its completed file."""

    requested: str
    action: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedClean:
    """The content of `T.clean.requested`: partition path -> absolute paths of the files to delete.

    `retained` is None where superseded files are left behind: Hudi's next clean then looks everywhere.
    `last_completed` is the requested time of the newest completed write, "" without one.
    """

    files: Mapping[str, tuple[str, ...]]
    last_completed: str
    retained: RetainedInstant | None = None
    policy: str = POLICY
    deleted_partitions: tuple[str, ...] = ()
    extra_metadata: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanMetadata:
    """The content of `T_C.clean`: per partition the names of the deleted files, and the deleted
    partitions. `earliest_commit_to_retain` is "" where superseded files were left behind. `extra_metadata` is
    the plan's: once a savepoint that it names is deleted, Hudi's next clean looks everywhere.
    """

    earliest_commit_to_retain: str
    deleted: Mapping[str, tuple[str, ...]]
    deleted_partitions: frozenset[str] = frozenset()
    start_clean_time: str = ""
    time_taken_ms: int = 0
    last_completed: str = ""
    policy: str = POLICY
    extra_metadata: Mapping[str, str] | None = None


def encode_clean_plan(plan: RequestedClean) -> bytes:
    """The content of `T.clean.requested`."""
    retained = plan.retained
    record = {
        "earliestInstantToRetain": None
        if retained is None
        else {"timestamp": retained.requested, "action": retained.action, "state": _COMPLETED},
        "lastCompletedCommitTimestamp": plan.last_completed,
        "policy": plan.policy,
        "filesToBeDeletedPerPartition": {},
        "version": _VERSION,
        "filePathsToBeDeletedPerPartition": {
            partition: [{"filePath": path, "isBootstrapBaseFile": False} for path in files]
            for partition, files in sorted(plan.files.items())
        },
        "partitionsToBeDeleted": list(plan.deleted_partitions),
        "extraMetadata": dict(sorted((plan.extra_metadata or {}).items())),
    }
    return encode_container("cleaner-plan", record)


def decode_clean_plan(data: bytes, path: str) -> RequestedClean:
    """The plan of a clean. Raises `CorruptFileError`."""
    record = decode_container(data, path)
    files: Mapping[str, Any] = _required(record, "filePathsToBeDeletedPerPartition", path)
    with damage_in(path, "the clean plan"):
        retained = record.get("earliestInstantToRetain")
        return RequestedClean(
            files={
                partition: tuple(file.get("filePath") or "" for file in of_partition or ())
                for partition, of_partition in files.items()
            },
            last_completed=record.get("lastCompletedCommitTimestamp") or "",
            retained=RetainedInstant(retained["timestamp"], retained["action"]) if retained else None,
            policy=record.get("policy") or "",
            deleted_partitions=tuple(record.get("partitionsToBeDeleted") or ()),
            extra_metadata=record.get("extraMetadata") or {},
        )


def encode_clean_metadata(metadata: CleanMetadata) -> bytes:
    """The content of `T_C.clean`."""
    record = {
        "startCleanTime": metadata.start_clean_time,
        "timeTakenInMillis": metadata.time_taken_ms,
        "totalFilesDeleted": sum(len(files) for files in metadata.deleted.values()),
        "earliestCommitToRetain": metadata.earliest_commit_to_retain,
        "lastCompletedCommitTimestamp": metadata.last_completed,
        "partitionMetadata": {
            partition: {
                "partitionPath": partition,
                "policy": metadata.policy,
                "deletePathPatterns": list(names),
                "successDeleteFiles": list(names),
                "failedDeleteFiles": [],
                "isPartitionDeleted": partition in metadata.deleted_partitions,
            }
            for partition, names in sorted(metadata.deleted.items())
        },
        "version": _VERSION,
        "bootstrapPartitionMetadata": {},
        "extraMetadata": dict(sorted((metadata.extra_metadata or {}).items())),
    }
    return encode_container("clean-metadata", record)


def decode_clean_metadata(data: bytes, path: str) -> CleanMetadata:
    """The result of a clean. Raises `CorruptFileError`."""
    record = decode_container(data, path)
    partitions: Mapping[str, Any] = _required(record, "partitionMetadata", path)
    with damage_in(path, "what the clean did"):
        return CleanMetadata(
            earliest_commit_to_retain=record.get("earliestCommitToRetain") or "",
            deleted={
                partition: tuple(found.get("successDeleteFiles") or ())
                for partition, found in partitions.items()
            },
            deleted_partitions=frozenset(
                partition for partition, found in partitions.items() if found.get("isPartitionDeleted")
            ),
            start_clean_time=record.get("startCleanTime") or "",
            time_taken_ms=record.get("timeTakenInMillis") or 0,
            last_completed=record.get("lastCompletedCommitTimestamp") or "",
            extra_metadata=record.get("extraMetadata") or {},
        )


def decode_savepoint(data: bytes, path: str) -> Mapping[str, tuple[str, ...]]:
    """Partition path -> names of the files that a savepoint keeps. Raises `CorruptFileError`."""
    partitions: Mapping[str, Any] = _required(decode_container(data, path), "partitionMetadata", path)
    with damage_in(path, "what the savepoint keeps"):
        return {
            partition: tuple(kept.get("savepointDataFile") or ()) for partition, kept in partitions.items()
        }


def _required(record: AvroRecord, name: str, path: str) -> Any:
    if record.get(name) is None:
        raise CorruptFileError(f"{path} has no field {name!r}: it is of another kind, or damaged")
    return record[name]
