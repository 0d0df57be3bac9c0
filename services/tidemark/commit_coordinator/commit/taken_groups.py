"""File groups of an attempt that another engine has taken, or is about to take, from under it.

What is written to a replaced file group no reader sees. What is committed to a group under a pending
clustering is lost as soon as that completes: its new files hold what the group held when it was planned.
Hudi's own writers refuse to update such groups (`SparkRejectUpdateStrategy`, the default), and its clustering
does not look for commits that came in between.

So an attempt that touches such a group does not commit. Rows that are only inserted go elsewhere: they are
tagged anew. Updates and deletes have no other place: the next epoch is planned when the clustering has
completed (then it is a foreign commit, and all is tagged anew) or was rolled back.
"""

from __future__ import annotations

from tidemark.commit_coordinator.commit.context import Context, Report
from tidemark.commit_coordinator.commit.table_state import Timelines
from tidemark.commit_coordinator.domain.next_action import AwaitedPlan
from tidemark.commit_coordinator.errors import AttemptLostError
from tidemark.hudi_format.table_view import TableView
from tidemark.hudi_format.timeline import Timeline
from tidemark.hudi_format.timeline.avro_records import WriteStat


def refuse_taken_groups(context: Context, timelines: Timelines, report: Report) -> None:
    """Raises AttemptLostError where the attempt's files lie in such a group; FileMissingError when the
    timeline changed meanwhile (try again).
    """
    context.view = view = TableView.of(context.storage, timelines.data, context.view)
    stats = {(stat.partition_path, stat.file_id): stat for stat in report.data}
    for partition_path, file_id in sorted(stats.keys() & view.replaced.keys()):
        raise AttemptLostError(
            f"file group {file_id} in partition {partition_path!r} was replaced by another writer",
            rewind=True,
        )
    clustered = sorted(stats.keys() & view.clustering.keys())
    # What waits goes first: when its clustering completes, everything is tagged anew anyway.
    for group in sorted(clustered, key=lambda each: _goes_elsewhere(stats[each])):
        instant = view.clustering[group]
        where = f"file group {group[1]} in partition {group[0]!r}"
        if _goes_elsewhere(stats[group]):
            raise AttemptLostError(f"{where} is about to be clustered (instant {instant})", rewind=True)
        raise AttemptLostError(_awaits(instant, where), rewind=False, awaited=instant)


def _goes_elsewhere(stat: WriteStat) -> bool:
    """Whether tagging anew takes all of it to another file group."""
    return stat.num_inserts > 0 and not stat.num_update_writes and not stat.num_deletes


def refuse_awaited(timeline: Timeline, awaited: AwaitedPlan) -> None:
    """Raises AttemptLostError with the same reason while the awaited clustering is pending."""
    found = timeline.find(awaited.instant)
    if found is not None and not found.is_completed:
        raise AttemptLostError(awaited.reason, rewind=False, awaited=awaited.instant)


def _awaits(instant: str, where: str) -> str:
    """The reason, for people: what is pending, and what ends the waiting."""
    return (
        f"another writer's clustering {instant} is pending and covers {where}, which has updates or deletes "
        "to come: it would lose them. Nothing is lost, all input is kept; commits go on by themselves when "
        "the clustering has completed. If nobody executes it, do: CALL run_clustering(path => '...', "
        f"instants => '{instant}', op => 'execute', options => '...'), with the options that "
        "`tidemark table describe` prints"
    )
