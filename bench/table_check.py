"""Is the table what the workload put there? Read back by hudi-rs, which shares no code with Tidemark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from hudi import HudiReadOptions, HudiTableBuilder

Contents = Mapping[str, tuple[int, int]]
"""Partition -> (rows, sum of the ordering values of its rows)."""


class WrongTableError(RuntimeError):
    """The table differs from the model: a figure measured on it would mean nothing."""


def contents(table: Path) -> dict[str, tuple[int, int]]:
    """The snapshot of the table, by partition. Raises WrongTableError when a key is in it twice."""
    reader = HudiTableBuilder.from_base_uri(str(table)).build()
    found: dict[str, tuple[int, int]] = {}
    keys, rows = [], 0
    for batch in reader.read(HudiReadOptions()):
        part = pa.Table.from_batches([batch]).select(["id", "region", "ts"])
        keys.append(part["id"])
        rows += part.num_rows
        sums = part.group_by("region").aggregate([("ts", "count"), ("ts", "sum")]).to_pylist()
        for row in sums:
            before = found.get(row["region"], (0, 0))
            found[row["region"]] = (before[0] + row["ts_count"], before[1] + row["ts_sum"])
    distinct = pc.count_distinct(pa.chunked_array([chunk for each in keys for chunk in each.chunks])).as_py()
    if distinct != rows:
        raise WrongTableError(f"{table}: {rows} rows have only {distinct} different keys")
    return found


def check(table: Path, expected: Contents) -> str:
    """Raises WrongTableError unless every partition has the rows and values of the model; says what held."""
    found = contents(table)
    for partition, wanted in expected.items():
        if found.get(partition, (0, 0)) != wanted:
            raise WrongTableError(
                f"{table}: partition {partition} has (rows, sum of ts) {found.get(partition)}, not {wanted}"
            )
    rows = sum(count for count, _ in expected.values())
    return f"{rows} rows in {len(expected)} partitions, each partition's count and sum of ts as the model's"
