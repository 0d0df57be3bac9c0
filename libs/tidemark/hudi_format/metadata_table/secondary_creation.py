"""Makes a secondary index of an existing table, makes it anew, or drops it (METADATA_TABLE.md, section 10.2).

In this order, all in one hold of the table's lock; readers use an index that has a definition and files:

1. what is there of an index of this name goes: definition, property, folder,
2. the folder: of each file group a base file with its entries, if it has some, and a log file with the
   changes since; the deltacommit that makes them count, the next free bootstrap instant,
3. the definition: from here on readers use the index,
4. the property names it: from here on writers keep it.

A run that died in between is repeated from the start. One that is never repeated leaves a folder that nobody
reads, or between 3 and 4 a whole index that nobody keeps: `secondary_layout` refuses such a table.

What is written here is not fenced: hold the lock, and let no coordinator run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

import pyarrow as pa

from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.file_group.names import BaseFileName, LogFileName
from tidemark.hudi_format.index_definitions import (
    read_index_definitions,
    remove_index_definitions,
    secondary_index_definition,
    write_index_definitions,
)
from tidemark.hudi_format.metadata_table.bootstrap import INITIAL_TOKEN, partition_metadata
from tidemark.hudi_format.metadata_table.delta_commit import empty_log
from tidemark.hudi_format.metadata_table.index_creation import (
    check_not_compacting,
    complete_build,
    list_index,
    next_build_instant,
    unlist_indexes,
)
from tidemark.hudi_format.metadata_table.partitions.partition import (
    LOG_VERSION,
    METADATA_TABLE_PATH,
    MetadataLogFile,
)
from tidemark.hudi_format.metadata_table.partitions.secondary_index import (
    SECONDARY_PREFIX,
    SecondaryChanges,
    SecondaryIndexPartition,
    secondary_index_log,
)
from tidemark.hudi_format.model import ShardId, shard_ids
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, load_timeline

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_]{0,99}")


class SecondaryFailpoint(StrEnum):
    """The places at which a crash test may kill a creation or a drop, each after the step of its name."""

    AFTER_SECONDARY_UNDEFINED = "after_secondary_undefined"
    AFTER_SECONDARY_UNLISTED = "after_secondary_unlisted"
    AFTER_SECONDARY_DELETED = "after_secondary_deleted"
    AFTER_SECONDARY_WRITTEN = "after_secondary_written"
    AFTER_SECONDARY_COMPLETED = "after_secondary_completed"
    AFTER_SECONDARY_DEFINED = "after_secondary_defined"


Hit = Callable[[SecondaryFailpoint], None]


@dataclass(frozen=True, slots=True)
class IndexContent:
    """What an index begins with. `bases`: group -> a local HFile with its entries. `changes`: group -> what
    came and went since these were made. Both lack groups that have none. `groups`: how many there are.
    """

    groups: int
    bases: Mapping[ShardId, Path]
    changes: Mapping[ShardId, SecondaryChanges]


def secondary_partition(name: str) -> SecondaryIndexPartition:
    """The partition of the index `name`, as users call it. Raises UnsupportedTableError for a name that file
    names cannot have.
    """
    if not _NAME.fullmatch(name):
        raise UnsupportedTableError(
            f"{name!r} cannot be the name of an index",
            "Use up to 100 letters, digits and underscores, with no underscore in front",
        )
    return SecondaryIndexPartition(SECONDARY_PREFIX + name)


def create_secondary_index(
    storage: Storage,
    partition: SecondaryIndexPartition,
    column: str,
    content: IndexContent,
    completion: Callable[[], str],
    hit: Hit = lambda place: None,
) -> None:
    """Makes the index in place of the one that is there, if any. `content`: all live rows of now.
    `completion`: a time later than those of both timelines.

    Raises UnsupportedTableError, before anything is changed, while a compaction of the former one is pending.
    """
    drop_secondary_index(storage, partition, hit)
    instant = next_build_instant(load_timeline(storage, METADATA_TABLE_ROOT))
    folder = join_path(METADATA_TABLE_PATH, partition.name)
    storage.create(join_path(folder, ".hoodie_partition_metadata"), partition_metadata(instant, 1))
    for group, path in content.bases.items():
        name = str(BaseFileName(partition.file_id(group), INITIAL_TOKEN, instant, "hfile"))
        with pa.memory_map(str(path)) as file:
            storage.create(join_path(folder, name), memoryview(file.read_buffer()))
    logs = [_write_log(storage, partition, content, instant, group) for group in shard_ids(content.groups)]
    hit(SecondaryFailpoint.AFTER_SECONDARY_WRITTEN)
    complete_build(storage, instant, completion(), logs)
    hit(SecondaryFailpoint.AFTER_SECONDARY_COMPLETED)
    definitions = read_index_definitions(storage)
    definition = secondary_index_definition(partition.name, column)
    write_index_definitions(storage, {**definitions, partition.name: definition})
    hit(SecondaryFailpoint.AFTER_SECONDARY_DEFINED)
    list_index(storage, partition.name)


def _write_log(
    storage: Storage,
    partition: SecondaryIndexPartition,
    content: IndexContent,
    instant: str,
    group: ShardId,
) -> MetadataLogFile:
    """The group's first log file, which each has."""
    if (changes := content.changes.get(group)) is not None:
        log, data = partition.log_file(changes, instant, group)
    else:
        data = empty_log(instant)
        log = secondary_index_log(partition.name, instant, group, len(data), 0, 0)
    log = replace(log, name=str(LogFileName(log.file_id, instant, LOG_VERSION, INITIAL_TOKEN)))
    storage.create(log.path, data)
    return log


def drop_secondary_index(
    storage: Storage, partition: SecondaryIndexPartition, hit: Hit = lambda place: None
) -> None:
    """Removes what is there of the index. Repeatable. Raises as `create_secondary_index`."""
    check_not_compacting(storage, [partition.name])
    remove_index_definitions(storage, [partition.name])
    hit(SecondaryFailpoint.AFTER_SECONDARY_UNDEFINED)
    unlist_indexes(storage, [partition.name])
    hit(SecondaryFailpoint.AFTER_SECONDARY_UNLISTED)
    storage.delete_tree(join_path(METADATA_TABLE_PATH, partition.name))
    storage.sync_dir(METADATA_TABLE_PATH)
    hit(SecondaryFailpoint.AFTER_SECONDARY_DELETED)
