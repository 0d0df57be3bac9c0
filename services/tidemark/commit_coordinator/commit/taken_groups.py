"""Refuses to commit an attempt that touches file groups which another engine has replaced or will replace.

An attempt that touches such a group does not commit:

- A group was replaced: no reader would see the rows. All lanes are tagged anew.
- A group is under a pending clustering, and the attempt only inserts into it: all lanes are tagged anew, and
  the rows go to other groups.
- A group is under a pending clustering, and the attempt updates or deletes rows in it: these rows have no
other
  place. The attempt is void, and the next epoch is planned when the clustering has completed (then it is a
  foreign commit, and all lanes are tagged anew) or was rolled back.

Example: a clustering is planned at 10:00. Its new files hold the groups' rows of 10:00. We commit an update
at 10:01, the clustering completes at 10:02, and the update is lost. Hudi's own writers refuse such an update
(`SparkRejectUpdateStrategy`, the default), and its clustering does not look for commits in between.
"""

from __future__ import annotations

from tidemark.commit_coordinator.commit.context import Context, Report
from tidemark.commit_coordinator.commit.table_state import Timelines
from tidemark.commit_coordinator.commit.unwritten_plans import settled_view
from tidemark.commit_coordinator.domain.next_action import AwaitedPlan
from tidemark.commit_coordinator.errors import AttemptLostError
from tidemark.hudi_format.timeline import Timeline
from tidemark.hudi_format.timeline.avro_records import WriteStat


def refuse_taken_groups(context: Context, timelines: Timelines, report: Report) -> None:
    """Raises AttemptLostError when a file of the attempt is in such a group.

    Raises FileMissingError when the timeline changed meanwhile, or a plan is being written (try again).
    """
    view = settled_view(context, timelines)
    stats = {(stat.partition_path, stat.file_id): stat for stat in report.data}
    for partition_path, file_id in sorted(stats.keys() & view.replaced.keys()):
        raise AttemptLostError(
            f"file group {file_id} in partition {partition_path!r} was replaced by another writer",
            rewind=True,
        )
    clustered = sorted(stats.keys() & view.clustering.keys())
    # Groups with updates come first (False sorts before True): when the clustering that they wait for
    # completes, all lanes are tagged anew anyway. A rewind before that would only be one more.
    for group in sorted(clustered, key=lambda touched: _goes_elsewhere(stats[touched])):
        instant = view.clustering[group]
        where = f"file group {group[1]} in partition {group[0]!r}"
        if _goes_elsewhere(stats[group]):
            raise AttemptLostError(f"{where} is about to be clustered (instant {instant})", rewind=True)
        raise AttemptLostError(_awaits(instant, where), rewind=False, awaited=instant)


def _goes_elsewhere(stat: WriteStat) -> bool:
    """Whether the file holds only inserts: rows that get another file group when they are tagged anew."""
    return stat.num_inserts > 0 and not stat.num_update_writes and not stat.num_deletes


def refuse_awaited(timeline: Timeline, awaited: AwaitedPlan) -> None:
    """Raises AttemptLostError (without a rewind) while the clustering that ``awaited`` names is pending."""
    clustering = timeline.find(awaited.instant)
    if clustering is not None and not clustering.is_completed:
        raise AttemptLostError(awaited.reason, rewind=False, awaited=awaited.instant)


def _awaits(instant: str, where: str) -> str:
    """The reason as a text for operators: which clustering is pending, and how to end the wait."""
    return (
        f"another writer's clustering {instant} is pending and covers {where}. Updates or deletes wait for "
        "that group, and the clustering would lose them. Nothing is lost, all input is kept; commits go on "
        "when the clustering has completed. If nobody executes it, do: CALL run_clustering(path => '...', "
        f"instants => '{instant}', op => 'execute', options => '...'), with the options that "
        "`tidemark table describe` prints"
    )
