"""File groups of a partitioned record index that an epoch begins, because it writes into a data partition for
the first time. `hudi_format.metadata_table.begun_groups` has the rules, and why there are some.

1. The report has the bytes of all their files, and the decision stores it.
2. `prepare_commit`, before the lock is taken: there may be tens of thousands.
3. `refuse_begun`, under the lock before the decision: nobody else began the partition meanwhile.
4. `publish_begun_files`, under the lock at the commit, just before the metadata table's deltacommit.
5. `take_back_voided`, when the attempt is void: deletes them before the lock is given away. It comes after
   the entry that says so, because only then nobody will publish them any more. If the coordinator dies in
   between, it has left the lock, and the next one does this before it frees the lock.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

from tidemark.commit_coordinator.commit.commit_metadata import metadata_content
from tidemark.commit_coordinator.commit.context import Context, PreparedCommit, Report
from tidemark.commit_coordinator.commit.table_state import Timelines, load_timelines
from tidemark.commit_coordinator.errors import AttemptLostError
from tidemark.epoch_protocol.entries import EpochPlanned
from tidemark.hudi_format.errors import TimelineConflictError
from tidemark.hudi_format.file_group.names import BaseFileName, LogFileName, parse_data_file
from tidemark.hudi_format.metadata_table.begun_groups import (
    begun_by,
    check_not_begun,
    left_groups,
    prepare_begun,
    take_back_begun,
)
from tidemark.hudi_format.metadata_table.partitioned_index import PartitionedLayout
from tidemark.hudi_format.metadata_table.partitions.record_index import (
    RECORD_INDEX_FOLDER,
    escape_partition,
    parse_record_index_file_id,
)
from tidemark.hudi_format.timeline import Action, Timeline

_MANY: Final = 256
"""Log files of a commit in the metadata table: the content of one with so many takes 10 ms and more."""
_log = logging.getLogger("tidemark.coordinator")


def refuse_begun(context: Context, planned: EpochPlanned, timelines: Timelines, report: Report) -> None:
    """Raises AttemptLostError, without a rewind, when another writer began a partition that the attempt
    begins. The next plan waits while that writer's commit is pending. Lists the index's folder.
    """
    if not report.begun:
        return
    after = PartitionedLayout.of_file_ids(begun.log.file_id for begun in report.begun)
    begun = {escape_partition(path) for path in after.shards}
    names = (name for name in context.storage.names(RECORD_INDEX_FOLDER) if _escaped_of(name) in begun)
    others = [
        file for file in map(parse_data_file, names) if file is not None and file.instant != planned.instant
    ]
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


def _escaped_of(name: str) -> str:
    """The partition in a file's name; an escaped one has no '-'. Most names are of other partitions, and
    there may be a hundred thousand.
    """
    return name.removeprefix(".").removeprefix("record-index-").partition("-")[0]


def _partition_of(file: BaseFileName | LogFileName) -> str | None:
    return parse_record_index_file_id(file.file_id).partition_path


def _is_pending(timeline: Timeline, instant: str) -> bool:
    found = timeline.find(instant)
    return found is not None and not found.is_completed


def prepare_commit(context: Context, planned: EpochPlanned, report: Report) -> None:
    """Prepares the files that the attempt begins, and the content of its commit in the metadata table where
    that names many files, so that little is left to do under the lock. Repeatable.
    """
    held = context.prepared
    if planned.instant is None or (held is not None and held.report is report):
        return
    if report.begun or len(report.metadata_logs) > _MANY:
        with context.steps.step("decide_prepare"):
            files = [(begun.log, begun.content) for begun in report.begun]
            tickets = prepare_begun(context.publishing, files) if files else []
            metadata = metadata_content(context, planned, report)
        context.prepared = PreparedCommit(planned.instant, report, tickets, metadata)


def note_stored(context: Context, report: Report, sha256: str) -> None:
    """The report is stored in the document with this checksum."""
    held = context.prepared
    if held is not None and held.report is report:
        context.prepared = replace(held, sha256=sha256)


def stored_report_of(context: Context, instant: str, sha256: str) -> Report | None:
    """The report that this process prepared and stored for the attempt; None when it did not."""
    held = context.prepared
    return held.report if held is not None and (held.instant, held.sha256) == (instant, sha256) else None


def publish_begun_files(context: Context, planned: EpochPlanned, report: Report) -> None:
    """Publishes the files of partitions that the report begins. Repeatable. Hold the lock. A process that
    took over prepares them first. Raises as `Publisher.publish`.
    """
    if report.begun:
        prepare_commit(context, planned, report)
        assert context.prepared is not None
        context.publishing.publish(context.prepared.tickets, context.lock.lease())


def forget_prepared(context: Context) -> None:
    """Deletes what was prepared, once the attempt is committed or void."""
    held, context.prepared = context.prepared, None
    if held is not None:
        context.publishing.revoke(held.tickets)


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


def delete_left(context: Context, timelines: Timelines) -> None:
    """Deletes groups of which nothing is left but files of commits that were undone: no epoch could begin
    them, and no write of Hudi's could go into them. Hold the table's lock.

    Lists the index's folder at the first plan of a term and behind each rollback and restore. Does nothing
    with a global index, whose groups no commit begins.
    """
    undone = timelines.data.completed(Action.ROLLBACK, Action.RESTORE)
    newest = max((str(undo.completion) for undo in undone), default="")
    if not context.table.partition_shards or context.undone_until == newest:
        return
    names = context.storage.names(RECORD_INDEX_FOLDER)
    # Another engine may begin a write at any time. Listed behind the files, the timelines have the instants
    # of all that are there.
    now = load_timelines(context.storage)
    known = [now.data, now.metadata]
    left = left_groups(names, lambda at: any(of.contains(at) or of.is_archived(at) for of in known))
    if left:
        take_back_begun(context.publishing, left)
        _log.warning(
            "%d files of the record index were left by commits that were undone, and are deleted: no writer "
            "could use their file groups. The first is %s",
            len(left),
            left[0].path,
        )
    context.undone_until = newest
