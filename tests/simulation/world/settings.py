"""The configuration file that all services of a world read; made once a process, varied by the setup."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import yaml

from hudi_format.schema import TableSchema
from stream_runtime.config import TableConfigFile, load_config
from stream_runtime.config.model import TableType
from tests.simulation.world.script import Setup

TABLE: Final = "t"
INPUT: Final = "in"
DELETE_FIELD: Final = "gone"
_FIELDS: Final = [("id", "string"), ("day", "string"), ("ts", "long"), ("v", "long")]
_AVRO: Final = {
    "type": "record",
    "name": TABLE,
    "fields": [{"name": name, "type": kind} for name, kind in _FIELDS],
}


@lru_cache(maxsize=1)
def schema() -> TableSchema:
    """The rows' schema."""
    return TableSchema.from_avro(json.dumps(_AVRO), TABLE)


@lru_cache(maxsize=64)
def _loaded(ordered: bool, shards: int, lanes: int, inputs: int) -> TableConfigFile:
    table: dict[str, Any] = {
        "name": TABLE,
        "path": "./table",
        "record_key": ["id"],
        "partition": ["day"],
        "schema": "schema.avsc",
        "index": {"shards": shards, "lanes": lanes},
    }
    if ordered:
        table["ordering"] = "ts"
    document = {
        "table": table,
        "input": {"topics": [INPUT], "partitions": inputs, "delete_field": DELETE_FIELD},
        "kafka": {"bootstrap.servers": "memory:9092"},
        "state": {"path": "./state"},
    }
    with tempfile.TemporaryDirectory(prefix="tidemark-world-") as folder:
        (Path(folder) / "schema.avsc").write_text(json.dumps(_AVRO))
        file = Path(folder) / "t.yaml"
        file.write_text(yaml.safe_dump(document))
        return load_config(file, {})


@lru_cache(maxsize=1)
def _schema_file() -> tuple[tempfile.TemporaryDirectory[str], Path]:
    """Services read it at their start; it goes with the process."""
    folder = tempfile.TemporaryDirectory(prefix="tidemark-world-")
    file = Path(folder.name) / "schema.avsc"
    file.write_text(json.dumps(_AVRO))
    return folder, file


def config_of(setup: Setup) -> TableConfigFile:
    """What the services of the world are configured with."""
    loaded = _loaded(setup.ordered, setup.shards, setup.lanes, setup.inputs)
    kind = TableType.MERGE_ON_READ if setup.type == "mor" else TableType.COPY_ON_WRITE
    return replace(
        loaded,
        table=replace(loaded.table, type=kind, schema=_schema_file()[1]),
        state=replace(loaded.state, disk_bytes=1 if setup.tiny_cache else 1 << 30),
        epoch=replace(loaded.epoch, interval_ms=setup.interval_ms),
        limits=replace(
            loaded.limits,
            transaction_records=setup.records,
            transaction_interval_ms=50,
            uncommitted_entries=setup.uncommitted,
        ),
    )
