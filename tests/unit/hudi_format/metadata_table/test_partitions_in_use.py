"""Which partitions a table has: the property says so, and what only the folder knows is told apart."""

from __future__ import annotations

import pytest

from tests.unit.hudi_format.metadata_tables import IndexedTable
from tidemark.hudi_format import table_keys as keys
from tidemark.hudi_format.index_definitions import write_index_definitions
from tidemark.hudi_format.metadata_table import MetadataTableSnapshot
from tidemark.hudi_format.metadata_table.partitions_in_use import (
    partition_names,
    partitions_in_use,
    unserved_partition,
)
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_config import update_properties

NEEDED = ["files", "record_index"]


def listed(storage: Storage, *more: str) -> None:
    update_properties(storage, {keys.METADATA_PARTITIONS: ",".join([*NEEDED, *more])})


def with_folders(*names: str) -> Storage:
    storage = IndexedTable().storage
    for name in names:
        storage.create(f".hoodie/metadata/{name}/.col-stats-0000-0_00000000000000002.log.1_0-0-0", b"#")
    return storage


def test_the_property_says_which_partitions_a_table_has():
    storage = with_folders("column_stats")
    assert [each.name for each in partitions_in_use(storage)] == NEEDED
    assert sorted(MetadataTableSnapshot.load(storage).slices) == NEEDED
    listed(storage, "partition_stats", "column_stats")
    assert [each.name for each in partitions_in_use(storage)] == [*NEEDED, "column_stats"]
    assert sorted(MetadataTableSnapshot.load(storage).slices) == ["column_stats", *NEEDED]


def test_stats_that_are_not_listed_hold_back_nothing():
    storage = with_folders("column_stats", "partition_stats")
    assert unserved_partition(storage) is None
    assert sorted(partition_names(storage)) == NEEDED
    listed(storage, "column_stats")
    assert unserved_partition(storage) is None
    assert sorted(partition_names(storage)) == ["column_stats", *NEEDED]


@pytest.mark.parametrize("name", ["secondary_index_city", "expr_index_day"])
def test_another_index_counts_whether_it_is_listed_or_not(name: str):
    storage = with_folders(name)
    write_index_definitions(storage, {name: {}})
    assert unserved_partition(storage) == name
    assert name in partition_names(storage)


def test_a_secondary_index_without_definition_and_listing_holds_back_nothing():
    storage = with_folders("secondary_index_city")
    assert unserved_partition(storage) is None
    assert sorted(partition_names(storage)) == NEEDED


def test_secondary_indexes_that_are_listed_are_in_use_each_by_its_name():
    storage = with_folders("secondary_index_city", "secondary_index_age")
    listed(storage, "secondary_index_city", "secondary_index_age", "expr_index_day")
    names = [*NEEDED, "secondary_index_age", "secondary_index_city"]
    assert [each.name for each in partitions_in_use(storage)] == names
    assert unserved_partition(storage) is None
