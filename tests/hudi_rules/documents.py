"""The Avro documents of a timeline: one record a file, in a container without compression."""

from __future__ import annotations

import io
from functools import cache
from typing import Any, Final

import fastavro

Document = dict[str, Any]

_NAMESPACE: Final = "org.apache.hudi.avro.model"


def _optional(kind: Any) -> list[Any]:
    return ["null", kind]


def _list(kind: Any) -> Document:
    return {"type": "array", "items": kind}


def _map(kind: Any) -> Document:
    return {"type": "map", "values": kind}


def _record(name: str, **fields: Any) -> Document:
    described = []
    for field, kind in fields.items():
        one: Document = {"name": field, "type": kind}
        if isinstance(kind, list) and kind[0] == "null":
            one["default"] = None
        described.append(one)
    return {"type": "record", "name": name, "namespace": _NAMESPACE, "fields": described}


_VERSION: Final = ["int", "null"]
_INSTANT_INFO: Final = _record("HoodieInstantInfo", commitTime="string", action="string")
_ROLLBACK_PARTITION: Final = _record(
    "HoodieRollbackPartitionMetadata",
    partitionPath="string",
    successDeleteFiles=_list("string"),
    failedDeleteFiles=_list("string"),
    rollbackLogFiles=_optional(_map("long")),
    logFilesFromFailedCommit=_optional(_map("long")),
)
_ROLLBACK: Final = _record(
    "HoodieRollbackMetadata",
    startRollbackTime="string",
    timeTakenInMillis="long",
    totalFilesDeleted="int",
    commitsRollback=_list("string"),
    partitionMetadata=_map(_ROLLBACK_PARTITION),
    version=_VERSION,
    instantsRollback=_list(_INSTANT_INFO),
)
_NAMED_INSTANT: Final = f"{_NAMESPACE}.HoodieInstantInfo"

SCHEMAS: Final[dict[str, Document]] = {
    "savepoint": _record(
        "HoodieSavepointMetadata",
        savepointedBy="string",
        savepointedAt="long",
        comments="string",
        partitionMetadata=_map(
            _record(
                "HoodieSavepointPartitionMetadata",
                partitionPath="string",
                savepointDataFile=_list("string"),
            )
        ),
        version=_VERSION,
    ),
    "restore plan": _record(
        "HoodieRestorePlan",
        instantsToRollback=_list(_INSTANT_INFO),
        version=_VERSION,
        savepointToRestoreTimestamp=_optional("string"),
    ),
    "restore": _record(
        "HoodieRestoreMetadata",
        startRestoreTime="string",
        timeTakenInMillis="long",
        instantsToRollback=_list("string"),
        hoodieRestoreMetadata=_map(_list(["null", _ROLLBACK])),
        version=_VERSION,
        restoreInstantInfo=_list(_NAMED_INSTANT),
    ),
}


@cache
def _parsed(kind: str) -> Any:
    return fastavro.parse_schema(SCHEMAS[kind], _write_hint=False)


def encode(kind: str, document: Document) -> bytes:
    """A document of one of `SCHEMAS` as a timeline file's bytes."""
    sink = io.BytesIO()
    fastavro.writer(sink, _parsed(kind), [document], codec="null", sync_marker=bytes(16), strict=True)
    return sink.getvalue()


def decode(data: bytes) -> Document:
    """The one record of a timeline file; {} for an empty file. Raises ValueError for anything else."""
    if not data:
        return {}
    records = list(fastavro.reader(io.BytesIO(data)))
    if len(records) != 1 or not isinstance(records[0], dict):
        raise ValueError(f"a timeline file with {len(records)} records")
    return dict(records[0])
