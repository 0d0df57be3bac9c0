"""Spark rewrites rows of ours with the options that `tidemark table describe` prints, and makes ranges by
which Hudi loses them: a NaN and a long text in a base file that it writes, columns that a MERGE INTO does not
name. The column stats go before our next commit, `status` says why, and filters find all rows again.

`make filters` does all of it, `make interop` one case that the commit draws.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final

import pyarrow as pa
import pytest

from tests.commit_seed import seed_of_run
from tests.interop.filters import Filter
from tests.interop.judge import HudiJudge
from tests.interop.skipping import judge_skipping
from tests.interop.spark_operations import SparkOperations
from tests.simulation.commit_path import CommitPath
from tests.simulation.scripted_epochs import GROUP_A, GROUP_B, row
from tests.simulation.scripted_tagger import TABLE, Row
from tidemark.epoch_protocol.batches import DataOp
from tidemark.hudi_format.commit.foreign_writers import foreign_writer_options
from tidemark.hudi_format.metadata_table.own_stats import kept_stats_columns
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.table_config import TableType, read_table_config
from tidemark.table_verification.findings import Kind
from tidemark.table_verification.verify import verify_table

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCHEMA: Final = TableSchema.from_arrow(
    TABLE,
    pa.schema(
        [
            ("id", pa.string()),
            ("day", pa.string()),
            ("ts", pa.int64()),
            ("v", pa.int64()),
            ("d", pa.float64()),
            ("s", pa.string()),
        ]
    ),
)
STATS: Final = ("id", "v", "d", "s")
LONG: Final = "y" * 5_000
# Hudi 1.2.0 fails on a MERGE INTO of some columns to a MERGE_ON_READ table with this option of ours.
NO_MOVES: Final = {"hoodie.record.index.update.partition.path": "false"}
OF_FOOTERS: Final = ["d > 5", "d = 7.0", "s > 'x'", "s is not null", "v = 1 and d = 7.0"]
LOST: Final = "a range that Hudi made of rows of ours"


def upsert(spark: SparkOperations) -> None:
    theirs = [full("a", 2, 2, 1.5, "a")]
    spark.write(pa.Table.from_pylist(theirs, schema=SCHEMA.arrow), "upsert")


def compaction(spark: SparkOperations) -> None:
    upsert(spark)
    spark.compaction("schedule")
    spark.compaction("execute")


def clustering(spark: SparkOperations) -> None:
    spark.clustering("scheduleAndExecute", "d1")


def merge_into(spark: SparkOperations) -> None:
    spark.merge(pa.Table.from_pylist([{"id": "c", "ts": 3, "v": 3}]), "update set t.v = s.v, t.ts = s.ts")


CASES: Final = [
    (upsert, TableType.COPY_ON_WRITE, OF_FOOTERS, "has wrong ranges of d, s (apache/hudi#18754 and #18755)"),
    (
        compaction,
        TableType.MERGE_ON_READ,
        OF_FOOTERS,
        "has wrong ranges of d, s (apache/hudi#18754 and #18755)",
    ),
    (
        clustering,
        TableType.COPY_ON_WRITE,
        OF_FOOTERS,
        "has wrong ranges of d, s (apache/hudi#18754 and #18755)",
    ),
    (
        merge_into,
        TableType.MERGE_ON_READ,
        ["v = 3 and d = 7.0"],
        "updates rows in part, and has no ranges of id, d, s",
    ),
]


def drawn() -> Sequence[object]:
    if "TIDEMARK_FILTERS" in os.environ:
        return CASES
    return [Random(seed_of_run("TIDEMARK_SEED", "rewritten ranges")).choice(CASES)]


def named(value: object) -> str | None:
    return value.value if isinstance(value, TableType) else getattr(value, "__name__", "")


def full(key: str, ts: int, value: int, number: float, text: str, day: str = "d1") -> Row:
    return {**row(key, ts, value, day), "d": number, "s": text}


def first_epoch(path: CommitPath) -> None:
    rows = [full("a", 1, 1, 1.0, "a"), full("b", 1, 1, math.nan, "b"), full("c", 1, 1, 7.0, LONG)]
    path.tag([(each, DataOp.INSERT, GROUP_A) for each in rows])
    path.tag([(full("z", 1, 1, 2.0, "z", "d2"), DataOp.INSERT, GROUP_B)])
    path.run_until_idle()


def next_epoch(path: CommitPath) -> None:
    """An insert, tagged anew when the coordinator finds what Spark did."""
    generation, rows = path.state().generation, [(full("n", 9, 9, 9.0, "n", "d2"), DataOp.INSERT, GROUP_B)]
    path.tag(rows)
    for _ in range(10):
        path.step()
        if path.state().generation > generation:
            path.tagger.claim_anew(path.state())
            path.tag(rows)
            break
    path.run_until_idle()


@pytest.mark.parametrize(("rewrite", "table_type", "filters", "says"), drawn(), ids=named)
def test_rows_that_spark_rewrites_are_found_from_our_next_commit_on(
    judge: HudiJudge, tmp_path: Path, rewrite: object, table_type: TableType, filters: list[str], says: str
) -> None:
    assert callable(rewrite)
    path = CommitPath(tmp_path / "t", table_type, ordered=True, schema=SCHEMA, stats=STATS)
    first_epoch(path)
    table, storage = Path(path.storage.base_uri), path.storage
    judge_skipping(judge, table, [Filter(each) for each in [*OF_FOOTERS, "v = 3 and d = 7.0"]])
    options = foreign_writer_options(str(table), stats=STATS, schema=SCHEMA.arrow)
    spark = SparkOperations(judge, table, {**options, **(NO_MOVES if rewrite is merge_into else {})})
    try:
        rewrite(spark)
    finally:
        spark.close()
    asked = [Filter(each, frozenset({LOST})) for each in filters]
    assert judge_skipping(judge, table, asked).lost == {LOST: filters}
    assert verify_table(storage, lambda _: None).findings.counts.keys() == {Kind.COLUMN_STATS_WRONG}
    next_epoch(path)
    assert kept_stats_columns(storage, read_table_config(storage)) == []
    assert path.context is not None
    assert path.context.taken_out is not None
    assert path.context.taken_out.reason.endswith(says)
    judge_skipping(judge, table, [Filter(each) for each in [*filters, "d = 9.0"]], fewer=False)
    assert verify_table(storage, lambda _: None).agrees


def test_a_null_that_a_merge_into_sets_is_no_reason_to_give_the_stats_up(
    judge: HudiJudge, tmp_path: Path
) -> None:
    """The rows have the one column with stats, so its range is theirs."""
    path = CommitPath(tmp_path / "t", TableType.MERGE_ON_READ, ordered=True, schema=SCHEMA, stats=("v",))
    first_epoch(path)
    table, storage = Path(path.storage.base_uri), path.storage
    options = foreign_writer_options(str(table), stats=("v",), schema=SCHEMA.arrow)
    spark = SparkOperations(judge, table, {**options, **NO_MOVES})
    try:
        spark.merge(pa.Table.from_pylist([{"id": "c", "ts": 3}]), "update set t.v = null, t.ts = s.ts")
    finally:
        spark.close()
    filters = [Filter(each) for each in ("v is null", "v = 1", "v is not null", "v > 5")]
    judge_skipping(judge, table, filters)
    assert verify_table(storage, lambda _: None).agrees
    next_epoch(path)
    assert kept_stats_columns(storage, read_table_config(storage)) == ["v"]
    judge_skipping(judge, table, [*filters, Filter("v = 9")])
    assert verify_table(storage, lambda _: None).agrees
