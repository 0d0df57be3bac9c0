"""Hudi on Spark adds a column and makes texts of a column of numbers between our epochs: values stay, in
untouched rows too, and filters find them from our next commit on.

The coordinator and the writer's tasks are ours and real, Kafka is in memory: what is judged is the table.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.interop.filters import Filter
from tests.interop.hudi_options import GLOBAL_RECORD_INDEX
from tests.interop.judge import HudiJudge
from tests.interop.skipping import judge_skipping
from tests.interop.verdict import assert_record_index_is_data
from tests.simulation.commit_path import CommitPath
from tests.simulation.scripted_epochs import GROUP_A, first_epoch, row
from tidemark.epoch_protocol.batches import DataOp
from tidemark.hudi_format.commit.foreign_writers import kept_stats_options
from tidemark.hudi_format.metadata_table.own_stats import kept_stats_columns
from tidemark.hudi_format.table_config import TableType, read_table_config
from tidemark.table_verification.verify import verify_table

pytestmark = [pytest.mark.spark, pytest.mark.slow]

EXTRA = pa.schema(
    [("id", pa.string()), ("extra", pa.string()), ("day", pa.string()), ("ts", pa.int64()), ("v", pa.int64())]
)
WIDENED = EXTRA.set(4, pa.field("v", pa.string()))
STATS = ["id", "v"]
TEXTS_OF_NUMBERS = "a string column that was one of numbers"
OPTIONS = {**GLOBAL_RECORD_INDEX, **kept_stats_options(STATS)}
# The options of a procedure are parted by commas: Hudi makes ranges of all columns then.
OF_PROCEDURES = {name: value for name, value in OPTIONS.items() if not name.endswith(".column.list")}


def alter_table(judge: HudiJudge, table: Path, change: str) -> None:
    name = f"altered_{table.name}"
    judge.spark.sql(f"create table if not exists {name} using hudi location '{table}'")
    try:
        for key, value in OPTIONS.items():
            judge.spark.sql(f"set {key}={value}")
        judge.spark.sql(f"alter table {name} {change}")
    finally:
        for key in OPTIONS:
            judge.spark.sql(f"reset {key}")
        judge.spark.sql(f"drop table {name}")


def update_a(path: CommitPath, ts: int, value: int) -> None:
    """An epoch of ours, tagged anew when the coordinator finds what Spark did."""
    generation = path.state().generation
    update = [(row("a", ts, value), DataOp.UPDATE, GROUP_A)]
    path.tag(update)
    for _ in range(10):
        path.step()
        if path.state().generation > generation:
            path.tagger.claim_anew(path.state())
            path.tag(update)
            break
    path.run_until_idle()


@pytest.mark.parametrize("table_type", list(TableType))
def test_columns_and_values_of_spark_stay(judge: HudiJudge, tmp_path: Path, table_type: TableType) -> None:
    path = CommitPath(tmp_path, table_type, ordered=True, stats=STATS)
    first_epoch(path)
    path.run_until_idle()
    table = Path(path.storage.base_uri)

    def rows() -> dict[str, tuple[object, ...]]:
        found = judge.snapshot(table)
        return {each["id"]: (each["day"], each["ts"], each["v"], each["extra"]) for each in found}

    alter_table(judge, table, "add columns (extra string)")
    values = (("b", "d1", 5), ("c", "d2", 5), ("e", "d1", 10), ("f", "d1", 50))
    theirs = [{**row(key, 5, value, day), "extra": f"of {key}"} for key, day, value in values]
    judge.upsert(table, pa.Table.from_pylist(theirs, schema=EXTRA), OPTIONS)
    update_a(path, 6, 6)
    expected: dict[str, tuple[object, ...]] = {"a": ("d1", 6, 6, None)}
    expected |= {key: (day, 5, value, f"of {key}") for key, day, value in values}
    assert rows() == expected
    if table_type is TableType.MERGE_ON_READ:
        judge.compact(table, OF_PROCEDURES)
        assert rows() == expected
        update_a(path, 7, 7)
        expected["a"] = ("d1", 7, 7, None)
        assert rows() == expected

    widened = [{**row("c", 8, 0, "d2"), "v": "eight", "extra": "of c"}]
    judge.upsert(table, pa.Table.from_pylist(widened, schema=WIDENED), OPTIONS)
    # Hudi takes the range of numbers of an older file for one of texts: 5 to 50 has no "10" then.
    texts = ["v = '5'", "v = '10'", "v < '11'", "v = 'eight'", "id = 'b' and extra = 'of b'"]
    lost = judge_skipping(judge, table, [Filter(each, frozenset({TEXTS_OF_NUMBERS})) for each in texts]).lost
    assert lost == {TEXTS_OF_NUMBERS: texts[1:3]}
    update_a(path, 9, 9)
    assert kept_stats_columns(path.storage, read_table_config(path.storage)) == []
    if table_type is TableType.MERGE_ON_READ:
        judge.compact(table, OF_PROCEDURES)
    judge_skipping(judge, table, [Filter(each) for each in [*texts, "v = '9'", "id = 'c'"]])
    assert rows() == {
        "a": ("d1", 9, "9", None),
        "b": ("d1", 5, "5", "of b"),
        "e": ("d1", 5, "10", "of e"),
        "f": ("d1", 5, "50", "of f"),
        "c": ("d2", 8, "eight", "of c"),
    }
    assert_record_index_is_data(judge, table)
    assert verify_table(path.storage, lambda _: None).findings.counts == {}
