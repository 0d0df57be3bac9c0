"""Compactions of column stats that Hudi 1.2.0 on Spark wrote: the new base files are those that Spark made of
the same log files, and hold what Spark reads.
"""

from __future__ import annotations

import io
from pathlib import Path

from tests.golden.test_spark_column_stats import FOLDER, SparkTable
from tidemark.hudi_format.hfile import HFileReader
from tidemark.hudi_format.metadata_table.partitions.column_stats import COLUMN_STATS
from tidemark.hudi_format.metadata_table.partitions.column_stats_codec import ColumnStats, decode_stats
from tidemark.hudi_format.metadata_table.partitions.partition import StoredEntries
from tidemark.hudi_format.metadata_table.validity import InstantValidity
from tidemark.hudi_format.storage.base import join_path
from tidemark.hudi_format.table_services.compaction_planning import plan_index_compaction
from tidemark.hudi_format.table_services.merging.bounds import MergeBounds, MergeCounts
from tidemark.hudi_format.table_services.merging.index_shard import merge_index_shard
from tidemark.hudi_format.table_services.operations import CompactionPlan, MergeOperation
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action, load_timeline

LATER = "20270101000000000"


def operations(table: SparkTable, instant: str) -> tuple[MergeOperation, ...]:
    """What a compaction at that instant merges, by what completed before it."""
    storage = table.storage
    files = {"column_stats": {info.name: info.size for info in storage.list(FOLDER)}}
    validity = InstantValidity(load_timeline(storage), load_timeline(storage, METADATA_TABLE_ROOT))
    plan = plan_index_compaction(validity, files, instant)
    assert isinstance(plan, CompactionPlan)
    return plan.operations


def merged(table: SparkTable, operation: MergeOperation, scratch: Path) -> tuple[HFileReader, MergeCounts]:
    sink = io.BytesIO()
    counts = merge_index_shard(table.storage, operation, LATER, sink, MergeBounds(0, scratch))
    return HFileReader.from_bytes(sink.getvalue(), "new.hfile"), counts


def records(reader: HFileReader) -> list[tuple[str, ColumnStats]]:
    content = reader.read_all()
    values = [decode_stats(value, reader.schema, reader.name) for value in content.values.to_pylist()]
    return list(zip(content.keys.to_pylist(), values, strict=True))


def test_our_base_files_have_the_records_of_spark_s_in_the_same_order(tmp_path: Path) -> None:
    table = SparkTable("cow", tmp_path / "table")
    compactions = load_timeline(table.storage, METADATA_TABLE_ROOT).completed(Action.COMPACTION)
    compared = 0
    for compaction in compactions:
        for operation in operations(table, compaction.requested):
            names = table.storage.names(FOLDER)
            made = [
                name for name in names if name.startswith(operation.file_id) and compaction.requested in name
            ]
            if not made:
                continue
            spark = HFileReader.open(table.storage, join_path(FOLDER, made[0]))
            ours, counts = merged(table, operation, tmp_path)
            # Spark fills in the meta field with the base file's name, which nobody reads.
            assert records(ours) == records(spark)
            assert counts.rows == spark.entry_count
            compared += spark.entry_count
    assert compared > 100


def test_a_compaction_of_now_has_what_spark_reads(tmp_path: Path) -> None:
    table = SparkTable("cow", tmp_path / "table")
    parts = []
    for operation in operations(table, LATER):
        assert operation.base_file is not None
        ours, counts = merged(table, operation, tmp_path)
        assert counts.deletes
        content = ours.read_all()
        parts.append(StoredEntries(content.keys, content.values, ours.schema, "new.hfile"))
    found = COLUMN_STATS.merge(parts)
    expected = COLUMN_STATS.merge(table.parts())
    assert found == expected
    assert found.keys() == table.expected["column_stats"].keys()
