"""Gives an existing table column stats, or makes them anew (METADATA_TABLE.md, section 10.3). In this
order, all under the table's lock:

1. `column_stats` and `partition_stats` leave the data table's property: from here on no reader uses them,
2. their definitions leave `index.json`, and the folder of the former column stats goes,
3. the folder, a log file for each file group with its records, the deltacommit that makes them count: the
   next free bootstrap instant,
4. the definition,
5. the property names `column_stats`. Before this step readers read all files, after it those that may hold
   rows.

Between any two steps the table is one without stats, which every engine reads and writes. A run that died in
between is repeated from the start; one that is never repeated leaves a folder that nobody reads, and that
Hudi replaces when it makes stats itself.

What is written here is not fenced: hold the lock, and let no coordinator run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Final

from tidemark.hudi_format.file_group.names import LogFileName
from tidemark.hudi_format.index_definitions import (
    column_stats_definition,
    read_index_definitions,
    remove_index_definitions,
    write_index_definitions,
)
from tidemark.hudi_format.metadata_table.bootstrap import (
    INITIAL_TOKEN,
)
from tidemark.hudi_format.metadata_table.delta_commit import empty_log
from tidemark.hudi_format.metadata_table.index_creation import (
    check_not_compacting,
    complete_build,
    list_index,
    next_build_instant,
    unlist_indexes,
)
from tidemark.hudi_format.metadata_table.own_stats import STATS_PARTITIONS, write_own_folder
from tidemark.hudi_format.metadata_table.partitions.column_stats import (
    COLUMN_STATS,
    StatsChanges,
    column_stats_log,
)
from tidemark.hudi_format.metadata_table.partitions.partition import (
    LOG_VERSION,
    METADATA_TABLE_PATH,
    MetadataLogFile,
)
from tidemark.hudi_format.metadata_table.stats_layout import STATS_GROUPS
from tidemark.hudi_format.model import shard_ids
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, load_timeline

_FOLDER: Final = join_path(METADATA_TABLE_PATH, COLUMN_STATS.name)


class StatsFailpoint(StrEnum):
    """The places at which a crash test may kill a creation, each after the step of its name."""

    AFTER_STATS_UNLISTED = "after_stats_unlisted"
    AFTER_STATS_DELETED = "after_stats_deleted"
    AFTER_STATS_WRITTEN = "after_stats_written"
    AFTER_STATS_COMPLETED = "after_stats_completed"
    AFTER_STATS_DEFINED = "after_stats_defined"


def create_column_stats(
    storage: Storage,
    columns: Sequence[str],
    records: Mapping[str, bytes],
    completion: Callable[[], str],
    hit: Callable[[StatsFailpoint], None] = lambda place: None,
    *,
    types: Mapping[str, str],
) -> None:
    """Makes the column stats of the user's `columns`. `records`: key -> value, of all files of the slices
    that readers see now. `completion`: a time later than those of both timelines. `types`: of the columns, as
    `types_of_stats`.

    Raises UnsupportedTableError, before anything is changed, while a compaction of the former column stats is
    pending.
    """
    check_not_compacting(storage, STATS_PARTITIONS)
    unlist_indexes(storage, STATS_PARTITIONS)
    hit(StatsFailpoint.AFTER_STATS_UNLISTED)
    remove_index_definitions(storage, STATS_PARTITIONS)
    storage.delete_tree(_FOLDER)
    storage.sync_dir(METADATA_TABLE_PATH)
    hit(StatsFailpoint.AFTER_STATS_DELETED)
    instant = next_build_instant(storage, load_timeline(storage, METADATA_TABLE_ROOT))
    write_own_folder(storage, instant, columns, types)
    logs = _write_groups(storage, instant, records)
    hit(StatsFailpoint.AFTER_STATS_WRITTEN)
    complete_build(storage, instant, completion(), logs)
    hit(StatsFailpoint.AFTER_STATS_COMPLETED)
    definitions = read_index_definitions(storage)
    write_index_definitions(storage, {**definitions, COLUMN_STATS.name: column_stats_definition(columns)})
    hit(StatsFailpoint.AFTER_STATS_DEFINED)
    list_index(storage, COLUMN_STATS.name)


def _write_groups(storage: Storage, instant: str, records: Mapping[str, bytes]) -> list[MetadataLogFile]:
    logs = []
    changes = StatsChanges(records).by_group(STATS_GROUPS)
    for group in shard_ids(STATS_GROUPS):
        of_group = changes.get(group)
        if of_group is not None:
            log, data = COLUMN_STATS.log_file(of_group, instant, group)
        else:
            data = empty_log(instant)
            log = column_stats_log(instant, group, len(data), 0)
        name = str(LogFileName(log.file_id, instant, LOG_VERSION, INITIAL_TOKEN))
        logs.append(replace(log, name=name))
        storage.create(logs[-1].path, data)
    return logs
