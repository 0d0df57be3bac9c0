"""A secondary index as a user has one: made by a command while `tidemark run` writes the table with Spark,
kept by epochs while writer and coordinator are killed, and at last dropped.

Hudi on Spark finds the rows of a value by it as by a scan of all files, in no more files than have them; it
upserts and deletes with the options that `tidemark table describe` prints. `tidemark lookup --where` names
the same rows, and `tidemark verify` finds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.input_model import Row, Upsert
from tests.interop.city_table import BULK, INDEX, NOBODY, PARTITION, CityJudge, CityTable
from tests.interop.judge import HudiJudge
from tests.interop.served_story import COW, MOR, takes_minutes
from tests.interop.test_secondary_index_of_epochs_with_hudi import CITIES
from tidemark.hudi_format.index_definitions import read_index_definitions
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import read_table_config
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka
from tidemark.stream_writer.service import HERE_MAX

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def table(kafka: EmbeddedKafka, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[CityTable]:
    made = CityTable(tmp_path, kafka.bootstrap_servers, request.param)
    yield made
    made.abandon()


@pytest.mark.parametrize("table", [MOR, pytest.param(COW, marks=takes_minutes)], indirect=True)
def test_a_secondary_index_that_a_user_runs_is_one_for_spark_too(judge: HudiJudge, table: CityTable) -> None:
    spark = CityJudge(judge, table)
    # Of these rows the index has what the command made, until Spark writes them.
    left = [table.stream.newest(f"left-{number}", city=f"left {number % 5}") for number in range(16)]
    table.send([*table.stream.bulk(), *map(Upsert, left)])
    table.start()
    table.random(200)
    with table.flowing():
        made = table.cli("index", "create", INDEX, "--column", "city")
    assert made["partition"] == PARTITION
    assert traces(table) == {"listed", "defined", "files"}

    table.in_one_epoch(list(table.stream.bulk()))
    table.kill("writer")
    table.random(300)
    table.kill("coordinator")
    table.random(200)
    table.settle()
    assert 2 * BULK > HERE_MAX
    assert table.jobs_of_newest_attempts(BULK) >= 2, "the entries were written by a job of their own"
    spark.finds("epochs, and deaths", "left 1", table.model.rows["bulk-1"]["city"], None)
    three = (CITIES[2], NOBODY, "oslo")
    spark.told(*(word for city in three for word in ("--where", f"city={city}")), values=three)
    spark.told("--where-null", "city", values=[None])
    assert table.cli("verify")["agrees"]

    spark_writes(spark, table, left[:4], deleted=left[4:8])
    table.random(300)
    table.settle()
    spark.finds("Spark's writes, and epochs", "of-spark")
    spark.told("--where", "city=of-spark", values=["of-spark"])
    assert table.cli("verify")["agrees"]

    with table.flowing():
        assert table.cli("index", "drop", INDEX) == {"name": INDEX}
    assert traces(table) == set()
    table.settle()
    spark_writes(spark, table, left[8:12])
    assert traces(table) == set(), "Spark makes no index whose definition is gone"
    table.random(100)
    table.settle()
    spark.finds("the index dropped, Spark's writes, and epochs", "of-spark", is_kept=False)
    assert table.cli("verify")["agrees"]
    assert table.stop() == 0


def traces(table: CityTable) -> set[str]:
    """What the table's files have of the index."""
    storage, found = LocalStorage(table.table), set[str]()
    if PARTITION in read_table_config(storage).metadata_partitions:
        found.add("listed")
    if PARTITION in read_index_definitions(storage):
        found.add("defined")
    if storage.list(f".hoodie/metadata/{PARTITION}"):
        found.add("files")
    return found


def spark_writes(
    spark: CityJudge, table: CityTable, left: Sequence[Row], deleted: Sequence[Row] = ()
) -> None:
    """Other cities and none, also of rows that are ``left``; moves to other regions, and new rows. Of rows
    that are ``deleted`` no late event comes.
    """
    cities = ("of-spark", CITIES[2], None, "oslo")
    keys = [key for key in sorted(table.model.rows) if key.startswith("key-")][:8]
    keys += [f"new-{number}-{left[0]['id']}" for number in range(4)]
    keys += [row["id"] for row in left]
    changed = [table.stream.newest(key, city=cities[number % 4]) for number, key in enumerate(keys)]
    spark.writes(upsert=changed, delete=deleted)
