"""Avro files of Hudi's table services with the fields that are read, under schemas of our own: an Avro file
brings its schema along.
"""

from __future__ import annotations

import io
from typing import Any, Final

import fastavro

INSTANT: Final = "20260101000000000"


def _record(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": each, "type": type_} for each, type_ in fields.items()],
    }


def _list_of(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _map_of(values: Any) -> dict[str, Any]:
    return {"type": "map", "values": values}


def clean_metadata() -> bytes:
    partition = _record(
        "Partition", successDeleteFiles=_list_of("string"), isPartitionDeleted=["null", "boolean"]
    )
    schema = _record("Clean", earliestCommitToRetain="string", partitionMetadata=_map_of(partition))
    deleted = {"successDeleteFiles": ["a", "b"], "isPartitionDeleted": None}
    return _container(schema, {"earliestCommitToRetain": INSTANT, "partitionMetadata": {"p": deleted}})


def clustering_plan() -> bytes:
    slice_ = _record("Slice", partitionPath=["null", "string"], fileId=["null", "string"])
    group = _record("Group", slices=["null", _list_of(slice_)])
    plan = _record("Plan", inputGroups=["null", _list_of(group)])
    schema = _record("Requested", clusteringPlan=["null", plan])
    slices = [{"partitionPath": "p", "fileId": file} for file in ("f1", "f2")]
    return _container(schema, {"clusteringPlan": {"inputGroups": [{"slices": slices}]}})


def replaced_files() -> bytes:
    schema = _record("Replaced", partitionToReplaceFileIds=["null", _map_of(["null", _list_of("string")])])
    return _container(schema, {"partitionToReplaceFileIds": {"p": ["f1", "f2"]}})


def _container(schema: dict[str, Any], record: dict[str, Any]) -> bytes:
    container = io.BytesIO()
    fastavro.writer(container, schema, [record], sync_marker=bytes(16))
    return container.getvalue()
