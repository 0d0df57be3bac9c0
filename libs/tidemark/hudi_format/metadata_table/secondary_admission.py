"""Which secondary indexes keep a table from being served, by its properties and definitions. What the schema
and the folders say besides is in `secondary_layout`.

Readers use an index that has a definition and files, listed or not, and trust it: rows that it lacks are lost
to their filters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from tidemark.hudi_format.errors import IndexUnfinishedError, UnsupportedTableError
from tidemark.hudi_format.index_definitions import (
    IndexKind,
    is_made_by_a_write,
    read_index_definitions,
    record_index_kind,
)
from tidemark.hudi_format.metadata_table.partitions.secondary_index import SECONDARY_PREFIX
from tidemark.hudi_format.metadata_table.secondary_layout import indexed_column
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_config import TableConfig, read_table_config

_ONE_ON_LOGS: Final = "Hudi's writers maintain only one secondary index of a MERGE_ON_READ table"


def secondary_problems(storage: Storage, config: TableConfig) -> Iterator[UnsupportedTableError]:
    """The reasons why the secondary indexes cannot be kept, each with the way out. `config`: the table's, as
    it is. Raises CorruptFileError.
    """
    definitions = read_index_definitions(storage)
    listed = {name for name in config.metadata_partitions if name.startswith(SECONDARY_PREFIX)}
    defined = {name for name in definitions if name.startswith(SECONDARY_PREFIX)}
    for name in sorted(defined - listed):
        yield IndexUnfinishedError(
            name,
            f"{name} is defined and not listed: it is being built, was left half made, or was dropped by a "
            "restore",
            f"Wait until it is listed, or run `tidemark index drop {name.removeprefix(SECONDARY_PREFIX)}`",
        )
    for name in sorted(listed):
        try:
            indexed_column(name, definitions.get(name))
        except UnsupportedTableError as error:
            yield error
    if listed and record_index_kind(definitions) is IndexKind.PARTITIONED:
        yield beside_partitioned(min(listed))
    if len(listed) > 1 and config.is_merge_on_read:
        yield UnsupportedTableError(
            f"the table has the secondary indexes {', '.join(sorted(listed))}, and {_ONE_ON_LOGS}",
            "Keep one of them, and drop the others with `tidemark index drop`",
        )


def made_by_writes(storage: Storage) -> list[str]:
    """The partition names of the listed secondary indexes that a write of another engine made on its way, and
    that nobody has compared with the rows since: those of the write's own commit are not in them. Raises
    CorruptFileError, OSError.
    """
    listed = read_table_config(storage).metadata_partitions
    definitions = read_index_definitions(storage)
    return sorted(name for name in listed if is_made_by_a_write(definitions.get(name, {})))


def beside_partitioned(name: str) -> UnsupportedTableError:
    """Why a secondary index of this partition name cannot stand beside a partitioned record index."""
    return UnsupportedTableError(
        f"{name} is a secondary index, and the record index is partitioned: readers ask a global one where "
        "the rows of a value are",
        f"`tidemark index drop {name.removeprefix(SECONDARY_PREFIX)}` drops it, where it is there",
    )


def without_secondary(config: TableConfig) -> TableConfig:
    """The configuration of the table without its secondary indexes, for a caller that is about to make or
    drop one: it asks for none of these reasons.
    """
    others = {name for name in config.metadata_partitions if not name.startswith(SECONDARY_PREFIX)}
    return replace(config, metadata_partitions=frozenset(others))
