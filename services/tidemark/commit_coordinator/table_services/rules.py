"""What has to hold before a service action may go on, whatever its kind. Rule B, that the plan still holds,
is the handler's (`ServiceHandler.recheck`).
"""

from __future__ import annotations

from tidemark.commit_coordinator.commit.table_state import Timelines
from tidemark.epoch_protocol.service_entries import ServiceDecided, ServicePlanned
from tidemark.hudi_format.timeline import DATA_ROOT, METADATA_TABLE_ROOT, Action, Timeline


def timeline_of(timelines: Timelines, root: str) -> Timeline:
    """The timeline with this root."""
    return timelines.data if root == DATA_ROOT else timelines.metadata


def half_committed(timelines: Timelines) -> str | None:
    """Why the metadata table may not be compacted now: a data instant is pending that it has completed.

    Its writer is between its two commits, or died there. A compaction that took it in would keep what is
    rolled back later.
    """
    for pending in timelines.data.pending():
        begun = timelines.metadata.find(pending.requested)
        if begun is not None and begun.is_completed:
            return (
                f"instant {pending.requested} is committed in the metadata table and pending in the table: "
                "its writer is about to finish it, or it is rolled back"
            )
    return None


def out_of_timeline(timelines: Timelines, planned: ServicePlanned, root: str | None) -> str | None:
    """Rule C: why the action's instant may not come onto its timeline any more, None if it may.

    Below the timeline's start it would move the start back, and everything archived in between would count as
    not committed.
    """
    if root is None:
        return None
    timeline = timeline_of(timelines, root)
    if timeline.first_active is not None and planned.instant <= timeline.first_active:
        return f"the active timeline begins at {timeline.first_active} now: {planned.instant} lies before it"
    return None


def taken_instant(timelines: Timelines, planned: ServicePlanned, root: str | None) -> str | None:
    """Rule C: why the action's instant is not free, None if it is. Asked before the decision alone: later it
    is the action's own.
    """
    for timeline in (timelines.data, timelines.metadata):
        if root is not None and timeline.contains(planned.instant):
            return f"another writer has made an instant {planned.instant}"
    return None


def overtaken(timelines: Timelines, planned: ServicePlanned, decided: ServiceDecided) -> str | None:
    """Why the decided times may not be used any more, None if they may: another instant completed after them,
    or a compaction of the metadata table was scheduled.

    A reader that follows the table by completion time has passed them, and the view of an open epoch's
    writers would change under them. A log file of the metadata table that completes below a compaction which
    does not have it is in a slice that nobody reads.
    """
    earlier = min(decided.metadata_completion, decided.data_completion)
    for timeline in (timelines.data, timelines.metadata):
        for instant in timeline.completed():
            if instant.requested != planned.instant and str(instant.completion) > earlier:
                return f"{instant.file_name} was completed since the decision"
    for instant in timelines.metadata.pending(Action.COMPACTION):
        if instant.requested != planned.instant and instant.requested > earlier:
            return f"{instant.file_name} of the metadata table was scheduled since the decision"
    return None


def half_done_by_other(
    timelines: Timelines, planned: ServicePlanned, decided: ServiceDecided, root: str | None
) -> str | None:
    """Why another engine has done half of an action of the data table: it completed the metadata table's
    deltacommit, and not the instant. None otherwise. Engines hold the lock over both steps, and the caller
    holds it now, so that engine is dead. Readers do not look at its deltacommit.
    """
    instant = planned.instant
    there, begun = timelines.data.find(instant), timelines.metadata.find(instant)
    if root != DATA_ROOT or begun is None or (there is not None and there.is_completed):
        return None
    if begun.completion in (None, decided.metadata_completion):
        return None
    return (
        f"another engine completed {instant} in the metadata table at {begun.completion}, and died before it "
        "completed it in the table"
    )


def completion_of_instant(timelines: Timelines, planned: ServicePlanned, root: str | None) -> str | None:
    """When the action's instant was completed on its timeline; None while it is not."""
    if root is None:
        return None
    timeline = timeline_of(timelines, root)
    active = timeline.find(planned.instant)
    if active is not None:
        return active.completion
    return timeline.archive.completion_time(planned.instant) if timeline.archive is not None else None


def decided_time(decided: ServiceDecided, timeline: str | None) -> str:
    """When the action's instant completes, by the decision, on the timeline with this root; "" without
    one.
    """
    if timeline is None:
        return ""
    return decided.metadata_completion if timeline == METADATA_TABLE_ROOT else decided.data_completion
