"""`tidemark index create NAME`, `repair` and `drop`: the secondary indexes of a table, whose services and
other writers may run. `secondary_build` and `secondary_repair` do the work.

Killed anywhere, it leaves a table with the index, or without. What it left half made is taken out by a
coordinator two minutes later (`commit/unfinished_index.py`), or replaced by the command when it is repeated.
"""

from __future__ import annotations

from collections.abc import Callable

from tidemark.commit_coordinator.offline.adoption import AdoptionError
from tidemark.commit_coordinator.offline.secondary_build import CreatedIndex, SecondaryBuild
from tidemark.commit_coordinator.offline.secondary_repair import RepairedIndex, SecondaryRepair
from tidemark.commit_coordinator.opening.table_open import OpenedTable, read_table
from tidemark.config import TableConfigFile
from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.index_definitions import IndexKind, read_index_definitions
from tidemark.hudi_format.metadata_table.partitions.secondary_index import (
    SECONDARY_PREFIX,
    SecondaryIndexPartition,
)
from tidemark.hudi_format.metadata_table.secondary_admission import beside_partitioned, without_secondary
from tidemark.hudi_format.metadata_table.secondary_creation import Hit, secondary_partition
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.storage.locate import open_storage
from tidemark.hudi_format.table_config import read_table_config
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.ids import IdSource


def create_index(
    config: TableConfigFile,
    clock: Clock,
    ids: IdSource,
    name: str,
    column: str,
    say: Callable[[str], None],
    hit: Hit = lambda place: None,
) -> CreatedIndex:
    """Makes the secondary index `name` of a column. One of this name and column that is there, whole or half
    made, is made anew.

    Raises AdoptionError where a coordinator left its lock, where a write is pending, and for an index of this
    name on another column; SchemaError for a column that can have none, UnsupportedTableError, and as
    `read_table`.
    """
    partition, storage = secondary_partition(name), open_storage(config.table.path)
    _check_name(storage, partition, column)
    return _make(config, storage, clock, ids, partition, column, say, hit)


def repair_index(
    config: TableConfigFile,
    clock: Clock,
    ids: IdSource,
    name: str,
    say: Callable[[str], None],
) -> RepairedIndex:
    """Compares the secondary index `name`, which is there, with the rows, and puts it right. Raises
    AdoptionError where it is not there, TimelineConflictError as `SecondaryRepair.repair`, and as
    `create_index`.
    """
    # Another writer may have named it as we do not.
    partition, storage = SecondaryIndexPartition(SECONDARY_PREFIX + name), open_storage(config.table.path)
    column = _column_of(storage, partition)
    if column is None:
        raise AdoptionError(f"the table has no secondary index {name}: `tidemark index create` makes one")
    opened = _opened(config, storage, partition)
    return SecondaryRepair(storage, clock, ids, say).repair(
        partition, opened.config, opened.schema, column, lambda: _check_name(storage, partition, column)
    )


def drop_index(
    config: TableConfigFile,
    clock: Clock,
    ids: IdSource,
    name: str,
    say: Callable[[str], None],
    hit: Hit = lambda place: None,
) -> bool:
    """Removes the secondary index, whole or half made; returns whether anything of it was there. Raises
    AdoptionError where a coordinator left its lock, UnsupportedTableError while a compaction of it is
    pending.
    """
    partition, storage = secondary_partition(name), open_storage(config.table.path)
    listed = partition.name in read_table_config(storage).metadata_partitions
    is_there = listed or partition.name in read_index_definitions(storage)
    SecondaryBuild(storage, clock, ids, say, hit).drop(partition)
    return is_there


def _make(
    config: TableConfigFile,
    storage: Storage,
    clock: Clock,
    ids: IdSource,
    partition: SecondaryIndexPartition,
    column: str,
    say: Callable[[str], None],
    hit: Hit,
) -> CreatedIndex:
    opened = _opened(config, storage, partition)
    build = SecondaryBuild(storage, clock, ids, say, hit)
    return build.make(
        partition, opened.config, opened.schema, column, lambda: _check_name(storage, partition, column)
    )


def _opened(config: TableConfigFile, storage: Storage, partition: SecondaryIndexPartition) -> OpenedTable:
    """The table, which may have a secondary index. Raises as `read_table`, and UnsupportedTableError."""
    opened = read_table(config, storage, None, without_secondary)
    if opened.kind is IndexKind.PARTITIONED:
        raise beside_partitioned(partition.name)
    return opened


def _check_name(storage: Storage, partition: SecondaryIndexPartition, column: str) -> None:
    known = _column_of(storage, partition)
    if known is not None and known != column:
        raise AdoptionError(
            f"{partition.name} is of the column {known}: drop it with `tidemark index drop` first, or choose "
            "another name"
        )
    others = {name for name in read_index_definitions(storage) if name.startswith(SECONDARY_PREFIX)} - {
        partition.name
    }
    if others and read_table_config(storage).is_merge_on_read:
        raise UnsupportedTableError(
            f"the table has {min(others)}, and Hudi's writers maintain only one secondary index of a "
            "MERGE_ON_READ table",
            "Drop that one first",
        )


def _column_of(storage: Storage, partition: SecondaryIndexPartition) -> str | None:
    fields = read_index_definitions(storage).get(partition.name, {}).get("sourceFields") or []
    return str(fields[0]) if fields else None
