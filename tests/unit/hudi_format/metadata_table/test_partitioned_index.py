"""The record index that is divided by data partition, against plain models."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testing.memory_storage import InMemoryStorage
from tests.unit.hudi_format.doubles import ManualClock
from tests.unit.hudi_format.metadata_tables import file_id
from tidemark.hudi_format.commit.create_table import create_table
from tidemark.hudi_format.commit.instants import complete, create_inflight, create_requested
from tidemark.hudi_format.commit.rollback import rollback_pending
from tidemark.hudi_format.errors import CorruptFileError, HudiFormatError, UnsupportedTableError
from tidemark.hudi_format.index_definitions import IndexKind
from tidemark.hudi_format.metadata_table import MetadataTableSnapshot, RecordIndexEntries
from tidemark.hudi_format.metadata_table.bootstrap import bootstrap_metadata_table
from tidemark.hudi_format.metadata_table.delta_commit import (
    begin_delta_commit,
    complete_delta_commit,
    delta_commit_metadata,
    publish_files_log,
    publish_log,
)
from tidemark.hudi_format.metadata_table.partitioned_index import (
    NO_GROUP,
    IndexGroup,
    PartitionedEntries,
    PartitionedLayout,
    commit_logs,
    find,
    initial_logs,
    layout_of,
)
from tidemark.hudi_format.metadata_table.partitions.partition import METADATA_TABLE_PATH
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX_FOLDER
from tidemark.hudi_format.model import InstantGenerator, RecordLocation, ShardId
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.hudi_format.table_config import TableDefinition, TableType
from tidemark.hudi_format.timeline import Action
from tidemark.hudi_format.timeline.avro_records import CommitMetadata, encode_commit_metadata

INSTANT = "20260101000000000"
PARTITIONS = ("", "eu", "us/ca", "a_b-c d", "é=%")
KEYS = ("a", "b", "k1", "k10", "polygenelubricants", "\U0001f600")
Identity = tuple[str, str]
CHANGES = st.dictionaries(
    st.tuples(st.sampled_from(PARTITIONS), st.sampled_from(KEYS)), st.none() | st.integers(0, 3), max_size=12
)


def entries_of(changes: Mapping[Identity, int | None]) -> PartitionedEntries:
    """(partition, key) -> number of the file group of its row from now on, None = deleted."""
    partitions = sorted({path for path, _ in changes})
    places = sorted({(path, number) for (path, _), number in changes.items() if number is not None})
    ids = [-1 if number is None else places.index((path, number)) for (path, _), number in changes.items()]
    entries = RecordIndexEntries(
        pa.array([key for _, key in changes], pa.string()),
        np.array(ids, np.int32),
        [RecordLocation(path, file_id(number)) for path, number in places],
        np.zeros(len(ids), np.int64),
    )
    return PartitionedEntries(
        entries, np.array([partitions.index(path) for path, _ in changes], np.int32), partitions
    )


def plain(found: PartitionedEntries) -> list[tuple[Identity, int | None]]:
    numbers = [int(place.file_id.split("-")[4]) for place in found.entries.locations]
    paths = [found.partitions[number] for number in found.partition_ids]
    return [
        ((path, key), None if number < 0 else numbers[number])
        for path, key, number in zip(
            paths, found.entries.keys.to_pylist(), found.entries.location_ids.tolist(), strict=True
        )
    ]


class PartitionedTable:
    """A table in memory with a partitioned record index. `live` is what its commits add up to."""

    def __init__(self) -> None:
        self.storage = InMemoryStorage()
        definition = TableDefinition(
            name="t", table_type=TableType.MERGE_ON_READ, record_key_fields=("id",), partition_fields=("p",)
        )
        create_table(self.storage, definition)
        self.times = InstantGenerator(ManualClock())
        bootstrap_metadata_table(self.storage, 0, self.times, kind=IndexKind.PARTITIONED)
        self.live: dict[Identity, int] = {}

    def commit(self, changes: Mapping[Identity, int | None], shards: int, is_completed: bool = True) -> str:
        """New partitions get `shards` groups each. Returns the instant."""
        by, instant = Unfenced(self.storage), self.times.next()
        data = create_inflight(by, create_requested(by, instant, Action.DELTA_COMMIT))
        before = layout_of(MetadataTableSnapshot.load(self.storage))
        layout = before.begun({path for path, _ in changes}, shards)
        logs = initial_logs(layout.groups_beyond(before), instant)
        logs += commit_logs(entries_of(changes), layout, instant)
        inflight = begin_delta_commit(by, instant)
        for log, content in logs:
            publish_log(by, log, content)
        stats = [log for log, _ in logs] + [publish_files_log(by, instant, [])]
        complete_delta_commit(by, inflight, self.times.next(), delta_commit_metadata(instant, stats))
        if not is_completed:
            return instant
        complete(by, data, self.times.next(), encode_commit_metadata(CommitMetadata()))
        self.live |= {row: number for row, number in changes.items() if number is not None}
        for row in [row for row, number in changes.items() if number is None]:
            self.live.pop(row, None)
        return instant

    def build_anew(self, rows: Mapping[Identity, int], shards: int) -> None:
        """As another engine does that deletes the metadata table: the new index has these rows, in so many
        groups for each partition.
        """
        self.storage.delete_tree(METADATA_TABLE_PATH)
        empty = PartitionedTable().storage
        for info in empty.walk(METADATA_TABLE_PATH):
            self.storage.create(info.path, empty.read(info.path))
        self.live.clear()
        self.commit(rows, shards)

    def content(self) -> dict[Identity, int]:
        """What look-ups of all rows find, proven against the whole shards."""
        snapshot = MetadataTableSnapshot.load(self.storage)
        rows = [(number, key) for number in range(len(PARTITIONS)) for key in KEYS]
        answer = find(
            snapshot,
            pa.array([key for _, key in rows]),
            np.array([number for number, _ in rows], np.int32),
            PARTITIONS,
        )
        found = {
            (PARTITIONS[number], key): answer.locations[at]
            for (number, key), at, there in zip(rows, answer.location_ids, answer.found, strict=True)
            if there
        }
        for group in layout_of(snapshot).groups():
            whole = snapshot.shard(group.shard, group.partition_path).entries()
            for key, at in zip(whole.keys.to_pylist(), whole.location_ids, strict=True):
                assert found.pop((group.partition_path, key)) == whole.locations[at]
                found[group.partition_path, f"checked {key}"] = whole.locations[at]
        assert all(key.startswith("checked ") for _, key in found)
        assert all(path == place.partition_path for (path, _), place in found.items())
        return {
            (path, key.removeprefix("checked ")): int(place.file_id.split("-")[4])
            for (path, key), place in found.items()
        }


@settings(deadline=None, max_examples=15)
@given(st.lists(st.tuples(CHANGES.filter(bool), st.integers(1, 4)), max_size=4))
def test_the_index_is_what_the_commits_add_up_to(
    commits: list[tuple[dict[Identity, int | None], int]],
) -> None:
    table = PartitionedTable()
    shards: dict[str, int] = {}
    for changes, new in commits:
        table.commit(changes, new)
        shards |= {path: new for path, _ in changes if path not in shards}
    assert table.content() == table.live
    assert layout_of(MetadataTableSnapshot.load(table.storage)).shards == shards


def test_groups_of_an_instant_that_did_not_complete_are_no_groups_and_go_with_its_rollback() -> None:
    table = PartitionedTable()
    table.commit({("eu", "a"): 1}, 2)
    names = table.storage.names(RECORD_INDEX_FOLDER)
    pending = table.commit({("us/ca", "a"): 2, ("eu", "a"): 3}, 3, is_completed=False)
    assert len(table.storage.names(RECORD_INDEX_FOLDER)) == len(names) + 3 + 2
    assert layout_of(MetadataTableSnapshot.load(table.storage)).shards == {"eu": 2}
    assert table.content() == {("eu", "a"): 1}
    rollback_pending(Unfenced(table.storage), pending, table.times)
    assert table.storage.names(RECORD_INDEX_FOLDER) == names
    table.commit({("us/ca", "a"): 2}, 1)
    assert table.content() == {("eu", "a"): 1, ("us/ca", "a"): 2}


@given(st.lists(CHANGES, max_size=4))
def test_of_several_entries_of_a_row_the_newest_counts(commits: list[dict[Identity, int | None]]) -> None:
    expected: dict[Identity, int | None] = {}
    for changes in commits:
        expected |= changes
    merged = PartitionedEntries.newest_wins([entries_of(changes) for changes in commits])
    rows = plain(merged)
    assert (dict(rows), len(rows)) == (expected, len(expected))
    live = {row: number for row, number in expected.items() if number is not None}
    assert dict(plain(merged.live())) == live


@given(CHANGES, st.dictionaries(st.sampled_from(PARTITIONS), st.integers(1, 5)), st.integers(1, 5))
def test_a_row_is_in_the_group_of_its_partition_and_key(
    changes: dict[Identity, int | None], present: dict[str, int], new: int
) -> None:
    layout = PartitionedLayout(present).begun({path for path, _ in changes}, new)
    divided = entries_of(changes).by_group(layout)
    assert list(divided) == sorted(divided)
    found: dict[Identity, int | None] = {}
    for group, entries in divided.items():
        count = present.get(group.partition_path, new)
        assert set(record_index_shard(entries.keys, count).tolist()) == {group.shard}
        ids = np.zeros(len(entries), np.int32)
        found |= dict(plain(PartitionedEntries(entries, ids, [group.partition_path])))
    assert found == changes


def test_the_example_of_the_docstring() -> None:
    ids = ["record-index-eu-0001-0", *(f"record-index-us%2Fca-{n:04d}-0" for n in range(3))]
    layout = PartitionedLayout.of_file_ids([*ids, "record-index-eu-0000-0", ids[0]])
    assert layout.shards == {"eu": 2, "us/ca": 3}
    keys = pa.array(["k1"] * 3)
    assert layout.shards_of(keys, np.arange(3, dtype=np.int32), ["eu", "us/ca", "asia"]).tolist() == [
        0,
        0,
        NO_GROUP,
    ]
    begun = layout.begun(["eu", "asia"], 1)
    assert begun.groups_beyond(layout) == [IndexGroup("asia", ShardId(0))]
    assert [group.file_id for group in layout.groups()] == sorted({*ids, "record-index-eu-0000-0"})


def test_files_of_a_commit_that_begins_a_partition_have_names_of_their_own() -> None:
    layout = PartitionedLayout({}).begun(["eu"], 2)
    logs = initial_logs(layout.groups(), INSTANT)
    logs += commit_logs(entries_of({("eu", "k1"): 1, ("eu", "a"): None}), layout, INSTANT)
    assert [(log.name, log.size == len(data), log.upserts, log.deletes) for log, data in logs] == [
        (f".record-index-eu-0000-0_{INSTANT}.log.1_0-0-0", True, 0, 0),
        (f".record-index-eu-0001-0_{INSTANT}.log.1_0-0-0", True, 0, 0),
        (f".record-index-eu-0000-0_{INSTANT}.log.1_0-0-1", True, 1, 0),
        (f".record-index-eu-0001-0_{INSTANT}.log.1_1-0-1", True, 0, 1),
    ]
    assert [len(data) for _, data in logs[:2]] == [80, 80]


def test_what_cannot_be_a_layout_is_refused() -> None:
    with pytest.raises(UnsupportedTableError):
        PartitionedLayout.of_file_ids(["record-index-0000-0"])
    with pytest.raises(CorruptFileError, match="number 1 is not among them"):
        PartitionedLayout.of_file_ids(["record-index-eu-0000-0", "record-index-eu-0002-0"])
    with pytest.raises(UnsupportedTableError, match=r"'v1\.0'"):
        PartitionedLayout({}).begun(["v1.0"], 1)
    for shards in (0, 10_001):
        with pytest.raises(UnsupportedTableError):
            PartitionedLayout({}).begun(["eu"], shards)


def test_entries_that_belong_nowhere_are_refused() -> None:
    changes = entries_of({("eu", "a"): 1, ("us", "a"): 2})
    with pytest.raises(HudiFormatError, match="'us', which has no file groups"):
        changes.by_group(PartitionedLayout({"eu": 1}))
    swapped = PartitionedEntries(changes.entries, changes.partition_ids[::-1].copy(), changes.partitions)
    with pytest.raises(HudiFormatError, match="of partition 'us' names"):
        swapped.by_group(PartitionedLayout({"eu": 1, "us": 1}))
    with pytest.raises(HudiFormatError, match="2 entries, 1 data partitions"):
        PartitionedEntries(changes.entries, changes.partition_ids[:1], changes.partitions)


def test_entries_of_partitions_become_one() -> None:
    eu, us = (entries_of({(path, "a"): number}).entries for path, number in (("eu", 1), ("us", 2)))
    assert plain(PartitionedEntries.of_partitions({"eu": eu, "us": us})) == [
        (("eu", "a"), 1),
        (("us", "a"), 2),
    ]
    assert plain(PartitionedEntries.of_partitions({})) == []
