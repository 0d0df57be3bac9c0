"""`tidemark verify` on tables that Hudi 1.2.0 on Spark wrote, against what Spark itself read of them.

One of them is damaged, by Hudi itself: two keys that UTF-8 and UTF-16 sort differently were written a second
time. Spark's own reading has those rows twice; verify must say so, and nothing else.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.golden.test_spark_partitioned_index import SparkTable as PartitionedTable
from tests.golden.test_spark_record_index import SparkTable
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.table_verification.findings import Kind
from tidemark.table_verification.verify import verify_table


def test_sound_table_agrees(tmp_path: Path) -> None:
    table = SparkTable("cow_global", tmp_path)
    result = verify_table(LocalStorage(tmp_path), lambda _: None)
    assert result.agrees, result.findings
    assert result.rows == len(table.expected["rows"])
    assert result.entries == len(table.expected["record_index"])


def test_keys_that_spark_reads_twice_are_found_and_no_others(tmp_path: Path) -> None:
    table = SparkTable("mor_global", tmp_path)
    result = verify_table(LocalStorage(tmp_path), lambda _: None)
    times = Counter(key for key, _, _ in table.expected["rows"])
    doubled = {key for key, count in times.items() if count > 1}
    assert len(doubled) == 2
    # One row of each is where the index says; the other is in the wrong place.
    assert result.findings.counts == {Kind.KEY_TWICE: 2, Kind.ENTRY_ELSEWHERE: 2}
    for examples in result.findings.examples.values():
        assert {each.partition(": ")[0] for each in examples} == doubled
    assert result.rows == len(table.expected["rows"])
    assert result.entries == len(table.expected["record_index"])


def test_a_partitioned_index_agrees_row_by_row(tmp_path: Path) -> None:
    table = PartitionedTable("mor_partitioned", tmp_path)
    result = verify_table(LocalStorage(tmp_path), lambda _: None)
    assert result.agrees, result.findings
    assert result.rows == len(table.expected["rows"])
    assert result.entries == len(table.expected["record_index"])
    assert result.shards == sum(table.shards.values())
    assert result.state is None
