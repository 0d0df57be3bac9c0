"""Another engine's delete partition or insert overwrite in a table whose record index is divided by data
partition: a group of the index begins with a log file of the commit that first wrote the partition.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.partitioned_writer import PartitionedWriter
from tests.replaced_groups import replace_commit
from tests.unit.table_files import new_partitioned_table, orders
from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX_FOLDER
from tidemark.hudi_format.metadata_table.replaced_entries import ReplacedEntries
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, load_timeline


@pytest.fixture
def writer(tmp_path: Path) -> PartitionedWriter:
    """`k1` has a row in each of two partitions."""
    made = new_partitioned_table(tmp_path / "table")
    made.commit_rows(orders(("k1", "eu", 1), ("k2", "eu", 1), ("k1", "us", 1)))
    return made


def replaced(writer: PartitionedWriter, path: str, keys: list[str], is_right: bool = True) -> str:
    """A replacecommit that takes the entries of these keys in the partition, and replaces its file group (or
    another one); returns its instant.
    """
    storage, is_there = writer.table.storage, _groups(writer, path)
    instant = writer.commit_rows(orders(), [(path, key) for key in keys])
    commit = load_timeline(storage).find(instant)
    assert commit is not None
    folder = ".hoodie/timeline"
    storage.delete(f"{folder}/{commit.file_name}")
    for suffix in ("requested", "inflight"):
        storage.delete(f"{folder}/{instant}.deltacommit.{suffix}")
        storage.create(f"{folder}/{instant}.replacecommit.{suffix}", b"")
    content = replace_commit({path: is_there if is_right else ["another"]})
    storage.create(f"{folder}/{instant}_{commit.completion}.replacecommit", content)
    return instant


def _groups(writer: PartitionedWriter, path: str) -> list[str]:
    return [each.file_id for each in writer.table.slices() if each.partition_path == path]


def check(storage: Storage) -> None:
    ReplacedEntries(storage).check(load_timeline(storage), load_timeline(storage, METADATA_TABLE_ROOT))


@pytest.mark.parametrize("keys", [["k1", "k2"], ["k1"]], ids=["both groups of the index", "one"])
def test_entries_of_a_partition_that_was_replaced_may_go(writer: PartitionedWriter, keys: list[str]) -> None:
    replaced(writer, "eu", keys)
    check(writer.table.storage)


def test_an_entry_that_named_a_group_which_stayed_is_missed(writer: PartitionedWriter) -> None:
    instant = replaced(writer, "eu", ["k1"], is_right=False)
    with pytest.raises(UnsupportedTableError, match=rf"{instant} took .* of 1 keys .*'k1'"):
        check(writer.table.storage)


def first_of_group(name: str) -> bool:
    return ".log.1_0-0-0" in name


def of_entries(name: str) -> bool:
    return ".log." in name and not first_of_group(name)


@pytest.mark.parametrize("is_gone", [first_of_group, of_entries])
def test_where_files_from_before_it_are_gone_nobody_can_tell(
    writer: PartitionedWriter, is_gone: Callable[[str], bool]
) -> None:
    storage = writer.table.storage
    before = [name for name in storage.names(RECORD_INDEX_FOLDER) if is_gone(name)]
    assert before
    replaced(writer, "eu", ["k1"])
    for name in before:
        storage.delete(f"{RECORD_INDEX_FOLDER}/{name}")
    with pytest.raises(UnsupportedTableError, match="cannot be told any more"):
        check(storage)
