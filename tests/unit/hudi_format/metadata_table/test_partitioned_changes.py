"""The changes of a shard of a partitioned record index after a time. Logs of our commits are known by their
names; of a group that a commit begins the first file alone tells nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.interop.partitioned_writer import PartitionedWriter
from tests.unit.table_files import new_partitioned_table, orders
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX_FOLDER
from tidemark.hudi_format.metadata_table.shard_changes import BEGINNING
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.model import ShardId
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT


@pytest.fixture
def writer(tmp_path: Path) -> PartitionedWriter:
    made = new_partitioned_table(tmp_path)
    made.shards = 1
    return made


def changes(
    writer: PartitionedWriter, after: str = BEGINNING, path: str = "eu"
) -> list[tuple[str, list[str]]] | None:
    found = MetadataTableSnapshot.load(writer.table.storage).shard(ShardId(0), path).changes_after(after)
    return None if found is None else [(instant, entries.keys.to_pylist()) for instant, entries in found]


def delete_log(writer: PartitionedWriter, instant: str, token: str) -> None:
    [path] = [
        info.path
        for info in writer.table.storage.list(RECORD_INDEX_FOLDER)
        if instant in info.name and info.name.endswith(token) and "-eu-" in info.name
    ]
    writer.table.storage.delete(path)


def test_our_logs_are_known_without_the_commits_metadata(
    writer: PartitionedWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = writer.commit_rows(orders(("k1", "eu", 1)))
    second = writer.commit_rows(orders(("k2", "eu", 2)))
    third = writer.commit_rows(orders(("k3", "eu", 2), ("k1", "us", 1)))
    storage, read = writer.table.storage, type(writer.table.storage).read
    asked: list[str] = []

    def noted(self: Any, path: str) -> bytes:
        asked.append(path)
        return read(self, path)

    snapshot = MetadataTableSnapshot.load(storage)
    monkeypatch.setattr(type(storage), "read", noted)
    found = snapshot.shard(ShardId(0), "eu").changes_after(BEGINNING)
    assert found is not None
    assert [instant for instant, _ in found] == [first, second, third]
    assert not [path for path in asked if path.startswith(f"{METADATA_TABLE_ROOT}/timeline")]


def test_a_group_whose_first_commit_had_no_entries_for_it_lacks_no_log(writer: PartitionedWriter) -> None:
    writer.shards = 16
    writer.commit_rows(orders(("k1", "eu", 1)))
    snapshot = MetadataTableSnapshot.load(writer.table.storage)
    found = [snapshot.shard(ShardId(number), "eu").changes_after(BEGINNING) for number in range(16)]
    assert sum(1 for changes in found if changes is not None and list(changes)) == 1
    assert None not in found


def test_a_log_of_entries_that_a_clean_took_is_missed_though_the_first_file_is_there(
    writer: PartitionedWriter,
) -> None:
    first = writer.commit_rows(orders(("k1", "eu", 1)))
    second = writer.commit_rows(orders(("k2", "eu", 2)))
    assert changes(writer) == [(first, ["k1"]), (second, ["k2"])]
    delete_log(writer, first, "0-0-1")
    assert changes(writer) is None
