"""Plans and results of rollbacks, compactions, restores and clusterings, as the timeline stores them
(FORMAT.md, sections 9.4 and 10.1; TABLE_SERVICES.md, section 2).

Paths in rollback plans are absolute; paths in compaction plans are file names within their partition. All
decoders name `path` in errors and raise `CorruptFileError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from tidemark.hudi_format.errors import CorruptFileError, HudiFormatError, damage_in
from tidemark.hudi_format.timeline.avro_container import AvroRecord, decode_container, encode_container

# A compaction plan of version 2 names files relative to their partition. Hudi 1.2.0 writes only that version.
COMPACTION_PLAN_VERSION: Final = 2
_MB: Final = 1 << 20
_LARGEST_FILE: Final = 120 * _MB
_LOG_BYTES: Final = "TOTAL_LOG_FILES_SIZE"


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackRequest:
    """The files of one file group (or of one partition, with `file_id` '') that a rollback deletes."""

    partition_path: str
    file_id: str
    latest_base_instant: str
    files_to_delete: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackPlan:
    """The content of `R.rollback.requested`: the instant to roll back, and the files to delete as
    absolute paths.
    """

    instant_to_rollback: str
    action: str
    requests: tuple[RollbackRequest, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackPartition:
    """The files that a rollback deleted, or failed to delete, in one partition, as absolute paths."""

    partition_path: str
    deleted: tuple[str, ...]
    failed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackMetadata:
    """The content of `R_C.rollback`. `start_rollback_time` is R; `rolled_back` holds (instant, action)
    pairs.
    """

    start_rollback_time: str
    time_taken_ms: int
    rolled_back: tuple[tuple[str, str], ...]
    partitions: tuple[RollbackPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOperation:
    """One file slice to compact. `base_instant` is the slice's base instant; all files are names without
    folder.

    `metrics` come from `compaction_metrics`. Without them the plan's executor fails, and since every Hudi
    writer executes pending plans of the metadata table, every write would fail.
    """

    partition_path: str
    file_id: str
    base_instant: str
    log_files: tuple[str, ...]
    metrics: Mapping[str, float]
    base_file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedCompaction:
    """The content of `T.compaction.requested`. `missing_partitions` have file groups with log files that the
    plan leaves out: Hudi's next plan looks there again.
    """

    operations: tuple[CompactionOperation, ...]
    missing_partitions: tuple[str, ...] = ()
    extra_metadata: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def compaction_metrics(log_files: int, log_bytes: int, base_bytes: int) -> dict[str, float]:
    """The metrics of one operation, as Hudi's planner writes them.

    `log_files` is their number. `base_bytes` is 0 when the slice has no base file: then Hudi expects that a
    file of its largest size is written.
    """
    read_mb, write_mb = float((log_bytes + base_bytes) // _MB), float((base_bytes or _LARGEST_FILE) // _MB)
    return {
        "TOTAL_LOG_FILES": float(log_files),
        _LOG_BYTES: float(log_bytes),
        "TOTAL_IO_READ_MB": read_mb,
        "TOTAL_IO_WRITE_MB": write_mb,
        "TOTAL_IO_MB": read_mb + write_mb,
    }


def encode_rollback_plan(plan: RollbackPlan) -> bytes:
    """The content of `R.rollback.requested`."""
    record = {
        "instantToRollback": {"commitTime": plan.instant_to_rollback, "action": plan.action},
        "RollbackRequests": [
            {
                "partitionPath": request.partition_path,
                "fileId": request.file_id,
                "latestBaseInstant": request.latest_base_instant,
                "filesToBeDeleted": list(request.files_to_delete),
                "logBlocksToBeDeleted": {},
            }
            for request in plan.requests
        ],
        "version": 1,
    }
    return encode_container("rollback-plan", record)


def decode_rollback_plan(data: bytes, path: str) -> RollbackPlan:
    """The plan of a rollback. Raises `CorruptFileError`."""
    record = decode_container(data, path)
    target = _required(record, "instantToRollback", path)
    with damage_in(path, "the rollback plan"):
        return RollbackPlan(
            instant_to_rollback=target["commitTime"],
            action=target["action"],
            requests=tuple(
                RollbackRequest(
                    partition_path=request["partitionPath"],
                    file_id=request.get("fileId") or "",
                    latest_base_instant=request.get("latestBaseInstant") or "",
                    files_to_delete=tuple(request.get("filesToBeDeleted") or ()),
                )
                for request in record.get("RollbackRequests") or ()
            ),
        )


def encode_rollback_metadata(metadata: RollbackMetadata) -> bytes:
    """The content of `R_C.rollback`."""
    instants = [{"commitTime": instant, "action": action} for instant, action in metadata.rolled_back]
    record = {
        "startRollbackTime": metadata.start_rollback_time,
        "timeTakenInMillis": metadata.time_taken_ms,
        "totalFilesDeleted": sum(len(partition.deleted) for partition in metadata.partitions),
        "commitsRollback": [instant for instant, _ in metadata.rolled_back],
        "partitionMetadata": {
            partition.partition_path: {
                "partitionPath": partition.partition_path,
                "successDeleteFiles": list(partition.deleted),
                "failedDeleteFiles": list(partition.failed),
                "rollbackLogFiles": {},
                "logFilesFromFailedCommit": {},
            }
            for partition in metadata.partitions
        },
        "version": 1,
        "instantsRollback": instants,
    }
    return encode_container("rollback-metadata", record)


def decode_rollback_metadata(data: bytes, path: str) -> RollbackMetadata:
    """The result of a rollback. Raises `CorruptFileError`."""
    record = decode_container(data, path)
    start = _required(record, "startRollbackTime", path)
    with damage_in(path, "what the rollback did"):
        instants = [
            (rolled["commitTime"], rolled["action"]) for rolled in record.get("instantsRollback") or ()
        ]
        return RollbackMetadata(
            start_rollback_time=start,
            time_taken_ms=record.get("timeTakenInMillis") or 0,
            rolled_back=tuple(
                instants or [(requested, "") for requested in record.get("commitsRollback") or ()]
            ),
            partitions=tuple(
                RollbackPartition(
                    partition_path=partition,
                    deleted=tuple(deletions.get("successDeleteFiles") or ()),
                    failed=tuple(deletions.get("failedDeleteFiles") or ()),
                )
                for partition, deletions in sorted((record.get("partitionMetadata") or {}).items())
            ),
        )


def encode_compaction_plan(plan: RequestedCompaction) -> bytes:
    """The content of `T.compaction.requested`. Raises `HudiFormatError` for an operation without the metric
    that Hudi needs to execute it.
    """
    for operation in plan.operations:
        if _LOG_BYTES not in operation.metrics:
            raise HudiFormatError(f"compaction of file group {operation.file_id}: no metric {_LOG_BYTES}")
    record = {
        "operations": [
            {
                "baseInstantTime": operation.base_instant,
                "deltaFilePaths": list(operation.log_files),
                "dataFilePath": operation.base_file,
                "fileId": operation.file_id,
                "partitionPath": operation.partition_path,
                "metrics": dict(sorted(operation.metrics.items())),
                "bootstrapFilePath": None,
            }
            for operation in plan.operations
        ],
        "extraMetadata": dict(sorted(plan.extra_metadata.items())),
        "version": COMPACTION_PLAN_VERSION,
        "strategy": None,
        "preserveHoodieMetadata": False,
        "missingSchedulePartitions": list(plan.missing_partitions),
    }
    return encode_container("compaction-plan", record)


def decode_restored_instants(data: bytes, path: str) -> tuple[str, ...]:
    """The requested times of the instants that a completed restore undid. Raises `CorruptFileError`."""
    found = _required(decode_container(data, path), "instantsToRollback", path)
    with damage_in(path, "what the restore took back"):
        return tuple(str(requested) for requested in found)


def decode_compaction_plan(data: bytes, path: str) -> RequestedCompaction:
    """The plan of a compaction.

    Raises `CorruptFileError`, also for a plan of version 1, whose file names are full paths.
    """
    record = decode_container(data, path)
    if record.get("version") != COMPACTION_PLAN_VERSION:
        raise CorruptFileError(
            f"{path} is a compaction plan of version {record.get('version')}, 2 was expected"
        )
    with damage_in(path, "the compaction plan"):
        return RequestedCompaction(
            operations=tuple(
                CompactionOperation(
                    partition_path=operation.get("partitionPath") or "",
                    file_id=operation.get("fileId") or "",
                    base_instant=operation.get("baseInstantTime") or "",
                    log_files=tuple(operation.get("deltaFilePaths") or ()),
                    base_file=operation.get("dataFilePath"),
                    metrics=operation.get("metrics") or {},
                )
                for operation in record.get("operations") or ()
            ),
            missing_partitions=tuple(record.get("missingSchedulePartitions") or ()),
            extra_metadata=record.get("extraMetadata") or {},
        )


def decode_clustering_plan(data: bytes, path: str) -> tuple[tuple[str, str], ...]:
    """The file groups (partition path, file id) that a requested clustering or replacecommit is going to
    rewrite.

    Empty for a replacecommit without a clustering plan (insert overwrite). Raises `CorruptFileError`.
    """
    plan = decode_container(data, path).get("clusteringPlan") or {}
    return tuple(
        (file_slice.get("partitionPath") or "", file_slice.get("fileId") or "")
        for group in plan.get("inputGroups") or ()
        for file_slice in group.get("slices") or ()
    )


def _required(record: AvroRecord, name: str, path: str) -> Any:
    if record.get(name) is None:
        raise CorruptFileError(f"{path} has no field {name!r}: it is of another kind, or damaged")
    return record[name]
