"""What other writers changed in the table's properties and indexes, before a plan and before a decision:
either Tidemark can go on, and says what it had to put right, or it stops.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from tidemark.commit_coordinator.commit.context import Context, TakenOut
from tidemark.commit_coordinator.commit.table_state import Timelines
from tidemark.epoch_protocol.seen import requested_of
from tidemark.hudi_format.index_definitions import STATS_META_COLUMNS
from tidemark.hudi_format.metadata_table.own_stats import disown_stats, foreign_stats, kept_stats_columns
from tidemark.hudi_format.metadata_table.stats_of_others import columns_without_records
from tidemark.hudi_format.table_config import TableConfig, parse_table_config, read_table_config
from tidemark.hudi_format.table_repairs import take_out_stats
from tidemark.hudi_format.table_schema import columns_made_text
from tidemark.hudi_format.validation import check_still_servable, without_stats

_log: Final = logging.getLogger("tidemark.coordinator")


def leave_stats_of_others(context: Context, timelines: Timelines, instants: Collection[str]) -> bool:
    """Gives the column stats up where one of these instants of other writers (identities) has records of some
    of their columns alone, or made texts of a column of numbers; `check_served` takes them out then. Returns
    whether it did.

    To be called before the instants count as seen: later nobody looks at them again.
    """
    columns = [] if not instants else kept_stats_columns(context.storage, read_table_config(context.storage))
    for requested in map(requested_of, instants if columns else ()):
        if what := _breaks_stats(context, timelines, requested, columns):
            disown_stats(context.publishing, f"another writer's commit {requested} {what}")
            return True
    return False


def _breaks_stats(context: Context, timelines: Timelines, requested: str, columns: Sequence[str]) -> str:
    """What this commit did by which column stats of these columns leave rows out; "" for nothing.

    Ranges of numbers stay in older files when a column becomes one of strings, and Hudi's readers compare
    their texts: of the range 5 to 50 they believe that it has no "10".
    """
    lacking = columns_without_records(
        context.storage, timelines.metadata, requested, [*STATS_META_COLUMNS, *columns]
    )
    if lacking:
        return f"has none of {', '.join(lacking)}"
    texts = columns_made_text(context.storage, context.table.name, timelines.data, requested, columns)
    return f"made texts of {', '.join(texts)}" if texts else ""


def check_served(context: Context, unfinished: bool = False) -> TableConfig:
    """Checks the table, and takes out stats that are not ours: what we commit would not be in them, and
    readers would miss its rows. Returns the configuration as it is then. Hold the table's lock.

    Not ours are stats that another writer switched on, also at the start of a write that has not ended, those
    of which it changed the columns, and partition_stats always. Raises UnsupportedTableError for everything
    else that is not served, and changes nothing then. ``unfinished``: an index that another writer has not
    finished is no reason.
    """
    accepted = context.table.accepted_properties
    checked = check_still_servable(context.storage, accepted, without_stats, unfinished=unfinished)
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
