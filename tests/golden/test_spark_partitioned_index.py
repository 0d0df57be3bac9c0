"""Partitioned record indexes that Hudi 1.2.0 on Spark wrote (recipes/spark_record_index_tables.py): the
groups, who is in which, the files that begin one.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest

from tidemark.hudi_format.file_group.names import LogFileName
from tidemark.hudi_format.index_definitions import IndexKind, read_index_definitions, record_index_kind
from tidemark.hudi_format.metadata_table import MetadataTableSnapshot
from tidemark.hudi_format.metadata_table.partitioned_index import (
    IndexGroup,
    PartitionedLayout,
    find,
    initial_logs,
    layout_of,
)
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX_FOLDER
from tidemark.hudi_format.storage import LocalStorage

TABLES: Final = Path(__file__).parent / "record_index"
SHARDS: Final = {
    "mor_partitioned": {"asia": 1, "eu": 1, "us": 1},
    "partitioned_shards": {"a_b-c d": 3, "eu": 3, "us/ca": 5},
}
"""Table -> data partition -> its groups."""


class SparkTable:
    """One unpacked table, and what Spark said about it."""

    def __init__(self, name: str, folder: Path) -> None:
        with zipfile.ZipFile(TABLES / f"{name}.zip") as archive:
            archive.extractall(folder)
        self.shards = SHARDS[name]
        self.expected: dict[str, Any] = json.loads((TABLES / f"{name}.expected.json").read_text("ascii"))
        self.storage = LocalStorage(str(folder))
        self.snapshot = MetadataTableSnapshot.load(self.storage)


@pytest.fixture(scope="module", params=list(SHARDS))
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SparkTable:
    return SparkTable(request.param, tmp_path_factory.mktemp(request.param))


def test_each_partition_has_the_groups_with_which_it_began(table: SparkTable) -> None:
    assert record_index_kind(read_index_definitions(table.storage)) is IndexKind.PARTITIONED
    assert layout_of(table.snapshot).shards == table.shards


def test_every_row_is_found_where_spark_says_and_no_other(table: SparkTable) -> None:
    partitions = [*table.shards, "no such partition"]
    asked = [
        (number, key) for number in range(len(partitions)) for key in sorted(table.expected["java_hash"])
    ]
    answer = find(
        table.snapshot,
        pa.array([key for _, key in asked]),
        np.array([number for number, _ in asked], np.int32),
        partitions,
    )
    found = {
        (key, partitions[number], answer.locations[at].partition_path, ms)
        for (number, key), at, ms, there in zip(
            asked, answer.location_ids, answer.instant_ms.tolist(), answer.found, strict=True
        )
        if there
    }
    assert found == {(key, path, path, time) for key, path, *_, time in table.expected["record_index"]}
    assert {(key, path) for key, path, *_ in found} == {
        (key, path) for key, path, _ in table.expected["rows"]
    }


def test_the_groups_hold_their_own_keys_and_nothing_else(table: SparkTable) -> None:
    layout = layout_of(table.snapshot)
    rows = 0
    for group in layout.groups():
        entries = table.snapshot.shard(group.shard, group.partition_path).entries()
        partition_ids = np.zeros(len(entries), np.int32)
        shards = layout.shards_of(entries.keys, partition_ids, [group.partition_path])
        assert set(shards.tolist()) <= {group.shard}
        rows += len(entries)
    assert rows == len(table.expected["record_index"])


def test_the_files_with_which_groups_begin_are_ours_byte_for_byte(table: SparkTable) -> None:
    group_of = {group.file_id: group for group in PartitionedLayout(table.shards).groups()}
    begun: dict[str, list[IndexGroup]] = {}
    stored = {}
    for name in table.storage.names(RECORD_INDEX_FOLDER):
        log = LogFileName.parse(name)
        content = table.storage.read(f"{RECORD_INDEX_FOLDER}/{name}")
        if log is not None and len(content) == 80:
            stored[name] = content
            begun.setdefault(log.instant, []).append(group_of[log.file_id])
    logs = [log for instant, groups in begun.items() for log in initial_logs(groups, instant)]
    assert {log.name: data for log, data in logs} == stored
    assert len(stored) == len(group_of)
