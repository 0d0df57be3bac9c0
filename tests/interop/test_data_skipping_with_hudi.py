"""Data skipping by column stats, judged by Hudi on Spark: the same rows as without, from fewer files.

`make filters` asks 1 700 filters here; `make test` some, and of a table with our stats alone.
"""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError

from tests.interop.filters import COLUMNS, LIKE_PREFIX, NOT_A_NUMBER, SCHEMA, Filter, Row, Zoo, is_plain
from tests.interop.judge import HudiJudge
from tests.interop.skipping import judge_skipping
from tidemark.hudi_format.column_stats_scan import ColumnStatsScan
from tidemark.hudi_format.commit.foreign_writers import kept_stats_options
from tidemark.hudi_format.metadata_table.own_stats import STATS_PARTITIONS
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import read_table_config
from tidemark.hudi_format.table_schema import table_schema
from tidemark.hudi_format.timeline import load_timeline
from tidemark.stream_runtime.clock import SystemClock

pytestmark = pytest.mark.spark

FILTERS: Final = int(os.environ.get("TIDEMARK_FILTERS", "8"))
SEED: Final = int(os.environ.get("TIDEMARK_SEED", "1"))
only_long: Final = pytest.mark.skipif("TIDEMARK_FILTERS" not in os.environ, reason="make filters")
REGIONS: Final = ("eu", "us", "a b=c", "x", "y")
STATS: Final = {
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.column.stats.column.list": ",".join([*COLUMNS, "raw"]),
    "hoodie.metadata.index.partition.stats.enable": "false",
}
# One row each, in a partition of its own with a file of its own.
LONG_TEXT: Final = "~" * 5_000
ODD_ROWS: Final[list[Row]] = [
    {"id": "like", "region": "like", "s": "prefix and more"},
    {"id": "nan", "region": "floats", "d": math.nan},
    {"id": "above", "region": "floats", "d": 7777.5},
    {"id": "long", "region": "long", "s": LONG_TEXT},
]
# Filters that find one of these rows, and what Hudi makes of stats that are right, or of its own.
WRONG_ALWAYS: Final = {
    LIKE_PREFIX: Filter("s LIKE 'prefix%'", frozenset({LIKE_PREFIX}), "s", "prefix"),
    NOT_A_NUMBER: Filter("d = double('NaN')", frozenset({NOT_A_NUMBER}), "d"),
}
WRONG_BY_HUDIS_OWN_STATS: Final = {
    "apache/hudi#18754": "d BETWEEN 7777 AND 7778",
    "apache/hudi#18755": "s > '~~~'",
}


def table_of(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist([{"seq": 1, **row} for row in rows], schema=SCHEMA)


def keys_of(cluster: int, count: int = 6) -> list[str]:
    return [f"k{cluster}-{number}" for number in range(count)]


def make_table(judge: HudiJudge, table: Path, zoo: Zoo, table_type: str, options: dict[str, str]) -> None:
    """Two commits by Spark: a cluster of rows for each partition and the odd rows; updates and inserts."""
    first = [row for at, region in enumerate(REGIONS) for row in zoo.rows(keys_of(at), region, at)]
    judge.create_table_with_spark(
        table, table_of([*first, *ODD_ROWS]), table_type=table_type, ordering="seq", options=options
    )
    second = [*zoo.rows(keys_of(0)[:3], REGIONS[0], 7, 2), *zoo.rows(keys_of(8), REGIONS[1], 8, 2)]
    judge.upsert(table, table_of(second), options)


def scanned(table: Path) -> ColumnStatsScan:
    storage = LocalStorage(table)
    config = read_table_config(storage)
    schema = table_schema(storage, config, load_timeline(storage))
    assert schema is not None
    scan = ColumnStatsScan(storage, config, schema, list(COLUMNS))
    scan.scan()
    return scan


def found_by(judge: HudiJudge, table: Path, condition: str) -> set[Any]:
    return {row["id"] for row in judge.filtered(table, condition, skipping=True)}


def test_a_condition_that_hudi_gets_wrong_stands_alone_in_its_filter() -> None:
    """A row that another condition loses is not excused by it."""
    zoo = Zoo(SEED)
    for cluster in range(9):
        zoo.rows(keys_of(cluster), REGIONS[0], cluster)
    faulty = [each.sql for each in (zoo.filter() for _ in range(3_000)) if each.faults]
    assert len(faulty) > 100
    assert not any(sql.startswith(("(", "NOT (")) for sql in faulty)
    among = [literal for sql in faulty if " IN (" in sql for literal in sql.partition(" IN (")[2].split(", ")]
    assert among
    assert all("NaN" in literal or "('Infinity" in literal for literal in among)


@only_long
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_of_a_table_that_spark_wrote(judge: HudiJudge, tmp_path: Path, table_type: str) -> None:
    """The judge finds the known faults in stats of Hudi's own making, and no others; ours end two of them."""
    table, zoo = tmp_path / "spark", Zoo(SEED, is_plain)
    make_table(judge, table, zoo, table_type, STATS)
    # Switched off by name and made all the same: what the options for other writers go round.
    assert read_table_config(LocalStorage(table)).metadata_partitions >= STATS_PARTITIONS
    odd = {"like", "nan", "above", "long"}
    for sql in (*(each.sql for each in WRONG_ALWAYS.values()), *WRONG_BY_HUDIS_OWN_STATS.values()):
        assert not found_by(judge, table, sql) & odd, f"Hudi gets it right now: {sql}"
        assert {row["id"] for row in judge.filtered(table, sql, skipping=False)} & odd
    with pytest.raises(Py4JJavaError, match="ClassCastException"):
        found_by(judge, table, "raw = X'FF01'")
    odd_regions = ", ".join(f"'{row['region']}'" for row in ODD_ROWS)
    filters = [zoo.filter() for _ in range(FILTERS // 6)]
    within = [replace(each, sql=f"({each.sql}) AND region NOT IN ({odd_regions})") for each in filters]
    judge_skipping(judge, table, within)
    wrong = scanned(table).wrong()
    assert {(each.column, each.reason.rpartition("(")[2].rstrip(")")) for each in wrong} == {
        ("d", "apache/hudi#18754"),
        ("s", "apache/hudi#18755"),
    }


@pytest.mark.parametrize("table_type", [pytest.param("COPY_ON_WRITE", marks=only_long), "MERGE_ON_READ"])
def test_of_stats_that_we_make_of_a_table_without(judge: HudiJudge, tmp_path: Path, table_type: str) -> None:
    """Created from the rows, with every value; then Spark writes on top, which maintains them."""
    table, zoo = tmp_path / "ours", Zoo(SEED + 1)
    make_table(judge, table, zoo, table_type, {})
    assert scanned(table).create(SystemClock()) > len(COLUMNS) * len(REGIONS)
    assert not scanned(table).wrong()
    judged = judge_skipping(
        judge,
        table,
        [
            *(zoo.filter() for _ in range(FILTERS)),
            *WRONG_ALWAYS.values(),
            *(Filter(sql) for sql in WRONG_BY_HUDIS_OWN_STATS.values()),
        ],
    )
    assert judged.lost.keys() == set(WRONG_ALWAYS), "Hudi gets right what we list as wrong, or the reverse"
    rows = table_of(Zoo(SEED + 2, is_plain).rows(keys_of(8)[:2], REGIONS[1], 9, 3))
    judge.upsert(table, rows, kept_stats_options(list(COLUMNS)))
    assert read_table_config(LocalStorage(table)).metadata_partitions & STATS_PARTITIONS == {"column_stats"}
    judge_skipping(judge, table, [zoo.filter() for _ in range(FILTERS // 4)])
