"""Plans of other engines whose file has no content: its writer is about to write it, or died there.

Hudi makes the file of a plan in place on a local folder. Example: Spark schedules a clustering, and is killed
between the name `T.clustering.requested` and its content. Nobody can carry that plan out, Hudi's own writers
and readers fail at it, and archival ends there. So

* what is decided by plans waits until the file is two minutes old, by the storage's clock or ours, the
  earlier one: the plan may come. Then it counts as none, but is read again each time,
* `rollback` deletes such files, also those of a clean or a rollback, and of the metadata table.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

from tidemark.commit_coordinator.commit.context import Context
from tidemark.commit_coordinator.commit.table_state import Timelines
from tidemark.hudi_format.commit.instants import delete_pending, instant_path
from tidemark.hudi_format.errors import FileMissingError
from tidemark.hudi_format.table_services.dead_instants import DEAD_AFTER_MS
from tidemark.hudi_format.table_view import TableView
from tidemark.hudi_format.timeline import DATA_ROOT, METADATA_TABLE_ROOT, Action, Instant, State

_PLANNED: Final = (Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING, Action.CLEAN, Action.ROLLBACK)
_log: Final = logging.getLogger("tidemark.coordinator")


def settled_view(context: Context, timelines: Timelines) -> TableView:
    """The data table by this listing, in which no plan is being written; `context.view` is it, too.

    Raises FileMissingError while one may be, or when the timeline changed meanwhile: list again.
    """
    context.view = view = TableView.of(context.storage, timelines.data, context.view)
    if view.unwritten:
        dead_from_ms = context.file_time_ms() - DEAD_AFTER_MS
        for path in view.unwritten:
            if not _is_older(context, path, dead_from_ms):
                raise FileMissingError(f"{path} has no content: its writer has not finished it")
    return view


def delete_unwritten_plans(context: Context, timelines: Timelines, own: Collection[str]) -> None:
    """Deletes plans without content whose writer is gone. ``timelines``: as listed under the lock, which is
    held. ``own``: requested times of our own pending instants. Repeatable. Raises LockLostError.
    """
    empty = [
        (instant, root)
        for timeline, root in ((timelines.data, DATA_ROOT), (timelines.metadata, METADATA_TABLE_ROOT))
        for instant in timeline.pending(*_PLANNED)
        if instant.state is State.REQUESTED and instant.requested not in own
        if _is_empty(context, instant, root)
    ]
    dead_from_ms = context.file_time_ms() - DEAD_AFTER_MS if empty else 0
    for instant, root in empty:
        # Its content may have come since we looked: the time is asked first.
        if not _is_older(context, instant_path(instant, root), dead_from_ms):
            continue
        if _is_empty(context, instant, root):
            context.lock.check()
            delete_pending(context.storage, instant.requested, instant.action, root)
            _log.warning("%s had no content, and its writer is gone: it was deleted", instant.file_name)


def _is_empty(context: Context, instant: Instant, root: str) -> bool:
    info = context.storage.stat(instant_path(instant, root))
    return info is not None and info.size == 0


def _is_older(context: Context, path: str, than_ms: int) -> bool:
    written_ms = context.publishing.written_ms(path)
    return written_ms is not None and written_ms < than_ms
