"""How the simulation's other engine writes rows, what a write in flight hides, and what a clean by hours
deletes, against Hudi on Spark. `test_rules_with_hudi` has the other operations.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.hudi_rules import cleaning
from tests.hudi_rules.undoing import files_of
from tests.interop.judge import HudiJudge
from tests.interop.native_commit import NativeWriter
from tests.interop.ruled_table import (
    assert_cleaned,
    assert_slices,
    look,
    metadata_timeline,
    newest,
    written,
)
from tests.interop.spark_operations import SMALL_FILES, SparkOperations
from tests.interop.test_timeline_with_hudi import rows
from tests.interop.verdict import assert_record_index_is_data
from tidemark.hudi_format.commit.foreign_writers import foreign_writer_options
from tidemark.hudi_format.model import instant_from_ms
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.table_config import TableDefinition, TableType
from tidemark.stream_runtime.clock import SystemClock

pytestmark = pytest.mark.spark

HOUR_MS = 3_600_000


@pytest.fixture(params=["MERGE_ON_READ", "COPY_ON_WRITE"], ids=["mor", "cow"])
def operations(request: pytest.FixtureRequest, judge: HudiJudge, tmp_path: Path) -> Iterator[SparkOperations]:
    table = tmp_path / "written"
    judge.create_table_with_spark(table, rows(0, 20, 0), table_type=request.param)
    made = SparkOperations(judge, table, {})
    yield made
    made.close()


def write(operations: SparkOperations, given: pa.Table, operation: str = "upsert", **more: str) -> list[str]:
    """One write; what it wrote, once for each file group."""
    before, known = look(operations.table), look(operations.table).timeline.writes()
    operations.write(given, operation, **more)
    assert newest(operations.table) not in known
    return sorted(written(before, look(operations.table)).values())


def test_rows_are_written_as_the_engine_writes_them(judge: HudiJudge, operations: SparkOperations) -> None:
    table = operations.table
    is_log = bool(look(table).timeline.writes()[0].action == "deltacommit")
    change = "log" if is_log else "base"
    assert len(look(table).groups) == 2
    # A small file without log files takes inserts: its base file is written anew, whatever the type.
    assert write(operations, rows(20, 4, 1), **SMALL_FILES) == ["base", "base"]
    assert_slices(judge, table)
    assert write(operations, rows(0, 10, 2)) == [change, change]
    assert_slices(judge, table)
    # One with log files does not.
    assert write(operations, rows(24, 4, 3), **SMALL_FILES) == (
        ["new", "new"] if is_log else ["base", "base"]
    )
    assert_slices(judge, table)
    assert write(operations, rows(0, 1, 4), "delete") == [change]
    assert_slices(judge, table)
    # A move: a delete where the row was, and an insert.
    moved = rows(2, 1, 5).set_column(1, "region", pa.array(["eu"]))
    assert write(operations, moved) == [change, "new"]
    assert_slices(judge, table)
    noted = rows(10, 2, 6).append_column("note", pa.array(["n10", "n11"]))
    assert write(operations, noted) == [change, change]
    assert_slices(judge, table)
    found = {row["id"]: row["note"] for row in judge.snapshot(table)}
    assert {key: note for key, note in found.items() if note} == {"k10": "n10", "k11": "n11"}
    assert len(found) == 27
    assert_record_index_is_data(judge, table, verify=False)


def test_a_write_in_flight_begins_a_slice_and_is_rolled_back(
    judge: HudiJudge, operations: SparkOperations
) -> None:
    """It dies between its two commits. What is committed into its slice is not seen by those who list
    folders, until somebody rolls it back.
    """
    table = operations.table
    write(operations, rows(20, 4, 1), **SMALL_FILES)
    died = newest(table)
    (table / ".hoodie" / "timeline" / died.name).unlink()
    assert look(table).timeline.pending() == [died._replace(completion=None)]
    assert_slices(judge, table)
    write(operations, rows(0, 10, 2), **foreign_writer_options(str(table)))
    assert_slices(judge, table)
    gone = files_of(look(table).files, died.requested)
    before = look(table)
    # By listing, since the markers went with the commit; a clean takes back what no heartbeat keeps.
    settings = {**foreign_writer_options(str(table)), "hoodie.rollback.using.markers": "false"}
    lazy = SparkOperations(judge, table, settings)
    lazy.clean(cleaning.COMMITS, 10)
    lazy.close()
    after = look(table)
    for partition, names in before.files.items():
        assert set(names) - set(after.files[partition]) == set(gone[partition])
    assert died.requested not in after.timeline.instants
    assert died.requested not in metadata_timeline(table).instants
    assert_slices(judge, table)
    assert len(judge.snapshot(table)) == 20
    assert_record_index_is_data(judge, table, verify=False)


def test_a_clean_by_hours(judge: HudiJudge, tmp_path: Path) -> None:
    """Three commits are 30 hours old, one is new: the last of the old ones stays, as by commits."""
    table, given = tmp_path / "aged", rows(0, 10, 0)
    definition = TableDefinition(
        name="aged",
        table_type=TableType.COPY_ON_WRITE,
        record_key_fields=("id",),
        partition_fields=("region",),
        ordering_fields=("ts",),
    )
    schema = TableSchema.from_arrow("aged", given.schema)
    past = SystemClock(skew_ms=-30 * HOUR_MS)
    writer = NativeWriter.create(table, schema, definition, shards=2, clock=past)
    for version in range(3):
        writer.commit(rows(0, 10, version))
    operations = SparkOperations(judge, table, {})
    try:
        operations.write(rows(0, 10, 3), "upsert")
        yesterday = instant_from_ms(SystemClock().now_ms() - 24 * HOUR_MS)
        plan = cleaning.plan_by_time(look(table), yesterday)
        assert plan is not None
        assert {partition: len(names) for partition, names in plan.files.items()} == {"eu": 2, "us": 2}
        assert_cleaned(operations, plan, cleaning.HOURS, 24)
        assert_slices(judge, table)
    finally:
        operations.close()
