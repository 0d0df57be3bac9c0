"""What a commit has to know about the table's column stats: of which columns it writes ranges, and into how
many file groups of the partition.

Both may change between two commits: another engine adds columns to the definition, or deletes the partition
and builds it anew with another number of groups. So whoever plans a commit reads them, and whoever decides
it reads them again, both under the table's lock.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from tidemark.hudi_format.column_ranges import has_ranges
from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.file_group.names import parse_data_file
from tidemark.hudi_format.index_definitions import (
    COLUMN_STATS,
    STATS_META_COLUMNS,
    read_index_definitions,
    stats_columns,
)
from tidemark.hudi_format.metadata_table.partitions.column_stats import COLUMN_STATS as PARTITION
from tidemark.hudi_format.metadata_table.partitions.partition import METADATA_TABLE_PATH, MetadataPartition
from tidemark.hudi_format.metadata_table.validity import InstantValidity
from tidemark.hudi_format.model import ShardId
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage.base import Storage, join_path

# As many as Hudi makes by default. Readers of stats read all of them for each filter.
STATS_GROUPS: Final = 2
_REMEDY: Final = "Run `tidemark table adopt --drop-stats`"


@dataclass(frozen=True, slots=True)
class StatsLayout:
    """`columns`: those of the definition, in its order, meta columns among them. `groups`: how many file
    groups the partition has on disk. The columns' types follow from the schema of the commit.
    """

    columns: tuple[str, ...]
    groups: int

    def check_schema(self, schema: TableSchema) -> None:
        """Raises UnsupportedTableError for a column that rows of this schema do not have, or that can have no
        range: then no file could have records of all columns.
        """
        types = {field.name: field.type for field in schema.arrow}
        for name in self.columns:
            if name in STATS_META_COLUMNS:
                continue
            if name not in types:
                raise UnsupportedTableError(
                    f"the column stats have a column {name}, which is none of the table's", _REMEDY
                )
            if not has_ranges(types[name]):
                raise UnsupportedTableError(
                    f"the column stats have a column {name} of the type {types[name]}, which can have none",
                    _REMEDY,
                )


def stats_columns_in_use(storage: Storage) -> tuple[str, ...]:
    """The columns of a table whose properties list `column_stats`. Raises UnsupportedTableError where their
    definition is missing or another one than ours, CorruptFileError.
    """
    columns = tuple(stats_columns(read_index_definitions(storage)))
    if not columns:
        raise UnsupportedTableError(
            f"{COLUMN_STATS} is in use without a definition that says which columns it has", _REMEDY
        )
    return columns


def stats_groups(storage: Storage, validity: InstantValidity) -> int:
    """The number of the partition's file groups. Raises as `partition_groups`."""
    return partition_groups(storage, validity, PARTITION, _REMEDY)


def partition_groups(
    storage: Storage, validity: InstantValidity, partition: MetadataPartition[Any, Any], remedy: str
) -> int:
    """The number of the file groups of an index's partition, by a listing of its folder.

    Raises UnsupportedTableError where there are none, or one between the first and the last is missing: the
    group of a key follows from their number.
    """
    names = storage.names(join_path(METADATA_TABLE_PATH, partition.name))
    parsed = (parse_data_file(name) for name in names if validity.shows(name))
    return count_groups(partition, {name.file_id for name in parsed if name is not None}, remedy)


def count_groups(partition: MetadataPartition[Any, Any], ids: Collection[str], remedy: str) -> int:
    """The number of the partition's file groups with these ids. Raises as `partition_groups`."""
    if not ids or set(ids) != {partition.file_id(ShardId(group)) for group in range(len(ids))}:
        raise UnsupportedTableError(
            f"{partition.name} is in use, and its file groups {sorted(ids)} are not numbered from 0", remedy
        )
    return len(ids)
