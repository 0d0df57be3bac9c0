"""File groups of a partitioned record index that an epoch begins, because it writes into a data partition for
the first time. `hudi_format.metadata_table.begun_groups` has the rules, and why there are some.

1. The report has the bytes of all their files, and the decision stores it.
2. `refuse_begun`, under the lock before the decision: nobody else began the partition meanwhile.
3. `publish_begun_files`, under the lock at the commit, just before the metadata table's deltacommit.
4. `take_back_voided`, when the attempt is void: deletes them before the lock is given away. It comes after
   the entry that says so, because only then nobody will publish them any more. If the coordinator dies in
   between, it has left the lock, and the next one does this before it frees the lock.
"""

from __future__ import annotations

from tidemark.commit_coordinator.commit.context import Context, Report
from tidemark.commit_coordinator.commit.table_state import Timelines
from tidemark.commit_coordinator.errors import AttemptLostError
from tidemark.epoch_protocol.entries import EpochPlanned
from tidemark.hudi_format.errors import TimelineConflictError
from tidemark.hudi_format.file_group.names import BaseFileName, LogFileName, parse_data_file
from tidemark.hudi_format.metadata_table.begun_groups import (
    begun_by,
    check_not_begun,
    publish_begun,
    take_back_begun,
)
from tidemark.hudi_format.metadata_table.partitioned_index import PartitionedLayout
from tidemark.hudi_format.metadata_table.partitions.record_index import (
    RECORD_INDEX_FOLDER,
    parse_record_index_file_id,
)
from tidemark.hudi_format.timeline import Timeline


def refuse_begun(context: Context, planned: EpochPlanned, timelines: Timelines, report: Report) -> None:
    """Raises AttemptLostError, without a rewind, when another writer began a partition that the attempt
    begins. The next plan waits while that writer's commit is pending. Lists the index's folder.
    """
    if not report.begun:
        return
    after = PartitionedLayout.of_file_ids(begun.log.file_id for begun in report.begun)
    names = map(parse_data_file, context.storage.names(RECORD_INDEX_FOLDER))
    others = [name for name in names if name is not None and name.instant != planned.instant]
    try:
        check_not_begun(PartitionedLayout({}), after, _groups_of(others))
    except TimelineConflictError as error:
        taken = [name for name in others if _partition_of(name) in after.shards]
        first = min(taken, key=lambda name: name.instant)
        why = f"{error} (its first file is {first}). Nothing is lost, all input is kept"
        awaited = first.instant if _is_pending(timelines.data, first.instant) else None
        raise AttemptLostError(why, rewind=False, awaited=awaited) from error


def _groups_of(files: list[BaseFileName | LogFileName]) -> PartitionedLayout:
    """The groups of which there is a file. A writer that is at work may have made some of them only."""
    shards: dict[str, int] = {}
    for file in files:
        group = parse_record_index_file_id(file.file_id)
        if group.partition_path is not None:
            shards[group.partition_path] = max(shards.get(group.partition_path, 0), group.shard + 1)
    return PartitionedLayout(shards)


def _partition_of(file: BaseFileName | LogFileName) -> str | None:
    return parse_record_index_file_id(file.file_id).partition_path


def _is_pending(timeline: Timeline, instant: str) -> bool:
    found = timeline.find(instant)
    return found is not None and not found.is_completed


def publish_begun_files(context: Context, report: Report) -> None:
    """Publishes the files of the groups that the decided attempt begins. Hold the table's lock. Raises as
    `publish_begun`.
    """
    if report.begun:
        files = [(begun.log, begun.content) for begun in report.begun]
        publish_begun(context.publishing, files, context.lock.lease())


def take_back_voided(context: Context) -> None:
    """Deletes what void attempts that are not rolled back yet published in groups that they began. Hold the
    table's lock. Lists the index's folder where there is such an attempt; does nothing with a global index.
    """
    if not context.table.partition_shards or not context.lock.is_held:
        return
    voided = [attempt.instant for attempt in context.fold().state.voided if attempt.instant is not None]
    if not voided:
        return
    names = context.storage.names(RECORD_INDEX_FOLDER)
    for instant in voided:
        if files := begun_by(names, instant):
            take_back_begun(context.publishing, files)
