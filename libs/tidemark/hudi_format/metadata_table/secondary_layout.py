"""What a commit has to know about the table's secondary indexes: of which column each has entries, and in how
many file groups.

Both may change between two commits: another engine drops an index, or builds it anew with another number of
groups. So whoever plans a commit reads them, and whoever decides it reads them again, both under the table's
lock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tidemark.hudi_format.errors import FileMissingError, UnsupportedTableError, damage_in
from tidemark.hudi_format.index_definitions import INDEX_DEFINITIONS_PATH, read_index_definitions
from tidemark.hudi_format.metadata_table.partitions.secondary_index import (
    SECONDARY_PREFIX,
    SecondaryIndexPartition,
)
from tidemark.hudi_format.metadata_table.partitions.secondary_index_codec import INDEXED_TYPES
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.metadata_table.stats_layout import count_groups, partition_groups
from tidemark.hudi_format.metadata_table.validity import InstantValidity
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_config import TableConfig, read_table_config

_REMEDY: Final = "Drop it with `tidemark index drop`, or with Hudi on Spark (DROP INDEX)"


class IndexChangedError(FileMissingError):
    """An index is another one by now than what was read of it before: read all of it again."""


@dataclass(frozen=True, slots=True)
class SecondaryLayout:
    """One secondary index: `name` is the partition's, `groups` how many file groups it has on disk."""

    name: str
    column: str
    groups: int

    def check_schema(self, schema: TableSchema) -> None:
        """Raises UnsupportedTableError for a column that rows of this schema do not have, or whose type can
        have no entries.
        """
        types = {field.name: field.type for field in schema.arrow}
        if self.column not in types:
            raise UnsupportedTableError(
                f"{self.name} is of a column {self.column}, which is none of the table's", _REMEDY
            )
        if types[self.column] not in INDEXED_TYPES:
            raise UnsupportedTableError(
                f"{self.name} is of the column {self.column}, whose type {types[self.column]} can have none",
                _REMEDY,
            )


def secondary_layouts(
    storage: Storage, config: TableConfig, validity: InstantValidity
) -> tuple[SecondaryLayout, ...]:
    """The secondary indexes that the table's properties list, by name. Hold the table's lock: the folders are
    listed now, and judged by ``validity``, which is of timelines that were listed under the lock, too. Raises
    UnsupportedTableError for one that cannot be written, CorruptFileError.
    """

    def groups_of(partition: SecondaryIndexPartition) -> int:
        return partition_groups(storage, validity, partition, _REMEDY)

    return _layouts(storage, config, groups_of)


def layouts_as_of(snapshot: MetadataTableSnapshot, config: TableConfig) -> tuple[SecondaryLayout, ...]:
    """The same for whoever reads beside writers: their groups are those of the snapshot. Files of now cannot
    be judged by its timelines. Example: the index was compacted and cleaned meanwhile, and the snapshot knows
    none of the files that are there.

    Raises IndexChangedError where the snapshot or ``config`` shows an index that is another one by now: load
    both again. Raises UnsupportedTableError for one that cannot be written as it is now either, and
    CorruptFileError.
    """

    def groups_of(partition: SecondaryIndexPartition) -> int:
        return count_groups(partition, _group_ids(snapshot, partition.name), _REMEDY)

    try:
        return _layouts(snapshot.storage, config, groups_of)
    except UnsupportedTableError as error:
        storage = snapshot.storage
        now, loaded = read_table_config(storage), MetadataTableSnapshot.load(storage)
        names = _listed(config)
        if set(names) <= set(_listed(now)) and all(
            _group_ids(snapshot, name) == _group_ids(loaded, name) for name in names
        ):
            raise
        raise IndexChangedError(f"a secondary index was changed meanwhile ({error.reason})") from error


def _group_ids(snapshot: MetadataTableSnapshot, name: str) -> set[str]:
    return {file_slice.file_id for file_slice in snapshot.slices.get(name, ())}


def _layouts(
    storage: Storage, config: TableConfig, groups_of: Callable[[SecondaryIndexPartition], int]
) -> tuple[SecondaryLayout, ...]:
    listed = _listed(config)
    definitions = read_index_definitions(storage) if listed else {}
    return tuple(
        SecondaryLayout(
            name, indexed_column(name, definitions.get(name)), groups_of(SecondaryIndexPartition(name))
        )
        for name in listed
    )


def _listed(config: TableConfig) -> list[str]:
    return sorted(name for name in config.metadata_partitions if name.startswith(SECONDARY_PREFIX))


def indexed_column(name: str, definition: Mapping[str, Any] | None) -> str:
    """The column of the index `name`. Raises UnsupportedTableError for a definition that is missing, or of
    another kind than those that are kept.
    """
    if definition is None:
        raise UnsupportedTableError(f"{name} is in use without a definition", _REMEDY)
    with damage_in(INDEX_DEFINITIONS_PATH, f"the definition of {name}"):
        version, columns = definition.get("version"), [str(column) for column in definition["sourceFields"]]
    if version != "V2" or len(columns) != 1:
        raise UnsupportedTableError(
            f"{name} has version {version or 'none'} and the columns {columns}; V2 of one column is served",
            _REMEDY,
        )
    return columns[0]
