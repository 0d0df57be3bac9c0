"""Parquet files are read in batches of bounded size, however wide their rows are."""

from __future__ import annotations

import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidemark.hudi_format.parquet_files import open_parquet, read_in_batches

BATCH_BYTES = 1 << 20
TABLE_MAX = 2.1 * BATCH_BYTES
"""A table has batches until they have `BATCH_BYTES`, and the last one may have nearly as many."""


def batches_of(
    table: pa.Table, columns: list[str] | None = None, group_rows: int = 1 << 20
) -> list[pa.Table]:
    out = pa.BufferOutputStream()
    pq.write_table(table, out, row_group_size=group_rows)
    file = open_parquet(pa.BufferReader(out.getvalue()), "a.parquet", buffer_size=1 << 16)
    found = list(read_in_batches(file, "a.parquet", columns, BATCH_BYTES))
    assert pa.concat_tables(found).equals(table if columns is None else table.select(columns))
    return found


def noise(size: int) -> str:
    return random.Random(size).randbytes(size // 2).hex()


def rows_of(texts: list[str]) -> pa.Table:
    return pa.table({"id": [f"k{n}" for n in range(len(texts))], "text": texts})


@pytest.mark.parametrize("group_rows", [100, 1 << 20])
@pytest.mark.parametrize("width", [20_000, 400_000])
def test_wide_rows_come_a_few_at_a_time(width: int, group_rows: int) -> None:
    """A row may be wider than a batch; and it may be in the file's only row group."""
    count = 40_000_000 // width
    found = batches_of(rows_of([noise(width + n % 7) for n in range(count)]), group_rows=group_rows)
    assert max(each.nbytes for each in found) <= TABLE_MAX
    assert len(found) > 15


def test_wide_texts_that_repeat_come_a_few_at_a_time() -> None:
    """They are stored once, so the footer says that their rows are narrow."""
    table = rows_of([noise(20_000 + n % 5) for n in range(3_000)])
    found = batches_of(table)
    assert max(each.nbytes for each in found) <= TABLE_MAX


def test_rows_that_get_wider_behind_the_first_ones_are_bounded_from_the_next_row_group_on() -> None:
    texts = ["x"] * 1_000 + [noise(20_000 + n % 5) for n in range(2_000)]
    found = batches_of(rows_of(texts), group_rows=500)
    assert max(each.nbytes for each in found) <= 500 * 20_100
    assert max(each.nbytes for each in found[-10:]) <= TABLE_MAX


def test_narrow_rows_come_in_few_batches() -> None:
    found = batches_of(rows_of([str(n) for n in range(200_000)]))
    assert len(found) <= 1 + pa.concat_tables(found).nbytes // BATCH_BYTES
    assert max(each.nbytes for each in found) <= TABLE_MAX


def test_only_the_columns_that_are_read_count() -> None:
    found = batches_of(rows_of([noise(20_000 + n) for n in range(1_000)]), ["id"])
    assert len(found) == 1


@pytest.mark.parametrize("group_rows", [1, 1 << 20])
def test_nested_columns_count(group_rows: int) -> None:
    table = pa.table({"a": [{"b": noise(20_000 + n), "c": n} for n in range(300)]})
    found = batches_of(table, ["a"], group_rows)
    assert max(each.nbytes for each in found) <= TABLE_MAX


def test_a_file_without_rows_is_one_empty_table() -> None:
    (found,) = batches_of(rows_of(["x"]).slice(0, 0))
    assert (found.num_rows, found.column_names) == (0, ["id", "text"])
