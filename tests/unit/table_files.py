"""Configurations and small real tables for tests of the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa

from tests.interop.native_commit import NativeWriter
from tests.interop.partitioned_writer import PartitionedWriter
from tidemark.hudi_format.index_definitions import IndexKind
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.table_config import TableDefinition, TableType

SCHEMA = {
    "type": "record",
    "name": "orders",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "day", "type": "string"},
        {"name": "at", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
CONFIG = """\
table:
  name: orders
  path: ./table
  record_key: [id]
  partition: [day]
  ordering: at
  schema: orders.avsc
  index: {shards: 2}
input: {topics: [orders-in]}
kafka: {bootstrap.servers: KAFKA}
state: {path: ./state}
services: {coordinator: COORDINATOR, metrics: "127.0.0.1:0"}
"""


def write_config(folder: Path, kafka: str = "127.0.0.1:1", coordinator: str = "127.0.0.1:1") -> Path:
    """`orders.yaml` and its schema; nothing listens at the default addresses."""
    (folder / "orders.avsc").write_text(json.dumps(SCHEMA))
    file = folder / "orders.yaml"
    file.write_text(CONFIG.replace("KAFKA", kafka).replace("COORDINATOR", f'"{coordinator}"'))
    return file


def write_partitioned_config(folder: Path) -> Path:
    """As `write_config`, of a table whose record index is divided by data partition."""
    file = write_config(folder)
    file.write_text(file.read_text().replace("{shards: 2}", "{shards: 2, kind: partitioned}"))
    return file


def orders(*rows: tuple[str, str, int]) -> pa.Table:
    """Rows of (id, day, at)."""
    names = ["id", "day", "at"]
    columns = {name: [row[number] for row in rows] for number, name in enumerate(names)}
    return pa.table({**columns, "note": ["n"] * len(rows)})


def new_table(path: Path, table_type: TableType = TableType.MERGE_ON_READ, shards: int = 2) -> NativeWriter:
    """An empty table that `write_config`'s configuration describes."""
    schema = table_schema()
    return NativeWriter.create(path, schema, _definition(schema, table_type), shards)


def new_partitioned_table(path: Path) -> PartitionedWriter:
    """An empty table that `write_partitioned_config`'s configuration describes."""
    schema = table_schema()
    return PartitionedWriter.create(
        path, schema, _definition(schema, TableType.MERGE_ON_READ), 0, kind=IndexKind.PARTITIONED
    )


def _definition(schema: TableSchema, table_type: TableType) -> TableDefinition:
    return TableDefinition(
        name="orders",
        table_type=table_type,
        record_key_fields=("id",),
        partition_fields=("day",),
        ordering_fields=("at",),
        schema=schema.avro_json,
    )


def existing_table(path: Path) -> NativeWriter:
    """A writer of a table that is there."""
    return NativeWriter(path, table_schema())


def table_schema() -> TableSchema:
    return TableSchema.from_avro(json.dumps(SCHEMA), "orders")
