"""What a commit has to know about the table's secondary indexes: of which column each has entries, and in how
many file groups.

Both may change between two commits: another engine drops an index, or builds it anew with another number of
groups. So whoever plans a commit reads them, and whoever decides it reads them again, both under the table's
lock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tidemark.hudi_format.errors import UnsupportedTableError, damage_in
from tidemark.hudi_format.index_definitions import INDEX_DEFINITIONS_PATH, read_index_definitions
from tidemark.hudi_format.metadata_table.partitions.secondary_index import (
    SECONDARY_PREFIX,
    SecondaryIndexPartition,
)
from tidemark.hudi_format.metadata_table.partitions.secondary_index_codec import INDEXED_TYPES
from tidemark.hudi_format.metadata_table.stats_layout import partition_groups
from tidemark.hudi_format.metadata_table.validity import InstantValidity
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_config import TableConfig

_REMEDY: Final = "Drop it with `tidemark index drop`, or with Hudi on Spark (DROP INDEX)"


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
    """The secondary indexes that the table's properties list, by name. Raises UnsupportedTableError for one
    that cannot be written, CorruptFileError.
    """
    listed = sorted(name for name in config.metadata_partitions if name.startswith(SECONDARY_PREFIX))
    if not listed:
        return ()
    definitions = read_index_definitions(storage)
    layouts = []
    for name in listed:
        column = indexed_column(name, definitions.get(name))
        groups = partition_groups(storage, validity, SecondaryIndexPartition(name), _REMEDY)
        layouts.append(SecondaryLayout(name, column, groups))
    return tuple(layouts)


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
