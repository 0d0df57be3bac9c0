"""What other writers changed in the table's properties and indexes, before a plan and before a decision:
either Tidemark can go on, and says what it had to put right, or it stops.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

from tidemark.commit_coordinator.commit.context import Context, TakenOut
from tidemark.hudi_format.metadata_table.own_stats import foreign_stats
from tidemark.hudi_format.table_config import TableConfig, parse_table_config
from tidemark.hudi_format.validation import check_still_servable, take_out_stats, without_stats

_log: Final = logging.getLogger("tidemark.coordinator")


def check_served(context: Context) -> TableConfig:
    """Checks the table, and takes out stats that are not ours: what we commit would not be in them, and
    readers would miss its rows. Returns the configuration as it is then. Hold the table's lock.

    Not ours are stats that another writer switched on, also at the start of a write that has not ended, those
    of which it changed the columns, and partition_stats always. Raises UnsupportedTableError for everything
    else that is not served, and changes nothing then.
    """
    checked = check_still_servable(context.storage, context.table.accepted_properties, without_stats)
    config = parse_table_config(checked.properties)
    if foreign_stats(context.storage, config) is None:
        return config
    context.lock.check()
    found = take_out_stats(context.publishing)
    if found is None:
        return config
    names = ", ".join(sorted(found.names))
    context.taken_out = TakenOut(names, found.reason, context.clock.now_ms())
    _log.warning("%s: %s, and they were taken out", names, found.reason)
    return replace(config, metadata_partitions=config.metadata_partitions - found.names)
