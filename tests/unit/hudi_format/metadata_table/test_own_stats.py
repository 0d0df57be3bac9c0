"""Which stats in the table's property are ours, and which are another writer's."""

from __future__ import annotations

import pytest

from tests.unit.hudi_format.metadata_tables import IndexedTable
from tidemark.hudi_format.index_definitions import (
    COLUMN_STATS,
    column_stats_definition,
    read_index_definitions,
    write_index_definitions,
)
from tidemark.hudi_format.metadata_table.bootstrap import partition_metadata
from tidemark.hudi_format.metadata_table.own_stats import foreign_stats, own_stats_columns
from tidemark.hudi_format.metadata_table.stats_creation import create_column_stats
from tidemark.hudi_format.table_config import read_table_config, update_properties

LISTED = "hoodie.table.metadata.partitions"


def table_with(columns: list[str], listed: str) -> IndexedTable:
    table = IndexedTable()
    create_column_stats(table.storage, columns, {}, table.times.next, types=dict.fromkeys(columns, "LONG"))
    update_properties(table.storage, {LISTED: f"files,record_index,{listed}"})
    return table


def names_and_reason(table: IndexedTable) -> tuple[set[str], str] | None:
    found = foreign_stats(table.storage, read_table_config(table.storage))
    return None if found is None else (set(found.names), found.reason)


def test_ours_are_kept_and_partition_stats_never() -> None:
    assert names_and_reason(table_with(["a", "b"], "column_stats")) is None
    found = names_and_reason(table_with(["a"], "column_stats,partition_stats"))
    assert found == ({"partition_stats"}, "another writer switched them on")


def test_the_order_of_the_definition_s_columns_does_not_matter() -> None:
    table = table_with(["a", "b"], "column_stats")
    definition = column_stats_definition(["b", "a"])
    write_index_definitions(table.storage, {COLUMN_STATS: definition})
    assert names_and_reason(table) is None


@pytest.mark.parametrize(
    ("definition", "reason"),
    [
        (column_stats_definition(["a", "c"]), "another writer changed their columns from a to a, c"),
        (column_stats_definition([]), "another writer changed their columns from a to none"),
        (None, "another writer changed their columns from a to none"),
        ({**column_stats_definition(["a"]), "version": "V1"}, "version V1"),
    ],
)
def test_another_definition_makes_them_another_writer_s(
    definition: dict[str, object] | None, reason: str
) -> None:
    table = table_with(["a"], "column_stats,partition_stats")
    definitions = {
        name: each for name, each in read_index_definitions(table.storage).items() if name != COLUMN_STATS
    }
    if definition is not None:
        definitions[COLUMN_STATS] = definition
    write_index_definitions(table.storage, definitions)
    found = names_and_reason(table)
    assert found is not None
    assert found[0] == {"column_stats", "partition_stats"}
    assert reason in found[1]


def test_a_folder_that_another_engine_made_is_not_ours() -> None:
    table = table_with(["a"], "column_stats")
    path = ".hoodie/metadata/column_stats/.hoodie_partition_metadata"
    assert own_stats_columns(table.storage) == ["a"]
    table.storage.replace(path, partition_metadata("00000000000000003", 1))
    assert own_stats_columns(table.storage) is None
    assert names_and_reason(table) == ({"column_stats"}, "another writer switched them on")
    table.storage.delete(path)
    assert names_and_reason(table) == ({"column_stats"}, "another writer switched them on")
