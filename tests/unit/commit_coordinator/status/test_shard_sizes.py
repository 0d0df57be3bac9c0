"""Shards with too many entries are found by their base files; the warning names the command that helps."""

from __future__ import annotations

from pathlib import Path

from tests.unit.index_rebuilds import rebuild
from tests.unit.table_verification.damage import changed_table
from tidemark.commit_coordinator.status.shard_sizes import ShardSizeLooks, ShardSizes
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import TableType


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


def test_the_warning_names_the_command_with_a_number_that_is_taken() -> None:
    assert ShardSizes(8).warnings(8) == []
    [text] = ShardSizes(8, 8, 12_500_000, 100_000_000).warnings(8)
    assert "8 of 8 shards" in text
    assert "12,500,000" in text
    assert "`tidemark table rebuild-index --shards 24`" in text
    [text] = ShardSizes(10, 10, 12_500_000, 125_000_000).warnings(8)
    assert "rebuild-index" not in text, "10 shards cannot become more with 8 lanes"
