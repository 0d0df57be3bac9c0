"""Which partitions of the metadata table a table has: whoever lists, merges or cleans them asks here.

Every table that is served has `files` and the record index. Of the other partitions that `partition_named`
knows a table has those that its property `hoodie.table.metadata.partitions` lists. Stats that it
does not list are read by nobody, so their folders, which stay when they are taken out of the property, are
left alone; an engine that lists them again builds them anew. So is the folder of a secondary index without
definition, which a creation left that was killed. Another folder that is not listed may be an index all the
same, or one that is being built.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from tidemark.hudi_format.index_definitions import read_index_definitions
from tidemark.hudi_format.metadata_table.own_stats import STATS_PARTITIONS
from tidemark.hudi_format.metadata_table.partitions import PARTITIONS, partition_named
from tidemark.hudi_format.metadata_table.partitions.files import FILES
from tidemark.hudi_format.metadata_table.partitions.partition import METADATA_TABLE_PATH, MetadataPartition
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX
from tidemark.hudi_format.metadata_table.partitions.secondary_index import SECONDARY_PREFIX
from tidemark.hudi_format.storage.base import Names, Storage, join_path
from tidemark.hudi_format.table_config import read_table_config

NEEDED: Final[tuple[MetadataPartition[Any, Any], ...]] = (FILES, RECORD_INDEX)
"""What every table has."""
_TIMELINE_FOLDER: Final = ".hoodie"


def partitions_in_use(storage: Storage) -> tuple[MetadataPartition[Any, Any], ...]:
    """The table's partitions, in the order of `PARTITIONS` and then by name, by its properties of now.

    Whoever is about to change the metadata table holds the table's lock. Raises as `read_table_config`.
    """
    listed = read_table_config(storage).metadata_partitions
    fixed = [partition for partition in PARTITIONS if partition in NEEDED or partition.name in listed]
    others = listed - {partition.name for partition in PARTITIONS}
    return *fixed, *filter(None, map(partition_named, sorted(others)))


def unserved_partition(storage: Storage) -> str | None:
    """The name of a folder of the metadata table that is no partition in use, None when there is none;
    folders that nobody reads do not count. Whoever compacts has to take all the others at once
    (TABLE_SERVICES.md, section 2.4). Raises as `read_table_config`.
    """
    in_use = {partition.name for partition in partitions_in_use(storage)}
    folders = [info.name for info in storage.list(METADATA_TABLE_PATH) if info.is_dir]
    served = {_TIMELINE_FOLDER, *in_use, *_unread(storage, folders, in_use)}
    return next((name for name in folders if name not in served), None)


def partition_names(storage: Storage) -> list[str]:
    """The names of the folders whose logs count for somebody: all but those that nobody reads."""
    in_use = {partition.name for partition in partitions_in_use(storage)}
    names = [name for name in storage.names(METADATA_TABLE_PATH) if not name.startswith(".")]
    unread = _unread(storage, names, in_use)
    return [name for name in names if name not in unread]


def partition_files(storage: Storage) -> dict[str, Names]:
    """Each of these folders, also of a partition that we do not know, with the names in it."""
    return {name: storage.names(join_path(METADATA_TABLE_PATH, name)) for name in partition_names(storage)}


def _unread(storage: Storage, folders: Iterable[str], in_use: set[str]) -> set[str]:
    """Those of the folders that no engine reads as they are."""
    unread = set(STATS_PARTITIONS - in_use)
    unlisted = {name for name in folders if name.startswith(SECONDARY_PREFIX)} - in_use
    return unread | (unlisted - read_index_definitions(storage).keys() if unlisted else set())
