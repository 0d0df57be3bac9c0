"""Snapshots of the metadata table: what counts, what does not, what a reader is told that cannot know."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testing.memory_storage import InMemoryStorage
from tests.unit.hudi_format.doubles import ManualClock
from tests.unit.hudi_format.metadata_tables import IndexedTable, plain
from tidemark.hudi_format.commit.instants import complete
from tidemark.hudi_format.errors import (
    CorruptFileError,
    FileMissingError,
    TimelineConflictError,
    UnsupportedTableError,
)
from tidemark.hudi_format.metadata_table import MetadataTableSnapshot
from tidemark.hudi_format.metadata_table.bootstrap import bootstrap_metadata_table
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX_FOLDER
from tidemark.hudi_format.model import InstantGenerator, ShardId
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.storage.base import Names
from tidemark.hudi_format.table_config import read_properties
from tidemark.hudi_format.timeline.avro_records import CommitMetadata, encode_commit_metadata


def test_a_new_table_has_all_its_shards_and_nothing_in_them() -> None:
    table = IndexedTable(shards=5)
    snapshot = table.snapshot()
    assert snapshot.num_shards == 5
    assert [len(snapshot.shard(ShardId(number)).entries()) for number in range(5)] == [0] * 5
    assert snapshot.files.partitions == []
    assert snapshot.shard(ShardId(0)).base_name is None
    assert snapshot.shard(ShardId(0)).block_count == 0
    assert read_properties(table.storage)["hoodie.table.metadata.partitions"] == "files,record_index"


def test_bootstrap_can_be_repeated_from_any_point() -> None:
    """A run that stops before its n-th new file is followed by one that finishes."""
    expected = {without_completion(path) for path in paths(IndexedTable(shards=2).storage)}
    stops = 0
    for files in range(50):
        storage = _StopsAfter(files)
        try:
            IndexedTable(2, storage)
            break
        except InterruptedError:
            stops += 1
            storage.left = 1000
            bootstrap_metadata_table(storage, 2, InstantGenerator(ManualClock()))
            assert {without_completion(path) for path in paths(storage)} == expected
            assert MetadataTableSnapshot.load(storage).num_shards == 2
    assert stops > 10


def paths(storage: InMemoryStorage) -> list[str]:
    return [info.path for info in storage.walk("")]


def without_completion(path: str) -> str:
    return re.sub(r"_\d{17}\.deltacommit$", ".deltacommit", path)


class _StopsAfter(InMemoryStorage):
    """Makes the files of table creation and then `left` more."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left + 1

    def create(self, path: str, data: bytes | bytearray | memoryview) -> None:
        if self.left == 0:
            raise InterruptedError
        self.left -= 1
        super().create(path, data)


def test_a_table_with_commits_is_not_bootstrapped() -> None:
    table = IndexedTable()
    with pytest.raises(UnsupportedTableError):
        bootstrap_metadata_table(table.storage, 2, table.times)


@settings(deadline=None, max_examples=25)
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from([f"k{n}" for n in range(12)] + ["é", "\U0001f600"]),
            st.none() | st.integers(0, 3),
            min_size=1,
        ),
        max_size=6,
    ),
    st.integers(0, 6),
)
def test_the_index_is_what_the_commits_add_up_to(
    commits: list[dict[str, int | None]], compact_before: int
) -> None:
    table = IndexedTable(shards=3)
    for number, changes in enumerate(commits):
        if number == compact_before:
            table.finish_compaction(table.schedule_compaction(), dict(table.live))
        table.commit(changes)
    assert table.index_content() == table.live


def test_a_deltacommit_whose_data_instant_is_pending_is_invisible() -> None:
    table = IndexedTable()
    table.commit({"a": 1, "b": 1}, {"x.parquet": 10})
    _, data = table.begin({"a": 2, "b": None, "c": 1}, {"y.parquet": 20})
    assert table.index_content() == {"a": 1, "b": 1}
    assert dict(table.snapshot().files.files("p")) == {"x.parquet": 10}
    complete(Unfenced(table.storage), data, table.times.next(), encode_commit_metadata(CommitMetadata()))
    assert table.index_content() == {"a": 2, "c": 1}
    assert dict(table.snapshot().files.files("p")) == {"x.parquet": 10, "y.parquet": 20}


def test_a_deltacommit_without_any_data_instant_is_invisible() -> None:
    table = IndexedTable()
    table.commit({"a": 1})
    table.metadata_commit(table.times.next(), {"b": 1})
    assert table.index_content() == {"a": 1}


def test_an_instant_that_appears_between_the_two_listings_is_not_taken() -> None:
    """Requested after the data listing, completed in the metadata table before its listing."""
    table = IndexedTable()
    table.commit({"a": 1})

    class Races(_Forwarding):
        raced = False

        def names(self, path: str) -> Names:
            if path == ".hoodie/metadata/.hoodie/timeline" and not self.raced:
                self.raced = True
                table.begin({"b": 1})
            return super().names(path)

    snapshot = MetadataTableSnapshot.load(Races(table.storage))
    found = {key for number in range(2) for key in plain(snapshot.shard(ShardId(number)).entries())}
    assert found == {"a"}


class _Forwarding(InMemoryStorage):
    """Another view of the same files, to override single calls of."""

    def __init__(self, inner: InMemoryStorage) -> None:
        self.__dict__.update(inner.__dict__)


def test_log_files_of_an_instant_that_is_not_complete_in_the_metadata_table_are_invisible() -> None:
    table = IndexedTable()
    table.commit({"a": 1})
    table.write_logs(table.times.next(), {"a": 2, "b": 2})
    assert table.index_content() == {"a": 1}


def test_a_log_that_completes_after_a_compaction_was_scheduled_survives_it() -> None:
    table = IndexedTable()
    table.commit({"a": 1, "b": 1})
    before = dict(table.live)
    compaction = table.schedule_compaction()
    table.commit({"a": 2, "c": 3})
    assert table.index_content() == {"a": 2, "b": 1, "c": 3}
    table.finish_compaction(compaction, before)
    assert table.index_content() == {"a": 2, "b": 1, "c": 3}


def test_compacted_entries_come_from_the_base_file_and_deletes_hide_them() -> None:
    table = IndexedTable(shards=1)
    table.commit({f"k{n:03d}": 1 for n in range(300)})
    table.finish_compaction(table.schedule_compaction(), dict(table.live))
    table.commit({"k000": None, "k001": 2})
    shard = table.snapshot().shard(ShardId(0))
    assert shard.base_name is not None
    assert plain(shard.log_changes()) == {"k000": None, "k001": 2}
    assert "k000" in plain(shard.read_block(0))
    answers = shard.lookup(pa.array(["k001", "k000", "k299", "zzz", ""]))
    assert answers.found.tolist() == [True, False, True, False, False]
    assert answers.location_ids[1] == -1
    assert table.index_content() == table.live


def test_the_data_listing_is_repeated_when_a_compaction_is_ahead_of_it() -> None:
    table = IndexedTable(shards=1)
    table.commit({"a": 1})

    class Races(_Forwarding):
        raced = False

        def names(self, path: str) -> Names:
            listing = super().names(path)
            if path == ".hoodie/timeline" and not self.raced:
                self.raced = True
                table.commit({"a": 2})
                table.finish_compaction(table.schedule_compaction(), dict(table.live))
            return listing

    snapshot = MetadataTableSnapshot.load(Races(table.storage))
    assert plain(snapshot.shard(ShardId(0)).entries()) == {"a": 2}
    assert len(snapshot.data_timeline.completed()) == 2


def test_a_folder_listing_that_overlaps_a_compaction_is_repeated() -> None:
    table = IndexedTable(shards=1)
    table.commit({"a": 1})

    class Races(_Forwarding):
        raced = False

        def names(self, path: str) -> Names:
            if path == RECORD_INDEX_FOLDER and not self.raced:
                self.raced = True
                table.finish_compaction(table.schedule_compaction(), dict(table.live))
                for info in table.storage.list(RECORD_INDEX_FOLDER):
                    if ".log." in info.name:
                        table.storage.delete(info.path)
            return super().names(path)

    snapshot = MetadataTableSnapshot.load(Races(table.storage))
    assert plain(snapshot.shard(ShardId(0)).entries()) == {"a": 1}


def test_listings_that_never_settle_are_an_error() -> None:
    table = IndexedTable()

    class Races(_Forwarding):
        def names(self, path: str) -> Names:
            if path == RECORD_INDEX_FOLDER:
                table.schedule_compaction()
            return super().names(path)

    with pytest.raises(TimelineConflictError):
        MetadataTableSnapshot.load(Races(table.storage))


def test_a_compaction_that_holds_an_instant_without_data_commit_is_refused() -> None:
    table = IndexedTable(shards=1)
    orphan = table.times.next()
    table.metadata_commit(orphan, {"a": 1})
    table.finish_compaction(table.schedule_compaction(), {"a": 1})
    with pytest.raises(TimelineConflictError, match=orphan):
        table.snapshot()


def test_a_file_that_was_cleaned_away_is_missing_not_absent() -> None:
    table = IndexedTable(shards=1)
    table.commit({"a": 1})
    table.finish_compaction(table.schedule_compaction(), dict(table.live))
    shard = table.snapshot().shard(ShardId(0))
    table.storage.delete(f"{RECORD_INDEX_FOLDER}/{shard.base_name}")
    with pytest.raises(FileMissingError):
        shard.lookup(pa.array(["a"]))


def test_a_damaged_log_file_is_an_error_not_an_absence() -> None:
    table = IndexedTable(shards=1)
    instant = table.commit({"a": 1})
    path = next(info.path for info in table.storage.list(RECORD_INDEX_FOLDER) if instant in info.name)
    table.storage.replace(path, table.storage.read(path)[:-1])
    with pytest.raises(CorruptFileError, match=instant):
        table.snapshot().shard(ShardId(0)).lookup(pa.array(["zzz"]))


def test_no_metadata_table_is_an_error() -> None:
    with pytest.raises(FileMissingError):
        MetadataTableSnapshot.load(InMemoryStorage())


def test_shards_out_of_range_are_refused() -> None:
    with pytest.raises(IndexError, match="has 2"):
        IndexedTable().snapshot().shard(ShardId(2))
