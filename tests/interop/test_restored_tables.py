"""A restore that leaves the record index behind: Hudi deletes the metadata table and builds it anew *before*
it takes commits back, when the oldest compaction there is newer than the savepoint. Hudi's own upserts double
keys then; ours wait until the index is built anew. A restore that takes nothing back leaves it right.
"""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from tests.input_model import Row, Upsert
from tests.interop.judge import HudiJudge
from tests.interop.operated_table import OperatedTable
from tests.interop.spark_operations import SparkOperations
from tests.interop.test_operations_beside_us import operated
from tidemark.hudi_format.commit.foreign_writers import foreign_writer_options
from tidemark.hudi_format.commit.instants import instant_path
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX_FOLDER
from tidemark.hudi_format.model import is_bootstrap_instant
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action, load_timeline
from tidemark.hudi_format.timeline.service_records import decode_restored_instants
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka
from tidemark.table_verification.findings import Kind
from tidemark.table_verification.verify import verify_table

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]

COMPACT_INDEX = {"hoodie.metadata.compact.max.delta.commits": "1"}
INDEX_OFF = {
    "hoodie.metadata.global.record.level.index.enable": "false",
    "hoodie.index.type": "GLOBAL_SIMPLE",
}
HUDIS_OWN_COUNTS = {
    f"hoodie.metadata.global.record.level.index.{bound}.filegroup.count": count
    for bound, count in (("min", "10"), ("max", "10000"))
}


def restored(table: OperatedTable) -> tuple[list[str], list[str]]:
    """What Spark deleted, moved and inserted since a savepoint is taken back; returns keys that it had
    deleted, and others that it had moved or inserted.
    """
    kept = table.newest()
    table.spark.savepoint(kept)
    moved, deleted = table.some(3, "region-1"), table.some(3, "region-2")
    inserted = table.fresh("region-of-nobody")
    with table.taken_back():
        table.spark.write(table._as_table(table.forget(deleted)), "delete")
        table.upsert([*table.changed(moved, region="region-0"), *inserted], **COMPACT_INDEX)
        table.spark.restore(kept)
    table.spark.delete_savepoint(kept)
    return deleted, [*moved, *(row["id"] for row in inserted)]


def rows_after_sparks_upsert(
    judge: HudiJudge, table: OperatedTable, key: str, copy: Path, row: Row | None = None
) -> int:
    """How many rows of a key there are after Spark upserted it, in a copy of the table. ``row``: None where
    the key has one.
    """
    shutil.copytree(table.table.path, copy)
    spark = SparkOperations(judge, copy, foreign_writer_options(str(copy)))
    spark.write(table._as_table(table.changed([key]) if row is None else [row]), "upsert")
    spark.close()
    return Counter(row["id"] for row in judge.snapshot(copy))[key]


def build_index_anew(table: OperatedTable) -> None:
    """As docs/hudi-beside.md says: without rows, since Hudi would find none that are in log files alone."""
    nothing = table._as_table([])
    table.spark.write(nothing, "upsert", **INDEX_OFF)
    assert not (table.table.path / RECORD_INDEX_FOLDER).exists()
    table.spark.write(nothing, "upsert")


def test_we_wait_while_a_restore_left_the_record_index_behind(
    judge: HudiJudge, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    with operated(judge, kafka, tmp_path / "ours", "merge_on_read", "ts") as table:
        deleted, others = restored(table)
        found = verify_table(LocalStorage(table.table.path), lambda _: None).findings
        assert {Kind.ROW_WITHOUT_ENTRY, Kind.ENTRY_ELSEWHERE, Kind.ENTRY_WITHOUT_ROW} <= found.counts.keys()
        assert rows_after_sparks_upsert(judge, table, deleted[0], tmp_path / "copy") == 2

        pipeline, above = table.table.pipeline, table.above()
        events = [Upsert(table.table.stream.row(key, above)) for key in (*deleted, *others)]
        table.table.send(events)
        pipeline.wait("a halt", lambda: "double keys" in (pipeline.status()["coordinator"]["halted"] or ""))
        pipeline.stop()
        build_index_anew(table)
        pipeline.start()
        pipeline.flush()
        table.model.apply(events)
        table.agrees()
        table.goes_on(table.after())
        table.agrees_with_everybody()


def restore_of_nothing(table: OperatedTable, **more: str) -> None:
    """To a savepoint of the newest commit, in which the index was compacted: Hudi builds it anew, of the rows
    as they stay.
    """
    table.touched = table.some(3)
    table.upsert(table.changed(table.touched), **COMPACT_INDEX)
    kept = table.newest()
    table.spark.savepoint(kept)
    table.spark.restore(kept, **more)
    table.spark.delete_savepoint(kept)

    storage = LocalStorage(table.table.path)
    timeline = load_timeline(storage)
    restore = timeline.completed(Action.RESTORE)[-1]
    assert decode_restored_instants(storage.read(instant_path(restore)), instant_path(restore)) == ()
    metadata = load_timeline(storage, METADATA_TABLE_ROOT)
    built = [str(each.completion) for each in metadata.completed() if is_bootstrap_instant(each.requested)]
    assert str(timeline.completion_time(kept)) < max(built) < str(restore.completion)


def test_a_restore_that_takes_nothing_back_stops_us_where_the_shards_change_alone(
    judge: HudiJudge, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    with operated(judge, kafka, tmp_path / "ours", "merge_on_read", "ts") as table:
        restore_of_nothing(table)
        table.goes_on(table.after())

        restore_of_nothing(table, **HUDIS_OWN_COUNTS)
        pipeline, above = table.table.pipeline, table.above()
        events = [Upsert(table.table.stream.row(key, above)) for key in table.some(6)]
        table.table.send(events)
        said = "has 10 shards, and Tidemark's topics are made for 4"
        pipeline.wait("a halt", lambda: said in (pipeline.status()["coordinator"]["halted"] or ""))
        pipeline.stop()
        with_ten = pipeline.write_config("ten.yaml", {"table": {"index": {"shards": 10}}})
        pipeline.start_process("coordinator", with_ten)
        assert pipeline.exit_code("coordinator") != 0
        assert said in pipeline.log("coordinator")

        build_index_anew(table)
        pipeline.start()
        pipeline.flush()
        table.model.apply(events)
        table.agrees()
        table.goes_on(table.after())
        table.agrees_with_everybody()
