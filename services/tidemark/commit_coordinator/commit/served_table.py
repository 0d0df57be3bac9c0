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
from tidemark.epoch_protocol.seen import action_of, requested_of
from tidemark.hudi_format.index_definitions import STATS_META_COLUMNS
from tidemark.hudi_format.metadata_table.own_stats import (
    TEXT,
    disown_stats,
    foreign_stats,
    kept_stats_columns,
    known_types,
    note_types,
    types_of_stats,
)
from tidemark.hudi_format.metadata_table.stats_of_others import (
    columns_made_text,
    commit_faults,
    living_faults,
)
from tidemark.hudi_format.table_config import TableConfig, parse_table_config, read_table_config
from tidemark.hudi_format.table_repairs import take_out_stats
from tidemark.hudi_format.table_schema import former_schema, table_schema
from tidemark.hudi_format.timeline import Action
from tidemark.hudi_format.validation import check_still_servable, without_stats

# Their instants write no file of the table's, and many have no instant in the metadata table.
_WITHOUT_FILES: Final = frozenset({Action.ROLLBACK.value, Action.RESTORE.value, Action.INDEXING.value})
_log: Final = logging.getLogger("tidemark.coordinator")


def leave_stats_of_others(context: Context, timelines: Timelines, instants: Collection[str]) -> bool:
    """Gives the column stats up where one of these instants of other writers (identities) has records of some
    of their columns alone or wrong ranges, or made texts of a column of numbers; `check_served` takes them
    out then. Returns whether it did.

    To be called before the instants count as seen: later nobody looks at them again. They may be archived by
    then, with their log files cleaned away.
    """
    requested = sorted(requested_of(name) for name in instants if action_of(name) not in _WITHOUT_FILES)
    columns = kept_stats_columns(context.storage, read_table_config(context.storage)) if requested else []
    if not columns:
        return False
    what = _wrong_records(context, timelines, requested, columns)
    what = what or _made_texts(context, timelines, requested, columns)
    if what:
        disown_stats(context.publishing, what)
    return bool(what)


def _wrong_records(
    context: Context, timelines: Timelines, instants: Sequence[str], columns: Sequence[str]
) -> str:
    """Which of these commits has records by which readers leave out rows, and of which columns; "" for
    none.
    """
    storage, wanted, unread = context.storage, [*STATS_META_COLUMNS, *columns], []
    for requested in instants:
        faults = commit_faults(storage, timelines.data, timelines.metadata, requested, wanted)
        if faults:
            return f"{_one_of([requested])} {faults}"
        if faults is None:
            unread.append(requested)
    faults = living_faults(storage, unread, wanted) if unread else ""
    return f"{_one_of(unread)} {faults}" if faults else ""


def _made_texts(
    context: Context, timelines: Timelines, instants: Sequence[str], columns: Sequence[str]
) -> str:
    """Which columns of numbers one of these commits made texts of; "" for none. The types of before are those
    beside the stats. Stats that an earlier version made have none there yet: then it is the schema before
    these commits that tells, and where nothing tells, a column of texts counts as one that was made so.
    """
    storage = context.storage
    config = read_table_config(storage)
    schema, types = table_schema(storage, config, timelines.data), known_types(storage)
    if schema is None:
        return ""
    if types is None:
        own = context.fold().state.committed.instant
        former = former_schema(storage, config, timelines.data, instants, own)
        types = types_of_stats(former or schema, columns)
        fixed = {*config.record_key_fields, *config.partition_fields, *config.ordering_fields}
        texts = [column for column, kind in types.items() if kind == TEXT and column not in fixed]
        if former is None and texts:
            return f"{_one_of(instants)} may have made texts of {', '.join(texts)}, and nothing tells"
        note_types(context.publishing, types)
    texts = columns_made_text(types, schema)
    return f"{_one_of(instants)} made texts of {', '.join(texts)}" if texts else ""


def _one_of(instants: Sequence[str]) -> str:
    if len(instants) == 1:
        return f"another writer's commit {instants[0]}"
    return f"one of other writers' {len(instants)} commits since {instants[0]}"


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
