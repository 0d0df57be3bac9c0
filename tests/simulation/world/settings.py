"""The configuration file that all services of a world read; made once a process, varied by the setup."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import yaml

from tests.simulation.world.checkers.layout import Layout
from tests.simulation.world.encoding import input_settings
from tests.simulation.world.script import Setup
from tidemark.config import InputStart, TableConfigFile, load_config
from tidemark.config.model import ConfiguredIndexKind, ConfiguredTableType, InputPartitioning
from tidemark.config.table_services_model import (
    ArchiveConfig,
    CleanConfig,
    DataCompactionConfig,
    IndexCompactionConfig,
    RollbackConfig,
    TableServicesConfig,
)
from tidemark.hudi_format.schema import TableSchema

TABLE: Final = "t"
INPUT: Final = "in"
NOTE: Final = "note"
"""The column that comes later."""
_PARTITION: Final = {"day": ["day"], "none": [], "two": ["day", "zone"]}


EAGER: Final = TableServicesConfig(
    enabled=True,
    clock_skew_ms=100,
    compact_index=IndexCompactionConfig(
        ratio_from_bytes=0, log_files=4, min_interval_ms=100, max_age_ms=2_000
    ),
    compact_data=DataCompactionConfig(log_files=2, min_interval_ms=100, max_groups=2),
    clean=CleanConfig(retain_ms=1_000, interval_ms=500),
    archive=ArchiveConfig(min=3, max=5, batch=2),
    rollback=RollbackConfig(interval_ms=500),
)
"""Services that have something to do after a few epochs."""
_SECTIONS: Final = ("compact_index", "compact_data", "clean", "archive", "rollback")


def layout_of(setup: Setup) -> Layout:
    """What keys and partition paths are made of."""
    return Layout(setup.partition, setup.keys, setup.by_partition, setup.nullable)


def inputs_of(setup: Setup) -> tuple[str, ...]:
    """The input topics."""
    return (INPUT, f"{INPUT}2")[: setup.topics]


def schema(layout: Layout, grown: bool = False) -> TableSchema:
    """The rows' schema; ``grown``: with the column that comes later."""
    return TableSchema.from_avro(_avro(layout, grown), TABLE)


def _avro(layout: Layout, grown: bool) -> str:
    names = ["id", *(["sub"] if layout.keys > 1 else []), "day"]
    names += ["zone"] if layout.partition == "two" else []
    fields: list[dict[str, Any]] = [{"name": name, "type": "string"} for name in names]
    fields += [{"name": name, "type": "long"} for name in ("ts", "v")]
    if grown or layout.has_notes:
        fields.append({"name": NOTE, "type": ["null", "string"], "default": None})
    return json.dumps({"type": "record", "name": TABLE, "fields": fields})


@lru_cache(maxsize=1)
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Schemas and descriptors, which services read at their start; it goes with the process."""
    return tempfile.TemporaryDirectory(prefix="tidemark-world-")


@lru_cache(maxsize=16)
def _schema_file(layout: Layout, grown: bool) -> Path:
    has_note = "grown" if grown or layout.has_notes else "first"
    file = Path(_folder().name) / f"{layout.partition}-{layout.keys}-{has_note}.avsc"
    file.write_text(_avro(layout, grown))
    return file


@lru_cache(maxsize=64)
def _loaded(
    ordered: bool, shards: int, lanes: int, inputs: int, layout: Layout, topics: tuple[str, ...], format_: str
) -> TableConfigFile:
    table: dict[str, Any] = {
        "name": TABLE,
        "path": "./table",
        "record_key": ["id", "sub"][: layout.keys],
        "partition": _PARTITION[layout.partition],
        "schema": str(_schema_file(layout, False)),
        "index": {"shards": shards, "lanes": lanes},
    }
    if ordered:
        table["ordering"] = "ts"
    folder = Path(_folder().name)
    settings = input_settings(format_, ordered, folder)
    document = {
        "table": table,
        "input": {"topics": list(topics), "partitions": inputs, **settings},
        "kafka": {"bootstrap.servers": "memory:9092"},
        "state": {"path": "./state"},
    }
    file = folder / "t.yaml"
    file.write_text(yaml.safe_dump(document))
    return load_config(file, {})


def config_of(setup: Setup, grown: bool = False) -> TableConfigFile:
    """What the services of the world are configured with; ``grown``: the schema got another field."""
    layout = layout_of(setup)
    common = (setup.ordered, setup.shards, setup.lanes, setup.inputs)
    loaded = _loaded(*common, layout, inputs_of(setup), setup.format)
    kind = ConfiguredTableType.MERGE_ON_READ if setup.type == "mor" else ConfiguredTableType.COPY_ON_WRITE
    of_index = ConfiguredIndexKind(setup.index)
    index = replace(loaded.table.index, tombstone_ttl_ms=setup.ttl_ms, kind=of_index)
    limits = loaded.limits
    return replace(
        loaded,
        table=replace(loaded.table, type=kind, schema=_schema_file(layout, grown), index=index),
        input=replace(
            loaded.input,
            partitioning=InputPartitioning(setup.partitioning),
            start=InputStart(setup.start),
        ),
        state=replace(
            loaded.state,
            disk_bytes=1 if setup.tiny_cache else 1 << 30,
            memory_bytes=setup.cache_bytes or loaded.state.memory_bytes,
        ),
        epoch=replace(loaded.epoch, interval_ms=setup.interval_ms),
        table_services=_services(setup),
        limits=replace(
            limits,
            batch_bytes=setup.batch_bytes or limits.batch_bytes,
            transaction_records=setup.records,
            transaction_interval_ms=50,
            uncommitted_entries=setup.uncommitted,
            uncommitted_transactions=setup.tagged or limits.uncommitted_transactions,
            uncommitted_bytes=setup.tagged_bytes or limits.uncommitted_bytes,
            shuffled_transactions=setup.shuffled or limits.shuffled_transactions,
        ),
    )


def _services(setup: Setup) -> TableServicesConfig:
    if not setup.services:
        return TableServicesConfig(enabled=False)
    off = [name for name in _SECTIONS if setup.kinds and name not in setup.kinds.split("+")]
    return replace(EAGER, **{name: replace(getattr(EAGER, name), enabled=False) for name in off})
