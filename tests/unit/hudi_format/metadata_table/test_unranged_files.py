"""Which columns of a base file have values and no bounds in the footer."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from testing.memory_storage import InMemoryStorage
from tidemark.hudi_format.log_file import BlockType, HeaderKey, frame_block
from tidemark.hudi_format.metadata_table.unranged_files import (
    columns_not_updated,
    columns_without_bounds,
    unranged,
)

NAMES = ["id", "nan", "null", "late", "number"]


def file_of(storage: InMemoryStorage) -> str:
    """Two row groups of two rows: `late` has bounds in the first one alone, `id` is written without any."""
    rows = pa.table(
        {
            "id": ["a", "b", "c", "d"],
            "nan": [math.nan] * 4,
            "null": pa.array([None] * 4, pa.float64()),
            "late": [1.0, 2.0, math.nan, math.nan],
            "number": [0.0, 1.0, 2.0, None],
        }
    )
    out = pa.BufferOutputStream()
    pq.write_table(rows, out, row_group_size=2, write_statistics=NAMES[1:])
    storage.create("eu/file.parquet", bytes(out.getvalue()))
    return "eu/file.parquet"


def test_a_column_with_values_and_no_bounds_in_one_row_group_is_named() -> None:
    storage = InMemoryStorage()
    path = file_of(storage)
    assert columns_without_bounds(storage, path, NAMES) == {"id", "nan", "late"}
    assert columns_without_bounds(storage, path, ["late", "number"]) == {"late"}
    assert columns_without_bounds(storage, path, ["null", "number", "other"]) == set()


@pytest.mark.parametrize(
    ("low", "high", "lacks"),
    [(0.0, 5.0, False), (0.0, math.nan, True), (math.nan, 1.0, True), ("a", "b", False)],
)
def test_a_bound_that_is_no_number_is_none(low: Any, high: Any, lacks: bool) -> None:
    """Hudi on Spark writes them so; Arrow writes no NaN into a footer."""
    found = SimpleNamespace(has_min_max=True, min=low, max=high, has_null_count=True, null_count=0)
    assert unranged(SimpleNamespace(statistics=found, num_values=3)) is lacks


def test_nothing_is_said_of_a_file_that_is_gone() -> None:
    storage = InMemoryStorage()
    assert columns_without_bounds(storage, "eu/gone.parquet", NAMES) == set()
    assert columns_not_updated(storage, "eu/.gone.log.1_0-0-0", NAMES) == set()


def block(*columns: str, partial: bool = True) -> bytes:
    schema = {"type": "record", "name": "t", "fields": [{"name": name, "type": "string"} for name in columns]}
    headers = {HeaderKey.INSTANT_TIME: "20260101000000000", HeaderKey.SCHEMA: json.dumps(schema)}
    if partial:
        headers[HeaderKey.IS_PARTIAL] = "true"
    return frame_block(BlockType.PARQUET_DATA, headers, b"rows")


def test_the_columns_that_a_block_of_partial_updates_lacks_are_named() -> None:
    """`v` set to null by such a block has a right range; `d` that it does not have has none."""
    storage = InMemoryStorage()
    path = "eu/.file_1.log.1_0-0-0"
    storage.create(path, block("id", "v", "d", partial=False) + block("id", "v") + block("id", "s", "v"))
    assert columns_not_updated(storage, path, ["v"]) == set()
    assert columns_not_updated(storage, path, ["id", "v", "d", "s"]) == {"d", "s"}
    storage.create("eu/.file_2.log.1_0-0-0", block("id", "v", partial=False))
    assert columns_not_updated(storage, "eu/.file_2.log.1_0-0-0", ["d"]) == set()


def test_a_block_of_partial_updates_without_a_schema_lacks_all_columns() -> None:
    storage = InMemoryStorage()
    headers = {HeaderKey.INSTANT_TIME: "20260101000000000", HeaderKey.IS_PARTIAL: "true"}
    storage.create("eu/.file_3.log.1_0-0-0", frame_block(BlockType.PARQUET_DATA, headers, b"rows"))
    assert columns_not_updated(storage, "eu/.file_3.log.1_0-0-0", ["v"]) == {"v"}
