"""Repairs that a table may need before this release serves it: two when it is adopted, one whenever another
writer switches stats on.

Who calls one holds the table's lock.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.hudi_format import table_keys as keys
from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.index_definitions import remove_index_definitions
from tidemark.hudi_format.metadata_table.own_stats import (
    STATS_PARTITIONS,
    ForeignStats,
    disown_stats,
    foreign_stats,
)
from tidemark.hudi_format.model import instant_from_ms
from tidemark.hudi_format.ports import Clock
from tidemark.hudi_format.publication.port import Term
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.table_config import (
    BACKUP_PATH,
    PROPERTIES_PATH,
    properties_file,
    read_table_config,
    update_properties,
    without_partitions,
    write_properties,
)
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, load_timeline
from tidemark.hudi_format.validation import METADATA_COLUMN_STATS


def replace_properties(term: Term, properties: Mapping[str, str]) -> None:
    """Does what `write_properties` does, and is fenced. Raises FencedOutError when the term is over."""
    term.replace(PROPERTIES_PATH, properties_file(properties))
    term.storage.delete(BACKUP_PATH)


def take_out_stats(term: Term) -> ForeignStats | None:
    """Takes the stats that are not ours out of the table's property; returns which, and why. Hold the table's
    lock; repeatable.

    No reader uses them then, and the next write with Hudi's default options builds them anew. Their
    definitions and folders stay: a write that is in flight since it switched them on goes on to use them, and
    so do readers that began before (METADATA_TABLE.md, section 10.1). Raises FencedOutError when the term is
    over.
    """
    config = read_table_config(term.storage)
    found = foreign_stats(term.storage, config)
    if found is not None:
        if METADATA_COLUMN_STATS in found.names:
            disown_stats(term, taken_out=found.reason)
        kept = ",".join(sorted(config.metadata_partitions - found.names))
        properties = {**config.properties, keys.METADATA_PARTITIONS: kept}
        replace_properties(term, properties)
    return found


def drop_stats(storage: Storage) -> frozenset[str]:
    """Switches column and partition stats off; returns those that were on. Hold the table's lock; repeatable.

    Steps (METADATA_TABLE.md, section 10.1):

    1. The property loses the stats, so readers stop using them.
    2. The index definitions lose them.
    3. Their folders in the metadata table are deleted.

    A Spark writer with default options creates them again: it has to set
    `hoodie.metadata.index.column.stats.enable` and `hoodie.metadata.index.partition.stats.enable` to false.
    """
    config = read_table_config(storage)
    switched_off = (config.metadata_partitions | config.metadata_partitions_inflight) & STATS_PARTITIONS
    if switched_off:
        write_properties(storage, without_partitions(config, STATS_PARTITIONS))
    remove_index_definitions(storage, STATS_PARTITIONS)
    for name in sorted(STATS_PARTITIONS):
        storage.delete_tree(join_path(".hoodie/metadata", name))
    storage.sync_dir(".hoodie/metadata")
    return switched_off


def pin_timezone(storage: Storage, clock: Clock) -> bool:
    """Sets the timeline's time zone from LOCAL to UTC; returns False when it was UTC. Hold the table's lock.

    With LOCAL each writer names instants by the wall clock of its own machine, so writers in two zones mix up
    the order (FORMAT.md, section 3.6). Raises `UnsupportedTableError` while the timeline has times that are
    in the future in UTC, which a writer east of Greenwich leaves: instants in UTC would sort before them.
    """
    if read_table_config(storage).timeline_timezone == "UTC":
        return False
    now = instant_from_ms(clock.now_ms())
    newest = max(
        load_timeline(storage).times() + load_timeline(storage, METADATA_TABLE_ROOT).times(), default=""
    )
    if newest > now:
        raise UnsupportedTableError(
            f"{keys.TIMEZONE} is LOCAL and the newest instant {newest} is in the future for UTC ({now})",
            "The table was written in a time zone ahead of UTC: try again when that time has passed in UTC",
        )
    update_properties(storage, {keys.TIMEZONE: "UTC"})
    return True
