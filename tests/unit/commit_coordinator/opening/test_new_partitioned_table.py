"""A new table has a partitioned record index where `table.index.kind` says so, and a table of the other kind
is not opened.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from testing.clock import ManualClock
from testing.memory_storage import InMemoryStorage
from tests.interop.hudi_options import PARTITIONED_RECORD_INDEX
from tests.interop.partitioned_writer import PartitionedWriter
from tests.unit.commit_coordinator.opening.test_table_creation import (
    DEFINITION,
    START_MS,
    Dying,
    KilledError,
    finished_after_each_death,
)
from tests.unit.table_files import (
    new_partitioned_table,
    new_table,
    orders,
    table_schema,
    write_config,
    write_partitioned_config,
)
from tidemark.cli.commands.table import description_lines
from tidemark.commit_coordinator.commit.index_shards import IndexShards, check_kind
from tidemark.commit_coordinator.opening.table_creation import CreationError, create_or_finish
from tidemark.commit_coordinator.opening.table_description import describe_configured, describe_table
from tidemark.commit_coordinator.opening.table_open import TableMismatchError, open_table, read_table
from tidemark.config import TableConfigFile, load_config
from tidemark.config.errors import ConfigError
from tidemark.hudi_format import validation
from tidemark.hudi_format.errors import CorruptFileError, UnsupportedTableError
from tidemark.hudi_format.index_definitions import IndexKind, read_index_definitions, record_index_kind
from tidemark.hudi_format.metadata_table.partitioned_index import PartitionedLayout, layout_of
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX_FOLDER
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.partitioned_lanes import LANE_FUNCTION_PATH
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, load_timeline

PARTITIONED = IndexKind.PARTITIONED
DIVIDED = replace(DEFINITION, partition_fields=("day",))


def check_empty_index(storage: Storage) -> None:
    validation.check_servable(storage)
    assert record_index_kind(read_index_definitions(storage)) is PARTITIONED
    assert layout_of(MetadataTableSnapshot.load(storage)) == PartitionedLayout({})


def configured(folder: Path, index: str = "{kind: partitioned, shards: 3}") -> TableConfigFile:
    file = write_config(folder)
    file.write_text(file.read_text().replace("{shards: 2}", index))
    return load_config(file, {})


def test_killed_at_every_write_it_is_finished_without_shards() -> None:
    deaths = 0
    for storage in finished_after_each_death(
        lambda storage, clock: create_or_finish(storage, DIVIDED, 3, clock, kind=PARTITIONED)
    ):
        deaths += 1
        check_empty_index(storage)
    assert deaths >= 10


def test_a_creation_is_not_finished_with_another_kind() -> None:
    storage, clock = InMemoryStorage(), ManualClock(START_MS)
    with pytest.raises(KilledError):
        create_or_finish(Dying(storage, 8, True), DIVIDED, 3, clock, kind=PARTITIONED)
    with pytest.raises(CreationError, match=r"another configuration \(partitioned index, 3 shards"):
        create_or_finish(storage, DIVIDED, 3, clock)


def test_it_is_opened_again_with_any_number_of_shards(tmp_path: Path) -> None:
    """The number is for data partitions that are new, so it may change from one start to the next."""
    storage, clock = InMemoryStorage(), ManualClock(START_MS)
    opened = open_table(configured(tmp_path), storage, clock)
    assert (opened.created, opened.kind, opened.num_shards) == (True, PARTITIONED, 0)
    check_empty_index(storage)
    again = open_table(configured(tmp_path, "{kind: partitioned, shards: 1, lanes: 8}"), storage, clock)
    assert (again.created, again.kind, again.num_shards) == (False, PARTITIONED, 0)
    assert describe_table(storage, ())["not_servable"] is None


def test_lanes_are_sets_of_shards_of_a_global_index_only(tmp_path: Path) -> None:
    assert configured(tmp_path, "{kind: partitioned, shards: 1, lanes: 9}").table.index.lanes == 9
    with pytest.raises(ConfigError, match=r"table\.index\.lanes.*9 lanes need at least as many shards"):
        configured(tmp_path, "{shards: 1, lanes: 9}")


def test_the_configured_kind_is_the_tables(tmp_path: Path) -> None:
    storage, clock = InMemoryStorage(), ManualClock(START_MS)
    open_table(configured(tmp_path), storage, clock)
    with pytest.raises(TableMismatchError, match=r"kind is global, the record index of .* is partitioned"):
        open_table(configured(tmp_path, "{shards: 3}"), storage, clock)
    other = InMemoryStorage()
    open_table(configured(tmp_path, "{shards: 3}"), other, clock)
    with pytest.raises(TableMismatchError, match=r"kind is partitioned, the record index of .* is global"):
        read_table(configured(tmp_path), other)


def test_a_global_index_that_another_engine_built_meanwhile_stops_a_running_coordinator(
    tmp_path: Path,
) -> None:
    new_table(tmp_path / "global")
    built = LocalStorage(tmp_path / "global")
    checks = IndexShards(built, 0, is_partitioned=True)
    with pytest.raises(UnsupportedTableError, match=r"partitioned, and is a global one of 2 shards now"):
        checks.check(load_timeline(built, METADATA_TABLE_ROOT))
    storage = InMemoryStorage()
    open_table(configured(tmp_path), storage, ManualClock(START_MS))
    IndexShards(storage, 0, is_partitioned=True).check(load_timeline(storage, METADATA_TABLE_ROOT))


def test_its_description_has_the_options_of_its_kind_for_other_writers(tmp_path: Path) -> None:
    """With those of a global index a Spark write would delete this one."""
    writer = new_partitioned_table(tmp_path / "table")
    writer.commit_rows(orders(("k1", "eu", 1), ("k1", "us", 1)))
    config = load_config(write_partitioned_config(tmp_path), {})
    told = describe_configured(config, writer.table.storage, 0)
    assert (told["index_kind"], told["shards"], told["index_partitions"]) == ("partitioned", 4, 2)
    options = told["foreign_writer_options"]
    assert PARTITIONED_RECORD_INDEX.items() <= options.items()
    assert options["hoodie.metadata.record.level.index.min.filegroup.count"] == "2"
    assert not [key for key in options if "global" in key or "update.partition.path" in key]
    assert "hoodie.metadata.record.level.index.enable=true" in told["procedure_options"]
    [line] = [line for line in description_lines(told) if line.startswith("index ")]
    assert "partitioned, 4 shards in 2 data partitions" in line


def test_topics_of_the_other_kind_of_index_are_refused(tmp_path: Path) -> None:
    """Whoever follows another engine with `table.index.kind` alone would look up rows in wrong lanes."""
    clock, divided, whole = ManualClock(START_MS), InMemoryStorage(), InMemoryStorage()
    open_table(configured(tmp_path), divided, clock)
    check_kind(divided, 0)
    with pytest.raises(
        UnsupportedTableError, match=r"is partitioned, and .*a global index of 4 shards.*new-l"
    ):
        check_kind(divided, 4)
    open_table(configured(tmp_path, "{shards: 3}"), whole, clock)
    check_kind(whole, 3)
    whole.create(LANE_FUNCTION_PATH, b"java-hash-sum")
    with pytest.raises(
        UnsupportedTableError, match=r"is global, and .*for a partitioned one .*lane-function"
    ):
        check_kind(whole, 0)


def test_a_gap_in_the_groups_of_a_partition_is_refused(tmp_path: Path) -> None:
    file = write_partitioned_config(tmp_path)
    storage = new_partitioned_table(tmp_path / "table").table.storage
    writer = PartitionedWriter(tmp_path / "table", table_schema())
    writer.commit_rows(orders(("k1", "eu", 1)))
    read_table(load_config(file, {}), storage)
    with pytest.raises(UnsupportedTableError, match=r"is partitioned, and .*a global index of 2 shards"):
        IndexShards(storage, 2).check(load_timeline(storage, METADATA_TABLE_ROOT))
    for info in storage.list(RECORD_INDEX_FOLDER):
        if info.name.startswith(".record-index-eu-0000"):
            storage.delete(info.path)
    with pytest.raises(CorruptFileError, match=r"partition 'eu' has 1 file groups, and number 0"):
        read_table(load_config(file, {}), storage)


def test_a_partitioned_index_that_is_gone_is_told_from_one_that_has_not_begun(tmp_path: Path) -> None:
    definition = replace(DIVIDED, ordering_fields=("at",))
    writer = PartitionedWriter.create(tmp_path, table_schema(), definition, 0, kind=PARTITIONED)
    storage = writer.table.storage
    validation.check_servable(storage)
    writer.commit_rows(orders(("k1", "eu", 1))[:0])
    validation.check_servable(storage)
    writer.commit_rows(orders(("k1", "eu", 1)))
    validation.check_servable(storage)
    for info in storage.list(RECORD_INDEX_FOLDER):
        if info.name.startswith(".record-index"):
            storage.delete(info.path)
    with pytest.raises(UnsupportedTableError, match="has no file of it"):
        validation.check_servable(storage)
