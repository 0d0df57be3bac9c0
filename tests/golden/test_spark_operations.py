"""Tables after operations that Tidemark itself does not do, written by Hudi 1.2.0 on Spark
(recipes/spark_operation_tables.py): we read what Spark reads.
"""

from __future__ import annotations

import json
import uuid
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tidemark.hudi_format.file_group.slice_reader import read_slice
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.metadata_table import MetadataTableSnapshot
from tidemark.hudi_format.metadata_table.folded_entries import FoldedEntries
from tidemark.hudi_format.metadata_table.index_history import IndexHistory, newest_index_build
from tidemark.hudi_format.model import ShardId
from tidemark.hudi_format.ordering import table_ordering
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage import LocalStorage
from tidemark.hudi_format.table_config import read_table_config
from tidemark.hudi_format.table_view import TableView
from tidemark.hudi_format.timeline import Action
from tidemark.hudi_format.timeline.avro_records import SCHEMA_KEY, decode_commit_metadata
from tidemark.table_verification.findings import Kind
from tidemark.table_verification.verify import verify_table

TABLES = Path(__file__).parent / "operations"
ALL = (
    "restored",
    "restored_to_start",
    "clustered",
    "log_compacted",
    "partial_event_time",
    "partial_commit_time",
)


class SparkTable:
    """One unpacked table, and what Spark said about it."""

    def __init__(self, name: str, folder: Path) -> None:
        with zipfile.ZipFile(TABLES / f"{name}.zip") as archive:
            archive.extractall(folder)
        self.expected: dict[str, Any] = json.loads((TABLES / f"{name}.expected.json").read_text("ascii"))
        self.storage = LocalStorage(str(folder))
        self.snapshot = MetadataTableSnapshot.load(self.storage)
        self.view = TableView.of(self.storage, self.snapshot.data_timeline)

    def slices(self) -> list[FileSlice]:
        return self.view.slices(self.snapshot.files.names())

    def rows(self) -> list[list[Any]]:
        config = read_table_config(self.storage)
        schema = TableSchema.from_avro(self._schema(), config.name)
        mode, ordering = table_ordering(config, schema)
        columns = self.expected["columns"]
        tables = [
            read_slice(self.storage, each, schema, mode, ordering, [*columns]) for each in self.slices()
        ]
        return sorted(list(row.values()) for row in pa.concat_tables(tables).to_pylist())

    def index(self) -> list[tuple[str, str, str]]:
        found = []
        for number in range(self.snapshot.num_shards):
            entries = self.snapshot.shard(ShardId(number)).entries()
            for key, at in zip(entries.keys.to_pylist(), entries.location_ids.tolist(), strict=True):
                found.append((key, *entries.locations[at]))
        return sorted(found)

    def expected_index(self) -> list[tuple[str, str, str]]:
        return sorted(
            (key, path, f"{uuid.UUID(int=(high % 2**64) << 64 | low % 2**64)}-{number}")
            for key, path, high, low, number, _ in self.expected["record_index"]
        )

    def _schema(self) -> str:
        for instant in reversed(self.view.timeline.completed(Action.DELTA_COMMIT, Action.COMMIT)):
            path = f".hoodie/timeline/{instant.file_name}"
            text = decode_commit_metadata(self.storage.read(path), path).extra_metadata.get(SCHEMA_KEY)
            if text:
                return text
        raise AssertionError("no commit carries a schema")


@pytest.mark.parametrize("name", ALL)
def test_we_read_the_rows_and_the_index_that_spark_reads(name: str, tmp_path: Path) -> None:
    table = SparkTable(name, tmp_path)
    assert table.rows() == table.expected["rows"]
    assert table.index() == table.expected_index()


@pytest.mark.parametrize("name", ALL)
def test_verify_finds_what_is_wrong_and_nothing_else(name: str, tmp_path: Path) -> None:
    table = SparkTable(name, tmp_path)
    result = verify_table(LocalStorage(tmp_path), lambda _: None)
    live = {row[0] for row in table.expected["rows"]}
    left_over = [key for key, _, _ in table.expected_index() if key not in live]
    expected = {Kind.ENTRY_WITHOUT_ROW: len(left_over)} if left_over else {}
    assert result.findings.counts == expected, result.findings
    assert (len(left_over) > 0) == (name == "restored"), "Hudi's restore leaves the index as it was"


def test_replaced_and_planned_groups_of_a_table_that_spark_clustered(tmp_path: Path) -> None:
    view = SparkTable("clustered", tmp_path).view
    assert {partition for partition, _ in view.replaced} == {"eu", "us", "asia"}
    assert {partition for partition, _ in view.clustering} == {"eu"}
    assert not view.replaced.keys() & view.clustering.keys()
    assert not any(map(view.takes_inserts, [*view.replaced, *view.clustering]))


def test_a_log_compaction_of_spark_took_no_entry_of_a_row(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One of its log files deletes a key, and no row moved. The check reads what its commit wrote."""
    table = SparkTable("log_compacted", tmp_path)
    data, metadata = table.snapshot.data_timeline, table.snapshot.metadata_timeline
    folded = data.completed(Action.LOG_COMPACTION)
    history = IndexHistory(table.storage, metadata, newest_index_build(table.storage, metadata))
    assert folded
    assert all(history.changed_by(each.requested) is not None for each in folded)
    FoldedEntries(table.storage).check(data, metadata)
    assert not caplog.records
