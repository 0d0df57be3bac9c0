"""Makes a secondary index of an existing table, makes it anew, or drops it (METADATA_TABLE.md, section 10.2).

1. `stage_index`, without the lock: the index's folder, where nobody sees it: of each file group a base file
   with its entries, if it has some, and a log file with the changes since.
2. `switch_on`, in one hold of the table's lock, which is as short for a large index as for a small one. What
   is there of an index of this name goes: property, definition, folder. Then

   1. the staged folder is put in place, and its deltacommit completes, at the next free bootstrap instant,
   2. the definition: from here on readers use the index,
   3. the property names it: from here on writers keep it.

A run that died in between is repeated from the start. One that is never repeated leaves a folder that nobody
reads, or between 2 and 3 a whole index that nobody keeps: `secondary_layout` refuses such a table.
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
from tidemark.hudi_format.file_group.write_stats import new_base_file_stat
from tidemark.hudi_format.hfile import HFileReader
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
from tidemark.hudi_format.publication.port import Command
from tidemark.hudi_format.storage.base import join_path
from tidemark.hudi_format.timeline.avro_records import WriteStat

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_]{0,99}")


class SecondaryFailpoint(StrEnum):
    """The places at which a crash test may kill a creation or a drop, each after the step of its name."""

    AFTER_SECONDARY_UNLISTED = "after_secondary_unlisted"
    AFTER_SECONDARY_UNDEFINED = "after_secondary_undefined"
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


@dataclass(frozen=True, slots=True)
class StagedIndex:
    """An index whose folder is prepared: the instant that its files name, the first log file of each group,
    and the write status of each base file.
    """

    instant: str
    logs: tuple[MetadataLogFile, ...]
    bases: tuple[WriteStat, ...]


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


def stage_index(
    by: Command,
    partition: SecondaryIndexPartition,
    content: IndexContent,
    instant: str,
    former: StagedIndex | None = None,
) -> StagedIndex:
    """Prepares the index's folder. `instant`: `next_build_instant`. `former`: what was staged of this index
    before; its base files stay where they have the same instant.
    """
    folder = join_path(METADATA_TABLE_PATH, partition.name)
    if former is None or former.instant != instant:
        by.discard(folder)
        by.stage(join_path(folder, ".hoodie_partition_metadata"), partition_metadata(instant, 1))
        bases = tuple(
            _stage_base(by, partition, path, instant, group) for group, path in content.bases.items()
        )
    else:
        bases = former.bases
    logs = [_stage_log(by, partition, content, instant, group) for group in shard_ids(content.groups)]
    return StagedIndex(instant, tuple(logs), bases)


def _stage_base(
    by: Command, partition: SecondaryIndexPartition, path: Path, instant: str, group: ShardId
) -> WriteStat:
    file_id = partition.file_id(group)
    name = str(BaseFileName(file_id, INITIAL_TOKEN, instant, "hfile"))
    with pa.memory_map(str(path)) as file:
        content = memoryview(file.read_buffer())
        by.stage(join_path(METADATA_TABLE_PATH, partition.name, name), content)
        stat = new_base_file_stat(
            partition.name, file_id, name, len(content), HFileReader.from_bytes(content, name).entry_count
        )
    by.beat()
    return stat


def _stage_log(
    by: Command,
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
    by.stage(log.path, data)
    return log


def switch_on(
    by: Command,
    partition: SecondaryIndexPartition,
    column: str,
    staged: StagedIndex,
    completion: str,
    hit: Hit = lambda place: None,
) -> None:
    """Puts the staged index in place of the one that is there, if any. Hold the lock. The staged content is
    of all live rows of now, its instant is still the next one. `completion`: a time later than those of both
    timelines.

    Raises UnsupportedTableError, before anything is changed, while a compaction of the former one is pending.
    """
    drop_secondary_index(by, partition, hit)
    by.put(join_path(METADATA_TABLE_PATH, partition.name))
    hit(SecondaryFailpoint.AFTER_SECONDARY_WRITTEN)
    complete_build(by.storage, staged.instant, completion, staged.logs, staged.bases)
    hit(SecondaryFailpoint.AFTER_SECONDARY_COMPLETED)
    definitions = read_index_definitions(by.storage)
    definition = secondary_index_definition(partition.name, column)
    write_index_definitions(by.storage, {**definitions, partition.name: definition})
    hit(SecondaryFailpoint.AFTER_SECONDARY_DEFINED)
    list_index(by.storage, partition.name)


def drop_secondary_index(
    by: Command, partition: SecondaryIndexPartition, hit: Hit = lambda place: None
) -> None:
    """Removes what is there of the index. Hold the lock. Repeatable. Raises as `switch_on`.

    The property goes first: an index that is listed and has no definition halts a stream, one that is defined
    and not listed is taken out by it.
    """
    check_not_compacting(by.storage, [partition.name])
    unlist_indexes(by.storage, [partition.name])
    hit(SecondaryFailpoint.AFTER_SECONDARY_UNLISTED)
    remove_index_definitions(by.storage, [partition.name])
    hit(SecondaryFailpoint.AFTER_SECONDARY_UNDEFINED)
    by.take_away(join_path(METADATA_TABLE_PATH, partition.name))
    hit(SecondaryFailpoint.AFTER_SECONDARY_DELETED)
