"""The judge itself, on tables of Spark's making: it sees what is there, and is not easily pleased."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.interop.hudi_options import shared_lock_options
from tests.interop.judge import HudiJudge
from tests.interop.verdict import assert_record_index_is_data, assert_same_rows, assert_table_holds

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("region", pa.string()),
        ("ts", pa.int64()),
        ("price", pa.decimal128(10, 2)),
        ("seen", pa.timestamp("us", tz="UTC")),
        ("tags", pa.list_(pa.string())),
    ]
)


def row(key: str, region: str, ts: int, price: str = "1.50") -> dict[str, Any]:
    seen = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    return {"id": key, "region": region, "ts": ts, "price": Decimal(price), "seen": seen, "tags": ["a", key]}


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def test_the_session_takes_short_defaults_of_hadoop_and_starts_no_process_for_a_file(
    judge: HudiJudge,
) -> None:
    configuration = judge.spark.sparkContext._jsc.hadoopConfiguration()
    assert configuration.size() < 200
    local = judge.spark._jvm.org.apache.hadoop.fs.Path("file:///").getFileSystem(configuration)
    assert local.getClass().getName() == "WithoutProcesses"


@pytest.fixture(params=["COPY_ON_WRITE", "MERGE_ON_READ"])
def spark_table(request: pytest.FixtureRequest, judge: HudiJudge, tmp_path: Path) -> Path:
    table = tmp_path / "orders"
    rows = [row(f"k{each}", f"r{each % 3}", 1) for each in range(30)]
    judge.create_table_with_spark(table, table_of(rows), table_type=request.param)
    return table


def test_upsert_move_and_delete_by_spark_are_seen_by_every_reader(
    judge: HudiJudge, spark_table: Path
) -> None:
    judge.upsert(spark_table, table_of([row("k1", "r1", 2, "9.99"), row("k2", "r0", 2), row("new", "r2", 1)]))
    judge.delete(spark_table, table_of([row("k3", "r0", 3)]))
    expected = [row(f"k{each}", f"r{each % 3}", 1) for each in range(30) if each not in (1, 2, 3)]
    expected += [row("k1", "r1", 2, "9.99"), row("k2", "r0", 2), row("new", "r2", 1)]
    assert_table_holds(judge, spark_table, expected)

    with pytest.raises(AssertionError, match="missing"):
        assert_same_rows(judge.snapshot(spark_table), [*expected, row("k3", "r0", 1)], "a deleted row")


def test_lookup_opens_one_file_group_because_the_record_index_answers(
    judge: HudiJudge, spark_table: Path
) -> None:
    found = judge.lookup(spark_table, "id", "k7")
    assert [each["id"] for each in found.rows] == ["k7"]
    assert (found.files_read, found.files_in_table) == (1, 3)
    assert judge.lookup(spark_table, "id", "nobody").files_read == 0


def test_incremental_read_takes_begin_exclusive_and_end_inclusive(
    judge: HudiJudge, spark_table: Path
) -> None:
    first = newest_completion(spark_table)
    judge.upsert(spark_table, table_of([row("k1", "r1", 2)]))
    second = newest_completion(spark_table)
    judge.upsert(spark_table, table_of([row("k2", "r2", 2)]))
    assert [each["id"] for each in judge.incremental(spark_table, first, second)] == ["k1"]
    assert {each["id"] for each in judge.incremental(spark_table, first)} == {"k1", "k2"}


def test_compaction_keeps_rows_and_index(judge: HudiJudge, tmp_path: Path) -> None:
    table = tmp_path / "orders"
    judge.create_table_with_spark(
        table, table_of([row("a", "r", 1), row("b", "r", 1)]), table_type="MERGE_ON_READ"
    )
    judge.upsert(table, table_of([row("a", "r", 2, "7.00")]))
    assert judge.read_optimized(table) != judge.snapshot(table)
    assert [each["state"] for each in judge.compact(table, shared_lock_options(table))] == ["COMPLETED"]
    assert_same_rows(
        judge.read_optimized(table), [row("a", "r", 2, "7.00"), row("b", "r", 1)], "read optimized"
    )
    assert_record_index_is_data(judge, table)


def newest_completion(table: Path) -> str:
    completed = (table / ".hoodie" / "timeline").glob("*_*.*commit")
    return max(each.name.split("_")[1].split(".")[0] for each in completed if not each.name.startswith("."))
