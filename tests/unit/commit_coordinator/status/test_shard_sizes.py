"""Shards with too many entries are found by their base files; the warning names the command that helps."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

from testing.clock import ManualClock
from tests.unit.index_rebuilds import rebuild
from tests.unit.table_files import new_partitioned_table, orders
from tests.unit.table_verification.damage import changed_table
from tidemark.commit_coordinator.commit.view import ViewBoard
from tidemark.commit_coordinator.status.document import StatusSource
from tidemark.commit_coordinator.status.sampled_stats import SampledStats
from tidemark.commit_coordinator.status.shard_sizes import ShardSizeLooks, ShardSizes
from tidemark.hudi_format.commit.instants import complete, create_inflight, create_requested
from tidemark.hudi_format.file_group.names import BaseFileName
from tidemark.hudi_format.hfile import write_hfile
from tidemark.hudi_format.metadata_table.partitioned_index import layout_of
from tidemark.hudi_format.metadata_table.partitions.partition import METADATA_TABLE_PATH
from tidemark.hudi_format.metadata_table.partitions.record_index_codec import encode_values
from tidemark.hudi_format.metadata_table.record_schema import metadata_record_schema
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.model import InstantGenerator
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import TableType
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action
from tidemark.hudi_format.timeline.avro_records import CommitMetadata, WriteStat, encode_commit_metadata
from tidemark.stream_runtime.clock import SystemClock


def test_large_shards_are_counted_by_their_base_files(tmp_path: Path) -> None:
    changed_table(tmp_path, TableType.MERGE_ON_READ)
    looks = ShardSizeLooks(limit=5)
    load = MetadataTableSnapshot.load
    assert looks.look(load(LocalStorage(tmp_path))) == ShardSizes(2), "log files alone"
    rebuild(tmp_path, 2)
    found = looks.look(load(LocalStorage(tmp_path)))
    assert (found.shards, found.large, found.entries) == (2, 2, 59)
    assert looks.look(load(LocalStorage(tmp_path))) == found
    rebuild(tmp_path, 64, term=2)
    assert looks.look(load(LocalStorage(tmp_path))) == ShardSizes(64)


def compact_index(storage: Storage) -> None:
    """Folds all groups into base files, as a compaction of the metadata table does."""
    snapshot, times, by = (
        MetadataTableSnapshot.load(storage),
        InstantGenerator(SystemClock()),
        Unfenced(storage),
    )
    times.observe(snapshot.data_timeline.times() + snapshot.metadata_timeline.times())
    requested = create_requested(by, times.next(), Action.COMPACTION, b"plan", root=METADATA_TABLE_ROOT)
    inflight = create_inflight(by, requested, root=METADATA_TABLE_ROOT)
    stats = []
    for group in layout_of(snapshot).groups():
        found = snapshot.shard(group.shard, group.partition_path).entries().sorted_by_key()
        values = encode_values(found.location_ids, found.locations, found.instant_ms)
        path = f"record_index/{BaseFileName(group.file_id, '0-0-0', inflight.requested, 'hfile')}"
        content = write_hfile(found.keys, values, metadata_record_schema())
        storage.create(f"{METADATA_TABLE_PATH}/{path}", content)
        stats.append(WriteStat(file_id=group.file_id, path=path, partition_path="record_index"))
    metadata = CommitMetadata(write_stats={"record_index": tuple(stats)}, compacted=True)
    complete(by, inflight, times.next(), encode_commit_metadata(metadata), root=METADATA_TABLE_ROOT)


def test_large_shards_of_a_partitioned_index_are_told_with_their_partition(tmp_path: Path) -> None:
    writer = new_partitioned_table(tmp_path)
    writer.commit_rows(orders(*((f"k{number}", "eu", 1) for number in range(40)), ("k1", "us", 1)))
    looks = ShardSizeLooks(limit=5)
    assert looks.look(MetadataTableSnapshot.load(writer.table.storage)) == ShardSizes(4), "log files alone"
    compact_index(writer.table.storage)
    found = looks.look(MetadataTableSnapshot.load(writer.table.storage))
    assert (found.shards, found.large, found.entries, found.partition) == (4, 2, 40, "eu")
    [text] = found.warnings(8)
    assert "2 of 4 shards" in text
    assert "in partition 'eu'" in text
    assert "table.index.shards" in text
    assert "rebuild-index" not in text


def test_log_files_are_counted_by_partition_and_shard(tmp_path: Path) -> None:
    writer = new_partitioned_table(tmp_path)
    writer.commit_rows(orders(("k1", "eu", 1), ("k1", "us/ca", 1)))
    status = SimpleNamespace(
        board=ViewBoard(),
        storage=writer.table.storage,
        clock=ManualClock(1_000_000),
        open_transaction=lambda: None,
    )
    stats = SampledStats(cast(StatusSource, status), dict, lambda *_: True, False)
    stats.sample()
    assert stats.table is not None
    # The first file of each group, and the log of the one that has the key.
    assert stats.table.log_files == {"eu/0": 2, "eu/1": 1, "us/ca/0": 2, "us/ca/1": 1}


def test_the_warning_names_the_command_with_a_number_that_is_taken() -> None:
    assert ShardSizes(8).warnings(8) == []
    [text] = ShardSizes(8, 8, 12_500_000, 100_000_000).warnings(8)
    assert "8 of 8 shards" in text
    assert "12,500,000" in text
    assert "`tidemark table rebuild-index --shards 24`" in text
    [text] = ShardSizes(10, 10, 12_500_000, 125_000_000).warnings(8)
    assert "rebuild-index" not in text, "10 shards cannot become more with 8 lanes"
