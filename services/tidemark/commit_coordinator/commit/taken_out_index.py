"""Takes indexes out of a table with which queries would lose rows, and says how they come back."""

from __future__ import annotations

from collections.abc import Collection

from tidemark.hudi_format.index_definitions import (
    COLUMN_STATS,
    INDEX_DEFINITIONS_PATH,
    index_definitions_file,
    read_index_definitions,
)
from tidemark.hudi_format.metadata_table.own_stats import STATS_PARTITIONS, disown_stats
from tidemark.hudi_format.metadata_table.partitions.secondary_index import SECONDARY_PREFIX
from tidemark.hudi_format.publication.port import Term
from tidemark.hudi_format.table_config import read_table_config, without_partitions
from tidemark.hudi_format.table_repairs import replace_properties


def take_out_indexes(by: Term, names: Collection[str]) -> dict[str, str]:
    """Takes the indexes out of the table's properties, then out of its definitions: with a name and no
    definition the table would be refused, if we died in between. Returns the columns of the secondary indexes
    among them. Hold the table's lock; repeatable. Raises FencedOutError.
    """
    if COLUMN_STATS in names:
        disown_stats(by)
    config = read_table_config(by.storage)
    properties = without_partitions(config, frozenset(names))
    if properties != config.properties:
        replace_properties(by, properties)
    definitions = read_index_definitions(by.storage)
    gone = set(names) - STATS_PARTITIONS
    kept = {name: definition for name, definition in definitions.items() if name not in gone}
    if len(kept) < len(definitions):
        by.replace(INDEX_DEFINITIONS_PATH, index_definitions_file(kept))
    fields = {name: definitions[name].get("sourceFields") for name in gone & definitions.keys()}
    return {
        name: str(columns[0])
        for name, columns in fields.items()
        if name.startswith(SECONDARY_PREFIX) and columns
    }


def how_to_make(name: str, column: str | None) -> str:
    """How an index that was taken out is made again. ``column``: of a secondary one."""
    if column is None:
        return "Whoever made it can make it again"
    command = f"`tidemark index create {name.removeprefix(SECONDARY_PREFIX)} --column {column}`"
    return (
        f"{command} makes it again where the column is a string, an int, a long, a date or a "
        "timestamp in microseconds. Of a column of another type only Spark makes one, and the stream would "
        "halt with it: go on without"
    )
