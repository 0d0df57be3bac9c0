"""What every partition of the metadata table has to do, whatever its entries are."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from testing.memory_storage import InMemoryStorage
from tests.unit.hudi_format.metadata_tables import entries, plain
from tidemark.hudi_format.column_ranges import ColumnRange, StatType, ValueType
from tidemark.hudi_format.errors import HudiFormatError, UnsupportedTableError
from tidemark.hudi_format.file_group.names import LogFileName
from tidemark.hudi_format.metadata_table.log_records import log_entries
from tidemark.hudi_format.metadata_table.partitions import PARTITIONS, partition_named
from tidemark.hudi_format.metadata_table.partitions.column_stats import (
    COLUMN_STATS,
    StatsChanges,
    file_keys,
    file_records,
)
from tidemark.hudi_format.metadata_table.partitions.files import FILES, FileChange, ListedFiles
from tidemark.hudi_format.metadata_table.partitions.partition import MetadataPartition, StoredEntries
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX, record_index_log
from tidemark.hudi_format.metadata_table.partitions.secondary_index import (
    SecondaryChanges,
    SecondaryIndexPartition,
)
from tidemark.hudi_format.metadata_table.partitions.secondary_index_codec import (
    ENTRY_VALUE,
    composite_keys,
    entry_values,
)
from tidemark.hudi_format.metadata_table.record_schema import encode_record
from tidemark.hudi_format.model import ShardId
from tidemark.hudi_format.publication.tickets import Ticket
from tidemark.hudi_format.storage.base import name_of, parent_of

FIRST, SECOND = "20260101000000000", "20260101000000001"
ADDED = [FileChange("p", "a", 10), FileChange("p", "b", 5)]
REMOVED = [FileChange("p", "a", None), FileChange("p", "b", 7)]
STATS = {
    file: file_records("p", file, [ColumnRange("c", StatType(ValueType.INT), low, 9, 3, 0)])
    for low, file in enumerate("ab")
}
CITY = SecondaryIndexPartition("secondary_index_idx_city")


def cities(*pairs: tuple[str | None, str]) -> pa.StringArray:
    texts, keys = zip(*pairs, strict=True)
    return composite_keys(pa.array(texts, pa.string()), pa.array(keys, pa.string()))


COMMITS: list[tuple[MetadataPartition[Any, Any], list[Any]]] = [
    (FILES, [ADDED, REMOVED]),
    (RECORD_INDEX, [entries({"k1": 1, "k2": 1}), entries({"k1": None, "k2": 2, "k3": 3})]),
    (
        COLUMN_STATS,
        [
            StatsChanges(STATS["a"], file_keys("p", "c", ["c"])),
            StatsChanges(STATS["b"], file_keys("p", "a", ["c"])),
        ],
    ),
    (
        CITY,
        [
            SecondaryChanges(cities(("rome", "k2"), (None, "k1")), cities(("oslo", "k3"))),
            SecondaryChanges(cities(("oslo", "k3")), cities((None, "k1"))),
        ],
    ),
]
NAMES = [partition.name for partition, _ in COMMITS]


def merged(partition: MetadataPartition[Any, Any], commits: list[Any]) -> Any:
    """What the log files of these commits add up to, after they were stored."""
    storage, paths = InMemoryStorage(), []
    for instant, changes in zip((FIRST, SECOND), commits, strict=False):
        log, data = partition.log_file(changes, instant, ShardId(0))
        assert log.size == len(data)
        storage.create(log.path, data)
        paths.append(log.path)
    names = [name_of(path) for path in paths]
    return partition.merge(log_entries(storage, parent_of(paths[0]), names, lambda _: True))


def content(merged_entries: Any) -> Any:
    if isinstance(merged_entries, dict):
        return {stats.file_name: stats.range.low for stats in merged_entries.values()}
    if isinstance(merged_entries, (ListedFiles, frozenset)):
        return sorted(merged_entries)
    return plain(merged_entries)


def test_the_cases_are_all_partitions() -> None:
    assert [partition for partition, _ in COMMITS] == [*PARTITIONS, CITY]
    assert NAMES == ["files", "record_index", "column_stats", "secondary_index_idx_city"]
    assert [partition_named(name) for name in NAMES] == [*PARTITIONS, CITY]
    assert partition_named("bloom_filters") is None


@pytest.mark.parametrize(("partition", "commits"), COMMITS, ids=NAMES)
def test_log_files_merge_to_what_their_commits_changed(
    partition: MetadataPartition[Any, Any], commits: list[Any]
) -> None:
    expected = {
        FILES: [[("p", "a", 10), ("p", "b", 5)], [("p", "b", 7)]],
        RECORD_INDEX: [{"k1": 1, "k2": 1}, {"k1": None, "k2": 2, "k3": 3}],
        COLUMN_STATS: [{"a": 0}, {"b": 1}],
        CITY: [["\x00$k1", "rome$k2"], ["oslo$k3", "rome$k2"]],
    }[partition]
    assert [content(merged(partition, commits[:count])) for count in (1, 2)] == expected


def test_a_delete_block_removes_keys_from_what_was_merged_before() -> None:
    deleted = StoredEntries(pa.array(["p"]), None, "", "x")
    storage = InMemoryStorage()
    log, data = FILES.log_file(ADDED, FIRST, ShardId(0))
    storage.create(log.path, data)
    stored = list(log_entries(storage, parent_of(log.path), [log.name], lambda _: True))
    assert dict(FILES.merge(stored).files("p")) == {"a": 10, "b": 5}
    assert FILES.merge([*stored, deleted]).files("p") == {}
    assert dict(FILES.merge([deleted, *stored]).files("p")) == {"a": 10, "b": 5}


@pytest.mark.parametrize(("partition", "commits"), COMMITS, ids=NAMES)
def test_a_log_file_is_named_after_instant_and_shard(
    partition: MetadataPartition[Any, Any], commits: list[Any]
) -> None:
    shard = ShardId(partition.shards_max - 1)
    log, data = partition.log_file(commits[0], FIRST, shard)
    assert partition.log_file(commits[0], FIRST, shard) == (log, data)
    parsed = LogFileName.parse(log.name)
    assert parsed == LogFileName(partition.file_id(shard), FIRST, 1, f"{shard}-0-0")
    assert log.path == f".hoodie/metadata/{partition.name}/{log.name}"


@pytest.mark.parametrize("partition", [*PARTITIONS, CITY], ids=NAMES)
def test_a_shard_that_the_partition_cannot_have_is_refused(partition: MetadataPartition[Any, Any]) -> None:
    for shard in (-1, partition.shards_max):
        with pytest.raises(UnsupportedTableError, match=f"(shard|group) {shard}"):
            partition.file_id(ShardId(shard))


def test_a_prepared_log_file_has_its_ticket_until_it_is_visible() -> None:
    log = record_index_log(FIRST, ShardId(2), 100, 5, 1)
    hidden = Ticket(log.path, 100, "ab", "upload-1")
    assert log.prepared(hidden).ticket == hidden
    earlier = log.prepared(Ticket(log.path, 98))
    assert (earlier.ticket, earlier.size, earlier.path) == (None, 98, log.path)


def test_a_secondary_index_takes_each_entry_of_a_commit_once() -> None:
    rome, none = cities(("rome", "k")), pa.array([], pa.string())
    with pytest.raises(HudiFormatError, match="put and deleted"):
        CITY.log_file(SecondaryChanges(rome, rome), FIRST, ShardId(0))
    with pytest.raises(HudiFormatError, match="leave it out"):
        CITY.log_file(SecondaryChanges(none, none), FIRST, ShardId(0))
    assert CITY.file_id(ShardId(7)) == "secondary-index-idx-city-0007-0"


def test_an_entry_of_a_secondary_index_may_be_stored_as_deleted() -> None:
    deleted = encode_record({"key": "", "type": 7, "SecondaryIndexMetadata": {"isDeleted": True}})
    parts = [
        StoredEntries(cities(("rome", "k1"), ("rome", "k2")), entry_values(2), "", "x"),
        StoredEntries(cities(("rome", "k1")), pa.array([deleted], pa.binary()), "", "y"),
    ]
    assert CITY.merge(parts) == {"rome$k2"}
    assert CITY.base_records(parts) == {"rome$k2": ENTRY_VALUE}
