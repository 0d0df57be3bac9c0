"""Compactions of the metadata table, seen from outside: which are pending, and how long ago the last one was.

A pending compaction begins a new slice: logs that complete after it was requested belong to it, although
its base file is not there yet (METADATA_TABLE.md, section 9.3). Reading needs no special care for that
(see `file_group.slicing`), planning does: a file group under a pending plan must not get a
second one.
"""

from __future__ import annotations

from tidemark.hudi_format.file_group.slices import FileGroupId
from tidemark.hudi_format.model import is_bootstrap_instant
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action, Instant, State, Timeline
from tidemark.hudi_format.timeline.service_records import decode_compaction_plan


def pending_compactions(storage: Storage, timeline: Timeline) -> dict[FileGroupId, str]:
    """File group (partition, file id) -> requested instant of the compaction that is scheduled for it.

    `timeline` is the metadata table's. Raises FileMissingError when a plan vanished (the compaction was
    rolled back: load the timeline again), CorruptFileError.
    """
    pending: dict[FileGroupId, str] = {}
    for instant in timeline.pending(Action.COMPACTION):
        plan_file = Instant(instant.requested, Action.COMPACTION, State.REQUESTED).file_name
        path = join_path(METADATA_TABLE_ROOT, "timeline", plan_file)
        for operation in decode_compaction_plan(storage.read(path), path).operations:
            pending[(operation.partition_path, operation.file_id)] = instant.requested
    return pending


def delta_commits_since_compaction(timeline: Timeline) -> int:
    """How many completed deltacommits the metadata table has after its newest completed compaction.

    Counted by completion, bootstrap left out. Hudi compacts at 10 by default; and it archives the data
    table's timeline only up to the last compaction here, so a number that keeps growing means timelines
    that keep growing.
    """
    newest = max((each.requested for each in timeline.completed(Action.COMPACTION)), default="")
    return sum(
        str(each.completion) >= newest and not is_bootstrap_instant(each.requested)
        for each in timeline.completed(Action.DELTA_COMMIT)
    )
