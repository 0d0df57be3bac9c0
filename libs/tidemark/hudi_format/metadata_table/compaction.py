"""Which compactions of the metadata table are pending, and how many deltacommits followed the last one.

A pending compaction begins a new slice: log files that complete after it was requested belong to that slice,
although its base file does not exist yet (METADATA_TABLE.md, section 9.3). `file_group.slicing` handles this
for readers. A planner has to know: a file group with a pending plan must not get a second one.
"""

from __future__ import annotations

from tidemark.hudi_format.errors import FileMissingError
from tidemark.hudi_format.file_group.slices import FileGroupId
from tidemark.hudi_format.model import is_bootstrap_instant
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action, Instant, State, Timeline
from tidemark.hudi_format.timeline.service_records import decode_compaction_plan


def pending_compactions(storage: Storage, timeline: Timeline) -> dict[FileGroupId, str]:
    """File group (partition, file id) -> requested instant of the compaction that is scheduled for it.

    `timeline` is the metadata table's. Raises CorruptFileError, and FileMissingError when a plan is gone (the
    compaction was rolled back) or not written yet: load the timeline again.
    """
    pending: dict[FileGroupId, str] = {}
    for instant in timeline.pending(Action.COMPACTION):
        plan_file = Instant(instant.requested, Action.COMPACTION, State.REQUESTED).file_name
        path = join_path(METADATA_TABLE_ROOT, "timeline", plan_file)
        data = storage.read(path)
        if not data:
            raise FileMissingError(f"{path} has no content: its writer has not finished it")
        for operation in decode_compaction_plan(data, path).operations:
            pending[(operation.partition_path, operation.file_id)] = instant.requested
    return pending


def delta_commits_since_compaction(timeline: Timeline) -> int:
    """How many deltacommits of the metadata table completed after its newest completed compaction was
    requested. Bootstrap deltacommits are not counted.

    Hudi compacts at 10 by default. It archives the data table's timeline only up to the metadata table's last
    compaction, so as long as this number grows, both timelines grow.
    """
    compactions = timeline.completed(Action.COMPACTION)
    newest = max((compaction.requested for compaction in compactions), default="")
    return sum(
        str(commit.completion) >= newest and not is_bootstrap_instant(commit.requested)
        for commit in timeline.completed(Action.DELTA_COMMIT)
    )
