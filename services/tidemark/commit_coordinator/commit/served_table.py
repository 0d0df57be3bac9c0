"""What other writers changed in the table's properties and indexes, before a plan and before a decision:
either Tidemark can go on, and says what it had to put right, or it stops.
"""

from __future__ import annotations

import logging
from typing import Final

from tidemark.commit_coordinator.commit.context import Context, TakenOut
from tidemark.hudi_format.table_config import TableConfig, parse_table_config
from tidemark.hudi_format.validation import (
    check_still_servable,
    listed_stats,
    take_out_stats,
    without_stats,
)

_log: Final = logging.getLogger("tidemark.coordinator")


def check_served(context: Context) -> TableConfig:
    """Checks the table, and takes out stats that another writer switched on: what we commit would not be in
    them, and readers would miss its rows. Returns the configuration as it is then. Hold the table's lock.

    Raises UnsupportedTableError for everything else that is not served, and changes nothing then.
    """
    config = check_still_servable(context.storage, context.table.accepted_properties, without_stats)
    if not listed_stats(config):
        return parse_table_config(config.properties)
    context.lock.check()
    names = sorted(take_out_stats(context.publishing))
    context.taken_out = TakenOut(", ".join(names), context.clock.now_ms())
    _log.warning("%s: another writer switched them on, and they were taken out", context.taken_out.names)
    return config
