"""Builds of an index by other engines, by what they put on the timelines: which may live, and the end of what
a dead one left.

Spark's CREATE INDEX and Hudi's indexer put an indexing instant on the data timeline, which has no heartbeat.
The index itself is a deltacommit of the metadata table, `0000…N` or of the indexing instant's time. A write
that switches an index on builds it when it begins, in one hold of the table's lock, and has no indexing
instant.

Who dies meanwhile leaves them pending. Both end archival. `0000…N` is the start of the metadata table's
timeline as well, so base files of archived compactions do not count. Hudi rolls `0000…N` back at its next
write of the metadata table, and deletes an indexing instant where the index is dropped; but it may never
write again. So dead ones are ended under the lock:

* an indexing instant once its files are as old as `limits.index_build`, planned or begun,
* a deltacommit once no indexing instant is younger than that, and its files are two minutes old: who has none
  builds under the lock, which we hold.

What is left of the list of files or of the record index is not touched: the table is not served then.

Files of a dead build go only from folders that nobody reads. Hudi counts `0000…N` from what is on the active
timeline, so an archived build of an index that is in use may have had the same number.
"""

from __future__ import annotations

import logging
from typing import Final

from tidemark.commit_coordinator.commit.context import Context
from tidemark.commit_coordinator.commit.table_state import Timelines
from tidemark.hudi_format.commit.instants import delete_pending, instant_path
from tidemark.hudi_format.commit.rollback import belongs_to
from tidemark.hudi_format.metadata_table.other_indexes import NEEDED
from tidemark.hudi_format.metadata_table.partitions.partition import METADATA_TABLE_PATH
from tidemark.hudi_format.metadata_table.partitions_in_use import partition_names
from tidemark.hudi_format.model import is_bootstrap_instant
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.table_config import read_table_config
from tidemark.hudi_format.table_services.dead_instants import DEAD_AFTER_MS
from tidemark.hudi_format.timeline import DATA_ROOT, METADATA_TABLE_ROOT, Action, Instant, State

_log: Final = logging.getLogger("tidemark.coordinator")


def living_builds(context: Context, timelines: Timelines) -> tuple[str, ...]:
    """Requested times of the indexing instants whose builder may live: it began, and has not had the time for
    it yet. Hudi's indexer may plan long before it builds, so the inflight file counts as well.
    """
    pending = timelines.data.pending(Action.INDEXING)
    since_ms = context.file_time_ms() - context.index_build_ms if pending else 0
    begun = ((found.requested, _begun_ms(context, found, DATA_ROOT)) for found in pending)
    return tuple(requested for requested, begun_ms in begun if begun_ms is not None and begun_ms > since_ms)


def end_dead_builds(context: Context, timelines: Timelines) -> None:
    """Takes from both timelines what dead builds left pending there. ``timelines``: as listed under the lock,
    which is held. Repeatable. Raises LockLostError.
    """
    indexing, builds = timelines.data.pending(Action.INDEXING), _pending_builds(timelines)
    if not (indexing or builds) or living_builds(context, timelines):
        return
    if read_table_config(context.storage).metadata_partitions_inflight & NEEDED:
        return
    dead_from_ms = context.file_time_ms() - DEAD_AFTER_MS
    for build in builds:
        begun_ms = _begun_ms(context, build, METADATA_TABLE_ROOT)
        if begun_ms is None or begun_ms >= dead_from_ms:
            return
        context.lock.check()
        _delete_files(context.storage, build.requested)
        _end(context, build, METADATA_TABLE_ROOT)
    for planned in indexing:
        context.lock.check()
        # Hudi's indexer begins without the lock, and may have done so since the times were read.
        if living_builds(context, timelines):
            return
        _end(context, planned, DATA_ROOT)


def _pending_builds(timelines: Timelines) -> list[Instant]:
    indexing = {instant.requested for instant in timelines.data.pending(Action.INDEXING)}
    return [
        instant
        for instant in timelines.metadata.pending(Action.DELTA_COMMIT)
        if is_bootstrap_instant(instant.requested) or instant.requested in indexing
    ]


def _begun_ms(context: Context, instant: Instant, root: str) -> int | None:
    """When the newest file of the pending instant was made; None where it is gone."""
    states = (
        Instant(instant.requested, instant.action, state) for state in (State.REQUESTED, State.INFLIGHT)
    )
    times = [context.publishing.written_ms(instant_path(state, root)) for state in states]
    return max((time for time in times if time is not None), default=None)


def _end(context: Context, instant: Instant, root: str) -> None:
    delete_pending(context.storage, instant.requested, instant.action, root)
    _log.warning("%s: nobody builds this index any more, its instant was taken away", instant.file_name)


def _delete_files(storage: Storage, requested: str) -> None:
    read = set(partition_names(storage))
    for folder in storage.names(METADATA_TABLE_PATH):
        if folder.startswith(".") or folder in read:
            continue
        path = join_path(METADATA_TABLE_PATH, folder)
        names = [name for name in storage.names(path) if belongs_to(name, requested)]
        for name in names:
            storage.delete(join_path(path, name))
        if names:
            storage.sync_dir(path)
