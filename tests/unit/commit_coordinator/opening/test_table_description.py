"""Options for other writers that follow from the table's columns."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from testing.clock import ManualClock
from testing.memory_storage import InMemoryStorage
from tests.unit.commit_coordinator.opening.test_table_creation import DEFINITION, SHARDS, START_MS
from tidemark.commit_coordinator.opening.table_creation import create_or_finish
from tidemark.commit_coordinator.opening.table_description import describe_table
from tidemark.hudi_format.schema import TableSchema

KEPT = {"hoodie.datasource.write.reconcile.schema": "true"}


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (pa.timestamp("ms", "UTC"), KEPT),
        (pa.list_(pa.struct([pa.field("at", pa.timestamp("ms", "UTC"))])), KEPT),
        (pa.timestamp("us", "UTC"), {}),
        (pa.list_(pa.struct([pa.field("at", pa.timestamp("us"))])), {}),
    ],
    ids=str,
)
def test_writers_are_told_to_keep_the_schema_where_it_has_milliseconds(
    kind: pa.DataType, options: dict[str, str]
) -> None:
    """Spark has none: without the option Hudi refuses its writes."""
    schema = TableSchema.from_arrow("t", pa.schema([pa.field("id", pa.string()), pa.field("at", kind)]))
    storage = InMemoryStorage()
    create_or_finish(storage, replace(DEFINITION, schema=schema.avro_json), SHARDS, ManualClock(START_MS))
    told = describe_table(storage, ())["foreign_writer_options"]
    assert {key: value for key, value in told.items() if "reconcile" in key} == options


def test_a_schema_that_is_not_served_is_described_all_the_same() -> None:
    storage = InMemoryStorage()
    definition = replace(DEFINITION, schema='{"type": "record", "name": "t", "fields": []}')
    create_or_finish(storage, definition, SHARDS, ManualClock(START_MS))
    told = describe_table(storage, ())
    assert told["not_servable"]
    assert told["foreign_writer_options"]
